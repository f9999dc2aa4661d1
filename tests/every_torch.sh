#!/usr/bin/env bash
# Runs the fast tests of the kernels on the oldest torch that they support, one between and the newest:
# each in an environment of its own, with the Triton that it was released with. Before a release: the
# builds for CUDA, which the registry has for most versions, pull several GB each.
#
#     tests/every_torch.sh                       TORCHES="2.6.0 2.13.0" tests/every_torch.sh -k bev_pool
set -euo pipefail
cd "$(dirname "$0")/.."

for torch in ${TORCHES:-2.6.0 2.9.1 2.14.1}; do
    venv=.venv-torch-$torch
    echo "== torch $torch"
    [ -d "$venv" ] || "${PYTHON:-python3}" -m venv "$venv"
    # torch first: it says which Triton goes with it. The bounds of the package are what is tested here.
    "$venv/bin/pip" install -q "torch==$torch" "numpy<2.3" pillow pytest pytest-xdist hypothesis wrapt \
        attrs packaging pyyaml typer "setuptools>=77"
    "$venv/bin/pip" install -q --no-deps --no-build-isolation -e .
    "$venv/bin/python" -m pytest -q -n 2 -m "not slow" tests/kernels "$@"
done
