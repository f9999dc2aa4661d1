"""A module is noticed when it was imported, without being imported for that."""

import pytest

WATCH = """
from turbo_physai.measure.watch import on_import
seen = []
on_import("pkg.mod", lambda: seen.append(sys.modules["pkg.mod"].value))
assert "pkg" not in sys.modules
"""


@pytest.fixture
def package(project):
    return project.write({"pkg/mod.py": "value = 1\n"})


def test_a_module_is_noticed_once_it_was_executed(package):
    package.run(
        f"{WATCH}\nimport pkg.mod\nassert seen == [1]\nimportlib.reload(pkg.mod)\n"
        "assert seen == [1]\nassert pkg.mod.__spec__.loader is pkg.mod.__loader__\n"
        "assert not [f for f in sys.meta_path if type(f).__module__.startswith('turbo_physai')]\n"
        "on_import('pkg.mod', lambda: seen.append('again'))\nassert seen == [1, 'again']\n"
    )


def test_one_that_fails_is_noticed_when_it_succeeds(package):
    file = package.path / "pkg" / "mod.py"
    package.run(
        f"{WATCH}\nfrom pathlib import Path\nfile = Path({str(file)!r})\n"
        "file.write_text('1 / 0')\n"
        "try: import pkg.mod\nexcept ZeroDivisionError: pass\n"
        "assert seen == []\nfile.write_text('value = 2222')\nimportlib.invalidate_caches()\n"
        "import pkg.mod\nassert seen == [2222]\n"
    )
