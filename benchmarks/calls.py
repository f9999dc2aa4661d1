"""What a call costs in each form of a Replacement, in one run against a direct call.

    python benchmarks/calls.py [--runs 15]

Each function returns its argument. The forms take turns; a time is the fastest of the runs. With
``--observe`` calls are counted, with ``--verify 1`` the first one was compared. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

FILES: Final = {
    "model.py": "def direct(x): return x\n"
    + "".join(f"def {name}(x): return x\n" for name in ("plain", "wrapped", "chosen")),
    "fast.py": """\
def f(x): return x
def factory(original, options):
    def wrapper(x): return original(x)
    return wrapper
def always(x): return True
""",
    "declared.py": """\
from turbo_physai import group, replace, wrap
GROUPS = (
    group("plain", replace("model.plain", "fast.f")),
    group("wrapped", wrap("model.wrapped", "fast.factory")),
    group("chosen", replace("model.chosen", "fast.f", runtime_condition="fast.always")),
)
""",
    "config.yaml": """\
schema_version: turbophysai/optimization-config/v1
kind: OptimizationConfig
metadata: {id: benchmark, version: "1"}
optimization_modules: [declared]
optimization_groups: [{id: plain}, {id: wrapped}, {id: chosen}]
""",
    "timed.py": """\
import json, sys, timeit
import turbo_physai
turbo_physai.apply(optimization_config_path="config.yaml")
import model
runs, number = int(sys.argv[1]), 100_000
forms = ("direct", "plain", "wrapped", "chosen")
best = dict.fromkeys(forms, 1e9)
for _ in range(runs):
    for name in forms:
        f = getattr(model, name)
        best[name] = min(best[name], timeit.timeit("f(1)", globals={"f": f}, number=number))
print(json.dumps({name: seconds / number * 1e9 for name, seconds in best.items()}))
""",
}
MODES: Final = {"": {}, "--observe": {"OBSERVE": "1"}, "--verify 1": {"VERIFY": "1"}}
SHOWN: Final = {
    "direct": "a direct call",
    "plain": "`replace`",
    "wrapped": "`wrap`, with a frame of the factory's",
    "chosen": "`replace` with a `runtime_condition`",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15, help="runs of each form")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            (Path(folder) / name).write_text(text)
        found = {mode: timed(folder, runs, variables) for mode, variables in MODES.items()}
    print("| ns a call | no option | `--observe` | `--verify 1`, after the first call |")
    print("| --- | --- | --- | --- |")
    for form, shown in SHOWN.items():
        print(f"| {shown} | {' | '.join(f'{times[form]:.0f}' for times in found.values())} |")


def timed(folder: str, runs: int, variables: dict[str, str]) -> dict[str, float]:
    """Nanoseconds a call, by form."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TURBO_PHYSAI_")}
    ours = {f"TURBO_PHYSAI_{name}": value for name, value in variables.items()}
    done = subprocess.run(
        [sys.executable, "timed.py", str(runs)],
        cwd=folder,
        env={**inherited, **ours, "PYTHONPATH": folder, "TURBO_PHYSAI_REPORT_DIR": folder},
        check=True,
        capture_output=True,
        text=True,
    )
    made: dict[str, float] = json.loads(done.stdout)
    return made


if __name__ == "__main__":
    main()
