#!/usr/bin/env bash
# Runs the tests that need no torch on every supported Python that is installed.
# PYTHONS names them; by default those on PATH and those that pyenv has.
set -euo pipefail
cd "$(dirname "$0")/.."

find_pythons() {
    local version pyenv_root
    pyenv_root=$(pyenv root 2>/dev/null || echo /nonexistent)
    for version in 3.10 3.11 3.12 3.13; do
        ls -d "$pyenv_root/versions/$version".*/bin/python 2>/dev/null | tail -n 1 ||
            command -v "python$version" || true
    done
}

for python in ${PYTHONS:-$(find_pythons)}; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    venv=.venv-$version
    echo "== Python $version"
    [ -d "$venv" ] || "$python" -m venv "$venv"
    # Without torch and triton: the engine does not need them.
    "$venv/bin/pip" install -q attrs packaging pyyaml typer pytest pytest-xdist hypothesis wrapt "setuptools>=77"
    "$venv/bin/pip" install -q --no-deps --no-build-isolation -e .
    "$venv/bin/python" -m pytest -q -n 2 -m "not slow" --ignore=tests/kernels --ignore=tests/examples "$@"
done
