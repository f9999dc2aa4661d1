"""A Group's own `compatibility_check` is told where it runs, asked once, and has the last word."""

import subprocess

import pytest

MODEL = "def f(x):\n    return ('old', x)\n"


@pytest.fixture
def model(project):
    project.write({"model/one.py": MODEL, "model/two.py": MODEL})
    project.write({"fast.py": "def f(x):\n    return ('new', x)\n"})
    return project.declare(
        """
        group('g', replace('model.one.f', 'fast.f'), replace('model.two.f', 'fast.f'),
              compatibility_check='checks:fits', options=Options)
        """,
        options="size: int = 1; factor: float = 2",
        g="options: {size: 3}",
    )


def git(folder, *arguments):
    name = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)


def test_the_context_tells_options_packages_backend_and_git_state(model):
    model.write(
        {
            "checks.py": """
                from turbo_physai import CompatibilityResult
                def fits(context):
                    repository = context.repository
                    print(context.group_id, context.options, context.backend)
                    print(context.version("pytest") is not None, context.version("no-such-package"))
                    print(len(repository.commit), repository.is_dirty, repository.folder)
                    print(repository.is_clone_of("Owner/model"), repository.is_clone_of("a/model"))
                    return CompatibilityResult(True)
            """
        }
    )
    git(model.path, "init", "-q")
    git(model.path, "remote", "add", "origin", "https://example.com/owner/Model.git")
    git(model.path, "add", "model")
    git(model.path, "commit", "-q", "-m", "first")
    script = "prepared = check()\nassert prepared.groups['g'].decision == 'apply'\n"
    first, packages, state, clone = model.run(script, CUDA_VISIBLE_DEVICES="").splitlines()
    assert first == "g Options(size=3, factor=2.0) cpu"
    assert packages == "True None"
    assert state == f"40 False {model.path.resolve()}"
    assert clone == "True False"
    (model.path / "model/one.py").write_text(MODEL + "\n")
    assert f"40 True {model.path.resolve()}" in model.run(script)


def test_outside_of_a_git_work_tree_there_is_no_repository(model):
    model.write(
        {
            "checks.py": """
                from turbo_physai import CompatibilityResult
                def fits(context):
                    return CompatibilityResult(context.repository is None)
            """
        }
    )
    model.run("assert check().groups['g'].decision == 'apply'", GIT_CEILING_DIRECTORIES="/")


ANSWERS = {
    "no": (
        "CompatibilityResult(False, '>= 8', '7', 'the driver is too old')",
        "the driver is too old: expected >= 8, found 7",
    ),
    "no result": ("True", "its compatibility_check returned True instead of a CompatibilityResult"),
    "an exception": ("1 / 0", "checks:fits failed: ZeroDivisionError"),
}


@pytest.mark.parametrize(("answer", "reason"), ANSWERS.values(), ids=ANSWERS)
def test_anything_but_a_yes_blocks_the_group_and_cannot_be_forced(model, answer, reason):
    model.write(
        {
            "checks.py": f"""
                from turbo_physai import CompatibilityResult
                def fits(context):
                    return {answer}
            """
        }
    )
    model.run(f"""
        report = apply(force_groups=["g"])
        import model.one
        assert model.one.f(1) == ("old", 1) and state(report) == "blocked"
        assert {reason!r} in report.execution["g"].reason, report.execution["g"].reason
        check_, = (c for c in report.prepared_execution.groups["g"].checks
                   if c.name == "compatibility")
        assert check_.outcome == "fail" and not check_.overridable
    """)


def test_it_is_asked_once_and_not_before_a_target_is_imported(model):
    model.write(
        {
            "checks.py": """
                import sys
                from turbo_physai import CompatibilityResult
                asked = []
                def fits(context):
                    asked.append({"model.one", "model.two", "fast"} & sys.modules.keys())
                    return CompatibilityResult(True)
            """
        }
    )
    model.run("""
        report = apply()
        assert "checks" not in sys.modules
        import model.one, model.two, checks
        importlib.reload(model.one)
        assert model.one.f(1) == model.two.f(1) == ("new", 1)
        assert checks.asked == [set()], checks.asked
    """)
