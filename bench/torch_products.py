"""bf16 products and attention in PyTorch on a GPU, at shapes of bench/device_speed. Prints JSON lines."""

import json
import statistics

import torch


def milliseconds(run, n=20):
    for _ in range(3):
        run()
    times = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(n):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / n)
    return statistics.median(times)


def say(name, shape, work, ms):
    print(json.dumps({"name": name, "shape": shape, "ms": ms, "tflop_per_s": work / ms * 1e-9}), flush=True)


def normal(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


for n, ic, oc in ((8192, 8192, 8192), (32768, 768, 3072), (32768, 3072, 768)):
    x, w = normal(n, ic), normal(oc, ic)
    say("matmul", f"{n} x {ic} to {oc} bf16", 2 * n * ic * oc, milliseconds(lambda: x @ w.T))
for b, t, h, d in ((32, 1024, 12, 64), (16, 1024, 25, 64), (8, 4096, 12, 64)):
    q, k, v, dout = (normal(b, h, t, d).requires_grad_() for _ in range(4))
    pairs = b * h * t * (t + 1) / 2

    def forward():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    shape = f"B {b} T {t} H {h} D {d} bf16"
    out = forward()
    say("attention_forward", shape, 4 * pairs * d, milliseconds(forward))
    backward = milliseconds(lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))
    say("attention_backward", shape, 10 * pairs * d, backward)
