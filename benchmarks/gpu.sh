#!/bin/sh
# One run on one GPU, under eight minutes: correctness, rates, sizes, timings, and the layers around.
#
#     benchmarks/gpu.sh [FOLDER]                  (default: ./gpu-results)
#     DRY_RUN=1 benchmarks/gpu.sh [FOLDER]        the same steps at tiny shapes, on the CPU
set -u
out=${1:-gpu-results}
python=${PYTHON:-python}
mkdir -p "$out"
cd "$(dirname "$0")/.." || exit 1

if [ -n "${DRY_RUN:-}" ]; then
    TRITON_INTERPRET=1 TURBO_PHYSAI_KERNEL_BACKEND=triton \
        "$python" -m turbo_physai.kernels.bench.gpu --dry-run --out "$out" || exit 1
    exit 0
fi

nvidia-smi > "$out/device.txt" 2>&1
"$python" -m pip freeze > "$out/packages.txt" 2> /dev/null
if command -v compute-sanitizer > /dev/null; then
    timeout 60 compute-sanitizer --tool memcheck "$python" -m pytest -q -x --kernel-backend triton \
        tests/kernels/spatial_cross_attention/test_definition.py -k "turn or nothing" > "$out/memcheck.txt" 2>&1
fi
timeout 330 "$python" -m turbo_physai.kernels.bench.gpu --out "$out" --seconds 300 > "$out/gpu.txt" 2>&1
timeout 90 "$python" examples/bevformer/bench.py > "$out/example.txt" 2>&1
cat "$out/gpu.md"
