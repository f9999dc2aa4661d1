"""Called at the start of every Python process of the environment that turbo_physai is installed in.

It lies beside the package because importing anything from inside a package imports the package,
which only a process that is to be activated should pay for.
"""

import os


def activate() -> None:
    """Activates this process if the environment says so; otherwise costs one look-up."""
    if not os.environ.get("TURBO_PHYSAI_OPTIMIZATION_CONFIG"):
        return
    off = os.environ.get("TURBO_PHYSAI_DISABLE", "")
    if off.strip().lower() in ("1", "true", "yes", "on"):
        return
    try:
        from turbo_physai.launch.activation import activate
    except ImportError as error:  # the package has gone, and with it all that could be decided
        import sys

        print(f"turbo_physai: this process runs unpatched: {error}", file=sys.stderr)
        return
    activate()
