"""The command line: `python -m turbo_physai.kernels.bench --help`."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import pkgutil
from pathlib import Path
from typing import Any

import torch

from .. import backends, ops
from . import harness

# Kineto, the profiler that counts the memory, announces itself on stderr at every use.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

_OPERATORS: dict[str, Any] = {
    name: importlib.import_module(f"{ops.__name__}.{name}.bench")
    for _, name, _ in pkgutil.iter_modules(ops.__path__)
    if importlib.util.find_spec(f"{ops.__name__}.{name}.bench") is not None
}
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def main(arguments: list[str] | None = None) -> None:
    """Run one operator's benchmark and print its table."""
    parser = argparse.ArgumentParser(prog="python -m turbo_physai.kernels.bench")
    parser.add_argument("operator", choices=_OPERATORS)
    parser.add_argument("--shapes", nargs="+", help="the operator's shapes to run (all)")
    parser.add_argument("--dtype", choices=_DTYPES, default="float32")
    parser.add_argument("--device", help="cuda if there is one, else cpu")
    parser.add_argument("--threads", type=int, help="CPU threads (torch's own choice)")
    parser.add_argument("--runs", type=int, default=15, help="timed runs of each implementation")
    parser.add_argument("--csv", type=Path, help="also write the rows to this file")
    parser.add_argument("--plot", type=Path, help="also draw them to this image; needs matplotlib")
    options = parser.parse_args(arguments)

    operator = _OPERATORS[options.operator]
    names = options.shapes or list(operator.SHAPES)
    for name in names:
        if name not in operator.SHAPES:
            parser.error(f"no shape {name}; {options.operator} has {', '.join(operator.SHAPES)}")
    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))

    print(harness.heading(device))
    print(backends(), end="\n\n")
    dtype = _DTYPES[options.dtype]
    rows: list[harness.Row] = []
    for case in operator.cases(names, dtype, device):
        rows += harness.measure(options.operator, case, dtype, device, options.runs)
    print(harness.table(rows))
    if options.csv:
        harness.write_csv(rows, options.csv)
    if options.plot:
        harness.plot(rows, options.plot)


if __name__ == "__main__":
    main()
