"""What a start here would find: the environment, the config that would be taken, other hooks."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final, NamedTuple

from turbo_physai.config import select
from turbo_physai.errors import TurboPhysAIError
from turbo_physai.evidence.packages import version
from turbo_physai.process import settings
from turbo_physai.process.settings import Setting

_PACKAGES: Final = ("turbo_physai", "torch", "triton", "torchvision", "mmcv", "mmcv-full", "mmdet")
_COMPILERS: Final = ("c++", "g++", "clang++")
# Asked in a process of its own: torch takes a second to import, and may not import at all.
_DEVICES: Final = """\
import torch
print(torch.__version__)
for i in range(torch.cuda.device_count()):
    print(torch.cuda.get_device_name(i), "sm_%d%d" % torch.cuda.get_device_capability(i))
print("--")
from turbo_physai.kernels import backends
kinds = {}
for each in backends():
    kinds.setdefault((each.name, each.missing or ""), []).append(each.op)
for (name, missing), ops in kinds.items():
    print(f"{name}: {missing or 'available'} ({len(ops)} operators)")
"""


class Finding(NamedTuple):
    """One line: what was looked at, what was found, and whether that is in the way."""

    subject: str
    found: str
    is_fault: bool = False


def findings() -> Iterator[Finding]:
    """Everything but the Groups of the config."""
    yield Finding("python", f"{platform.python_version()}, {sys.executable}")
    for name in _PACKAGES:
        found = version(name)
        if found or name in ("turbo_physai", "torch", "triton"):
            yield Finding(name, found or "not installed", is_fault=found is None)
    yield from _devices()
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    yield Finding("C++ compiler", compiler or "none: the CPU kernels cannot be built here")
    yield _start_up()
    hooks = [_name(each) for each in sys.meta_path]
    foreign = [name for name in hooks if not name.startswith(("_frozen_importlib", "importlib."))]
    yield Finding("import hooks", ", ".join(foreign) or "none")
    for setting in settings.ALL:
        yield from _variable(setting)


def chosen() -> Finding:
    """The config that a process started here would take, and why."""
    try:
        path = select()
    except TurboPhysAIError as error:
        return Finding("config", str(error), is_fault=True)
    named = settings.OPTIMIZATION_CONFIG.text()
    why = f"{settings.OPTIMIZATION_CONFIG.variable}={named}" if named else "nobody names one"
    return Finding("config", f"{path} ({why})")


def _devices() -> Iterator[Finding]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(settings.PREFIX)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _DEVICES],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        yield Finding("torch", f"does not start: {error}", is_fault=True)
        return
    torch, _, backends = done.stdout.partition("--\n")
    gpus = torch.splitlines()[1:]
    if torch:
        yield Finding("GPU", ", ".join(gpus) or "none that torch sees")
    for line in backends.splitlines():
        name, _, found = line.partition(": ")
        yield Finding(f"kernels, {name}", found)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        yield Finding("kernels" if torch else "import torch", last, is_fault=True)


def _start_up() -> Finding:
    spec = find_spec("turbo_physai_startup")
    if spec is not None:
        return Finding("start-up file", str(spec.origin))
    found = "none: the variable alone activates no process; the launchers do"
    return Finding("start-up file", found)


def _variable(setting: Setting) -> Iterator[Finding]:
    value = setting.text()
    fault = setting.fault()
    if fault is not None:
        yield Finding(setting.variable, str(fault), is_fault=True)
    elif value is not None:
        yield Finding(setting.variable, value)


def _name(finder: object) -> str:
    kind = finder if isinstance(finder, type) else type(finder)
    return f"{kind.__module__}.{kind.__qualname__}"
