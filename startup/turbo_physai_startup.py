"""Called at the start of every Python process of the environment that turbo_physai is installed in.

It lies beside the package because importing anything from inside a package imports the package,
which only a process that is to be activated should pay for.
"""

import os


def activate() -> None:
    """Activates this process if the environment says so; otherwise costs one look-up."""
    wanted = os.environ.get("TURBO_PHYSAI_OPTIMIZATION_CONFIG")
    if wanted and os.environ.get("TURBO_PHYSAI_DISABLE") != "1":
        from turbo_physai.launch.activation import activate

        activate()
