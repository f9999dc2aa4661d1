"""A process that runs a generated model, with the engine or without, and tells all it can see.

It reads one JSON request per line and answers each with one line. For every example it forks, so
that each begins in an interpreter that has imported nothing of the model.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import inspect
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

ENGINE = "--engine" in sys.argv
STUCK_AFTER_SECONDS = 60
if ENGINE:
    import turbo_physai.api  # so that no fork has to
    from turbo_physai.report import journal


def serve() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "stop":  # an example that has ended by itself
            answer({})
            continue
        pid = os.fork()
        if pid == 0:
            faulthandler.dump_traceback_later(STUCK_AFTER_SECONDS, exit=True)
            try:
                run_example(request)
            except BaseException:
                answer({"crash": traceback.format_exc()})
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            answer({"crash": "see standard error"})


def answer(reply: dict[str, Any]) -> None:
    print(json.dumps(reply, default=str), flush=True)


def run_example(request: dict[str, Any]) -> None:
    folder, names, ours = request["folder"], request["modules"], request["replacements"]
    sys.path.insert(0, folder)
    sys.path_importer_cache.clear()
    import world

    report = None
    reply = attempt(import_all, request["early"])
    if ENGINE:
        config = Path(folder, "optimization.yaml")
        report = turbo_physai.apply(optimization_config_path=config)
    while True:
        reply.update(
            modules={name: view(sys.modules[name]) for name in names if name in sys.modules},
            begun=world.begun,
            ended=world.ended,
            calls=world.calls,
            kept={name: kept(sys.modules[name]) for name in ours if name in sys.modules},
            finders=[getattr(f, "__name__", type(f).__name__) for f in sys.meta_path],
        )
        if report is not None:
            reply["report"] = report.to_dict()
            reply["journal"] = journal.read(report.journal.path)
        answer(reply)
        request = json.loads(sys.stdin.readline())
        if request["do"] == "stop":
            answer({})
            return
        reply = attempt(perform, world, **request)


def perform(world: Any, do: str, name: str = "", error: str | None = None) -> None:
    if do == "import":
        importlib.import_module(name)
    elif do == "reload":
        importlib.reload(sys.modules[name])
    elif do == "delete":
        del sys.modules[name]
    elif do == "fail":
        world.failing[name] = error
    elif do == "exit":
        atexit._run_exitfuncs()


def import_all(names: list[str]) -> None:
    for name in names:
        importlib.import_module(name)


def attempt(action: Any, *arguments: Any, **keywords: Any) -> dict[str, Any]:
    """What comes of an action: its exception, with every frame of the model's own code."""
    try:
        action(*arguments, **keywords)
    except BaseException as error:
        folder = sys.path[0]
        frames = [
            (frame.filename, frame.lineno, frame.name)
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename.startswith(folder)
        ]
        context = (repr(error.__cause__), repr(error.__context__))
        return {"error": [type(error).__name__, str(error), context, frames]}
    return {"error": None}


def view(module: ModuleType) -> dict[str, Any]:
    """A module as its users see it."""
    spec, loader = module.__spec__, module.__loader__
    assert spec is not None
    parent, _, last = module.__name__.rpartition(".")
    held = getattr(sys.modules.get(parent), last, None)
    face = {
        "loader": [type(loader).__name__, sorted(vars(loader)), spec.loader is loader],
        "spec": [spec.name, spec.origin, spec.submodule_search_locations, spec.parent],
        "dunders": sorted(name for name in vars(module) if name.startswith("__")),
        "is_attribute_of_parent": held is module,
        "source": inspect.getsource(module),
    }
    values: dict[str, Any] = {}
    for name, held in list(vars(module).items()):
        if isinstance(held, FunctionType):
            values[name] = held(0)
        elif isinstance(held, type):
            values |= {f"{name}{key}": value for key, value in look_into(held).items()}
    return {"face": face, "values": values}


def kept(replacement: ModuleType) -> Any:
    """What the module of a replacement has imported from the model."""
    held = getattr(replacement, "kept", None)
    return None if held is None else held(0)


def look_into(cls: type) -> dict[str, Any]:
    if hasattr(cls, "held"):
        return {".held": cls.held(0)}
    return {"": cls.TAG, ".m": cls().m(0), ".s": cls.s(0), ".k": cls.k(0)}


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve()
