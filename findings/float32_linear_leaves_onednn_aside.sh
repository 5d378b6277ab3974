#!/bin/sh
# torch 2.13.0+cpu (CPython 3.11) on a Zen 5 (CPU family 26 of AuthenticAMD), one thread.
#
# Behaviour: `torch.nn.functional.linear` in float32 goes to the matrix product of MKL. The same wheel has oneDNN, whose
# product of the same matrices (the operator that torch.compile puts in its place) takes less than half of the time on
# this processor. It was seen on a Zen 5 alone; on any other the script says so and runs nothing.
#
# Seen on a Zen 5: 512 x 768 by 768 x 3072, best of 15: F.linear 100 to 105 GFLOP/s, oneDNN 220 to 250. Results differ in the
# last bits.
#
# Seconds are of the processor. Fails if F.linear takes less than 1.4 times those of oneDNN.
set -eu
if ! grep -q AuthenticAMD /proc/cpuinfo || ! grep -q "^cpu family.*: 26$" /proc/cpuinfo; then
    echo "not a Zen 5: nothing was run"
    exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0
OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 "$folder/venv/bin/python" - <<'PY'
import sys
import time

import torch

torch.set_num_threads(1)
torch.manual_seed(0)
x, weight, bias = torch.randn(512, 768), torch.randn(3072, 768), torch.randn(3072)


def of_torch():
    return torch.nn.functional.linear(x, weight, bias)


def of_onednn():
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def seconds(product):
    times = []
    for _ in range(15):
        start = time.process_time()
        for _ in range(5):
            product()
        times.append((time.process_time() - start) / 5)
    return min(times)


with torch.inference_mode():
    assert torch.allclose(of_torch(), of_onednn(), atol=1e-3)
    taken = {"F.linear": seconds(of_torch), "oneDNN": seconds(of_onednn)}
operations = 2 * 512 * 768 * 3072
print(torch.__version__, *(f"{name} {operations / t / 1e9:.0f} GFLOP/s" for name, t in taken.items()))
sys.exit(taken["F.linear"] < 1.4 * taken["oneDNN"])
PY
