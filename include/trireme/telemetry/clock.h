// Time. Local.
#pragma once

// Seconds on the monotonic clock.
double tri_clock_seconds(void);
