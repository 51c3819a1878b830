#!/bin/sh
# A sample of tests/layouts, another one each time: TRI_LAYOUTS_SEED=N does one again, and
# `tests/layouts --table` all of it.
# timeout: 300
seed=${TRI_LAYOUTS_SEED:-$(date +%s)}
exec sh "$TRI_SRCDIR/tests/layouts" --sample 14 "$seed"
