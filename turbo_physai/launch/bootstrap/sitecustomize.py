"""Activates a Python process that a launcher of turbo_physai reaches through PYTHONPATH.

Any interpreter may find this file there, one of another environment or of another age: it must
load everywhere, and do nothing where the package that it belongs to is not at home.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))


def _is_at_home():
    if sys.version_info < (3, 10):
        return False
    from importlib.util import find_spec

    spec = find_spec("turbo_physai")
    init = os.path.join(_PACKAGE, "__init__.py")
    if spec is None or spec.origin is None or not os.path.samefile(spec.origin, init):
        return False
    # Found on PYTHONPATH, it need not be installed here with what it needs.
    return all(find_spec(name) is not None for name in ("attrs", "packaging", "yaml"))


def _activate():
    if not os.environ.get("TURBO_PHYSAI_OPTIMIZATION_CONFIG"):
        return
    off = os.environ.get("TURBO_PHYSAI_DISABLE", "")
    if off.strip().lower() not in ("1", "true", "yes", "on") and _is_at_home():
        from turbo_physai.launch.activation import activate

        activate()


# This process has found us; only its children still need the entry, in PYTHONPATH.
sys.path[:] = [entry for entry in sys.path if entry != _HERE]
# There can be only one `sitecustomize`, and the user's comes first. Its import is ours from here
# on: if there is none, or it raises, `site` gets to see the very exception it would see without us.
_this = sys.modules.pop("sitecustomize")  # Python 2 empties a module that nobody holds
try:
    import sitecustomize  # noqa: F401
finally:
    _activate()
