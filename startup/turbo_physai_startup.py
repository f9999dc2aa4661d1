"""Called at the start of every Python process of the environment that turbo_physai is installed in.

It lies beside the package because importing anything from inside a package imports the package,
which only a process that is to be activated should pay for.
"""

import os


def activate() -> None:
    """Activates this process if the environment says so; otherwise costs one look-up."""
    if os.environ.get("TURBO_PHYSAI_OPTIMIZATION_CONFIG"):
        from turbo_physai.launch.activation import activate

        activate()
