// The peak of this machine's multiply-adds on one thread.
#pragma once

#include <stdbool.h>

// FLOP/s of the widest fused multiply-adds of f32 (or, when `bf16`, of bf16 pairs where the machine
// has them), from registers alone. `what` names the instruction.
double peak_flops(bool bf16, const char **what);
