"""What the engine costs: in a finder miss, an import, a start of python, and as Groups grow.

    python benchmarks/engine.py [--runs 15] [--baseline PYTHON]

Everything is measured in one run, in turns, against doing without: no hook, wrapt's post-import
hooks, plain python. Times of processes are processor time in the fastest of their runs, which is
the one that other programs disturbed least. Prints Markdown.

`--baseline` names an interpreter with another version of turbo_physai installed, for a table of
what a start of python costs with both; the interpreter that runs this must have its own installed
as users have it, without ``-e``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

K = TypeVar("K")

CONFIG = """\
schema_version: turbophysai/optimization-config/v1
kind: OptimizationConfig
metadata: {{id: benchmark, version: "1"}}
optimization_modules: [bench_groups]
optimization_groups:
{entries}
"""

# Run in an interpreter of its own: imports the modules with one kind of hook, and prints the
# milliseconds per import, the peak memory in MB, and how often a report was written as a whole, and
# how often changes were appended to it.
IMPORTS = """\
import importlib, json, resource, sys, time
kind, count, imported = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
wholes = appended = 0
if kind == "wrapt":
    import wrapt
    from bench_fast import f
    for i in range(count):
        wrapt.register_post_import_hook(lambda module: setattr(module, "f", f), f"bench_model.m{i}")
if kind == "turbo_physai":
    import turbo_physai
    from turbo_physai.report import journal
    write = journal.Journal.write
    def counted(self, whole, changes=None):
        def counted_whole():
            global wholes
            wholes += 1
            return whole()
        def counted_changes():
            global appended
            appended += 1
            return changes()
        return write(self, counted_whole, changes and counted_changes)
    journal.Journal.write = counted
    report = turbo_physai.apply(optimization_config_path="bench.yaml")
import bench_model
begin = time.perf_counter()
for i in range(imported):
    importlib.import_module(f"bench_model.m{i}")
spent = time.perf_counter() - begin
if kind == "turbo_physai":
    assert report.summary["applied"] == imported, report.summary
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([spent * 1e3 / imported, peak, wholes, appended]))
"""

MISS = """\
import json, sys, timeit
import wrapt.importer
from turbo_physai.engine.finder import WatchingFinder
class Null:
    def find_spec(self, fullname, path=None, target=None):
        return None
finders = {
    "none": Null(),
    "wrapt": wrapt.importer.ImportHookFinder(),
    "turbo_physai": WatchingFinder({f"model.m{i}" for i in range(100)}, None),
}
wrapt.register_post_import_hook(print, "bench.never")
sys.meta_path.insert(0, finders["turbo_physai"])
best = {name: 1e9 for name in finders}
for _ in range(9):
    for name, finder in finders.items():
        best[name] = min(best[name], timeit.timeit(lambda: finder.find_spec("a.b"), number=50_000))
print(json.dumps({name: value / 50_000 * 1e9 for name, value in best.items()}))
"""


BEVFORMER = "activated with the BEVFormer config"
RUN = "`python -m turbo_physai.run` with the BEVFormer config"
TORCH = "`import torch`, not activated"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15, help="runs of each process")
    parser.add_argument("--baseline", metavar="PYTHON", help="another interpreter to compare with")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), given.runs)
        bench.write(1000)
        if given.baseline:
            print("\n".join(bench.compared(given.baseline)), end="\n\n", flush=True)
            return
        for table in (bench.miss, bench.imports, bench.activation, bench.growth):
            print("\n".join(table()), end="\n\n", flush=True)


class Bench:
    """A folder with a model of many modules, and the interpreters that are started in it."""

    def __init__(self, folder: Path, runs: int) -> None:
        self.folder, self.runs = folder, runs
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TURBO_PHYSAI_")}
        reports = {"TURBO_PHYSAI_REPORT_DIR": str(folder / "reports")}
        self.environment = {**inherited, **reports, "PYTHONPATH": str(folder)}

    def write(self, modules: int) -> None:
        model = self.folder / "bench_model"
        model.mkdir()
        (model / "__init__.py").touch()
        for i in range(modules):
            (model / f"m{i}.py").write_text(
                "def f(x):\n    return x\n\n\ndef g(x):\n    return x\n"
            )
        for name, text in {
            "bench_fast.py": "def f(x):\n    return x\n",
            "imports.py": IMPORTS,
            "miss.py": MISS,
            # What happens at the exit of python is no part of its start.
            "empty.py": "import os\nos._exit(0)\n",
            "torch_alone.py": "import os, torch\nos._exit(0)\n",
        }.items():
            (self.folder / name).write_text(text)

    def declare(self, groups: int) -> Path:
        declared = ", ".join(
            f"group('g{i}', replace('bench_model.m{i}.f', 'bench_fast.f'))" for i in range(groups)
        )
        source = f"from turbo_physai import group, replace\nGROUPS = ({declared},)\n"
        (self.folder / "bench_groups.py").write_text(source)
        entries = "\n".join(f"  - id: g{i}" for i in range(groups))
        config = self.folder / "bench.yaml"
        config.write_text(CONFIG.format(entries=entries))
        return config

    def run(self, *arguments: str, python: str = sys.executable, **variables: str) -> str:
        done = subprocess.run(
            [python, *arguments],
            cwd=self.folder,
            env={**self.environment, **variables},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    def fastest(self, cases: Mapping[K, Callable[[], object]]) -> dict[K, float]:
        """The fastest of several runs of each, in ms, taken in turns."""
        found: dict[K, list[float]] = {name: [] for name in cases}
        for _ in range(self.runs):
            for name, case in cases.items():
                begin = _processor_time()
                case()
                found[name].append((_processor_time() - begin) * 1e3)
        return {name: min(times) for name, times in found.items()}

    # The tables.

    def miss(self) -> Iterator[str]:
        found = json.loads(self.run("miss.py"))
        yield "| `find_spec` of a module that is not watched | ns | ratio |"
        yield "| --- | --- | --- |"
        for name, ns in found.items():
            shown = "a finder that returns None" if name == "none" else name
            yield f"| {shown} | {ns:.0f} | {ns / found['none']:.1f} |"

    def imports(self) -> Iterator[str]:
        self.declare(100)
        found: dict[str, list[float]] = {"none": [], "wrapt": [], "turbo_physai": []}
        for _ in range(max(self.runs // 3, 3)):
            for kind, times in found.items():
                times.append(json.loads(self.run("imports.py", kind, "100", "100"))[0])
        none = statistics.median(found["none"])
        yield "| import of a module with a target, 100 of them | ms | above no hook |"
        yield "| --- | --- | --- |"
        for kind, times in found.items():
            ms = statistics.median(times)
            shown = "no hook" if kind == "none" else kind
            yield f"| {shown} | {ms:.2f} | {ms - none:.2f} |"

    def starts(self, python: str = sys.executable) -> dict[str, Callable[[], object]]:
        """The ways to start python, each with a program that does nothing."""
        one = str(self.declare(1))
        code = "from turbo_physai.config.selection import packaged as p; print(p('bevformer'))"
        bevformer = self.run("-c", code, python=python).strip()
        launch = ("-m", "turbo_physai.run", "--optimization-config", bevformer)

        def start(*arguments: str, config: str = "") -> Callable[[], object]:
            on = {"TURBO_PHYSAI_OPTIMIZATION_CONFIG": config} if config else {}
            return lambda: self.run(*arguments, python=python, **on)

        return {
            "inactive": start("empty.py"),
            "activated with one Group": start("empty.py", config=one),
            BEVFORMER: start("empty.py", config=bevformer),
            RUN: start(*launch, "empty.py"),
            TORCH: start("torch_alone.py"),
        }

    def activation(self) -> Iterator[str]:
        found = self.fastest(self.starts())
        yield "| start of python | ms above inactive | share of `import torch` |"
        yield "| --- | --- | --- |"
        shares = _above_inactive(found)
        for name, ms in shares.items():
            yield f"| {name} | {ms:.0f} | {ms / shares[TORCH]:.1%} |"
        yield ""
        yield f"`run` takes {shares[RUN] - shares[BEVFORMER]:.0f} ms above activation."

    def compared(self, baseline: str) -> Iterator[str]:
        cases = {("before", name): case for name, case in self.starts(baseline).items()}
        cases |= {("after", name): case for name, case in self.starts().items()}
        found = self.fastest(cases)
        before, after = (
            _above_inactive({name: ms for (side, name), ms in found.items() if side == which})
            for which in ("before", "after")
        )
        # Both have the same torch, so the faster of its imports counts for both.
        torch = min(before[TORCH], after[TORCH])
        yield "| start of python, ms above inactive | before | after | share of `import torch` |"
        yield "| --- | --- | --- | --- |"
        for name, ms in after.items():
            share = f"{before[name] / torch:.1%} -> {ms / torch:.1%}"
            yield f"| {name} | {before[name]:.0f} | {ms:.0f} | {share} |"
        above = (side[RUN] - side[BEVFORMER] for side in (before, after))
        yield "| `run` above activation | {:.0f} | {:.0f} | |".format(*above)

    def growth(self) -> Iterator[str]:
        yield "| Groups | ms an import | peak MB | reports written | appended to |"
        yield "| --- | --- | --- | --- | --- |"
        for groups in (1, 10, 100, 1000):
            self.declare(groups)
            imported = str(min(groups, 50))
            ms, peak, wholes, appended = json.loads(
                self.run("imports.py", "turbo_physai", str(groups), imported)
            )
            yield f"| {groups} | {ms:.2f} | {peak:.0f} | {wholes} | {appended} |"


def _processor_time() -> float:
    """Seconds that the processes which have ended have used, in user and system mode."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _above_inactive(found: Mapping[str, float]) -> dict[str, float]:
    inactive = found["inactive"]
    return {name: ms - inactive for name, ms in found.items() if name != "inactive"}


if __name__ == "__main__":
    main()
