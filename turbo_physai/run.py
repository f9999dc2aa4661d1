"""``python -m turbo_physai.run [OPTIONS] (SCRIPT | -m MODULE) [ARGS...]``

Only the way from the command line to the program lives here: this file runs as `__main__`, so state
in it would exist twice.
"""

from __future__ import annotations

import os
import sys

from turbo_physai.launch.activation import activate_for, is_placement_stated
from turbo_physai.launch.arguments import parse
from turbo_physai.launch.checks import require


def main() -> None:
    options, runtime_config, program = parse(sys.argv[1:])
    if options.is_off:
        options.export(os.environ)
    else:
        require(
            program.require,
            lambda: _apply_runtime(runtime_config),
            lambda: options.export(os.environ),
        )
    program.prepare()
    if not options.is_off:
        require(lambda: activate_for(program))
    program.run()


def _apply_runtime(config: str | None) -> None:
    # Only a RuntimeConfig that is named, never one of `--model`: with variables that nobody asked
    # for the program would not run as python itself runs it.
    if config is not None or is_placement_stated():
        from turbo_physai.launch.runtime import Runtime

        Runtime(config=config).apply()


if __name__ == "__main__":
    main()
