"""Code that is trusted by its file, and processes that are forked."""

import importlib.machinery
import py_compile
import sys
import zipfile
from pathlib import Path

import pytest

from turbo_physai.evidence import hashes

MODEL = "def f(x):\n    return ('old', x)\n"
FAST = """
    def f(x):
        return ("new", x)
    def wrapped(original, options):
        return lambda *args, **names: ("new", original(*args, **names))
"""


def extension():
    """A module of the standard library that is a file of machine code of its own."""
    spec = importlib.machinery.PathFinder.find_spec("_statistics")
    if spec is None or "_statistics" in sys.builtin_module_names:
        pytest.skip("this Python has no extension modules of its own")
    return spec.origin


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("kind", ["extension", "sourceless"])
def test_modules_without_source_are_trusted_by_the_hash_of_their_file(project, kind, trusted):
    project.write({"fast.py": FAST})
    target, file = "_statistics._normal_dist_inv_cdf", project.path / "model.pyc"
    if kind == "extension":
        content = Path(extension()).read_bytes()
    else:
        (project.path / "text").write_text(MODEL)
        py_compile.compile(str(project.path / "text"), str(file))
        target, content = "model.f", file.read_bytes()
    hash_ = hashes.artifact_hash(content if trusted else b"other code")
    project.declare(
        f"group('g', wrap('{target}', 'fast.wrapped'))",
        g=f"trust: {{artifact_hashes: {{{target}: ['{hash_}']}}}}",
    )
    project.run(f"""
        outcomes = {{c.name: c.outcome for c in check().groups["g"].checks}}
        assert outcomes["artifact_hash"] == ("pass" if {trusted} else "fail")
        report = apply()
        module = importlib.import_module({target.split(".")[0]!r})
        called = getattr(module, {target.split(".")[1]!r})
        assert state(report) == ("applied" if {trusted} else "blocked"), str(report)
        changed = type(called).__name__ == "function" and called.__globals__["__name__"] == "fast"
        assert changed is {trusted}
    """)


def test_an_untrusted_file_can_be_forced(project):
    project.write({"model.py": MODEL, "fast.py": FAST})
    project.declare(
        "group('g', replace('model.f', 'fast.f'))",
        g="trust: {artifact_hashes: {model.f: ['artifact-v1:0']}}",
    )
    project.run("""
        report = apply(force_groups=["g"])
        import model
        assert model.f(1) == ("new", 1) and state(report) == "applied"
    """)


def test_source_in_an_archive_is_checked_like_any_other(project):
    project.write({"fast.py": FAST})
    with zipfile.ZipFile(project.path / "archive.zip", "w") as archive:
        archive.writestr("pkg/__init__.py", "")
        archive.writestr("pkg/model.py", MODEL)
        archive.writestr("pkg/edited.py", MODEL + "\ndef f(x):\n    return 'edited'\n")
    trusted = hashes.source_hash([MODEL.strip()])
    entry = "trust: {{source_hashes: {{pkg.{}.f: ['{}']}}}}"
    project.declare(
        """
        group('g', replace('pkg.model.f', 'fast.f')), group('e', replace('pkg.edited.f', 'fast.f'))
        """,
        g=entry.format("model", trusted),
        e=entry.format("edited", trusted),
    )
    project.run("""
        sys.path.insert(0, "archive.zip")
        report = apply()
        import pkg.model, pkg.edited
        assert pkg.model.f(1) == ("new", 1) and pkg.edited.f(1) == "edited"
        assert state(report) == "applied" and state(report, "e") == "blocked"
        assert os.path.join("archive.zip", "pkg", "edited.py") in report.execution["e"].reason
        assert "zipimport" in type(pkg.model.__loader__).__module__
    """)


def test_a_forked_child_keeps_the_patches_and_leaves_the_journal_alone(project):
    """It goes on to bind what it imports itself, even if the parent's lock was held."""
    project.write({"model.py": MODEL, "late.py": MODEL, "fast.py": FAST})
    project.declare("""
        group('g', replace('model.f', 'fast.f')), group('late', replace('late.f', 'fast.f'))
    """)
    project.run("""
        import threading
        report = apply()
        import model
        journal = report.journal.path
        before = journal.read_bytes()
        holding, done = threading.Event(), threading.Event()
        def hold():
            with report.lock:
                holding.set()
                done.wait()
        threading.Thread(target=hold).start()
        holding.wait()
        child = os.fork()
        if child == 0:
            try:
                import late
                assert model.f(1) == late.f(1) == ("new", 1) and state(report, "late") == "applied"
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            sys.exit(0)  # runs what is registered for the end, as a forked worker may
        _, status = os.waitpid(child, 0)
        done.set()
        assert status == 0 and journal.read_bytes() == before
        assert state(report, "late") == "pending" and "late" not in sys.modules
        import late
        assert report.final and json.load(open(journal))["summary"]["applied"] == 2
        assert len(list(journal.parent.iterdir())) == 1
    """)
