"""The evidence of a Group: where its model's code comes from is asked of the model alone."""

import subprocess

import pytest

F = "def f(x):\n    return ('old', x)\n"
COMPATIBILITY = "compatibility: {commits: ['0123']}"


@pytest.fixture
def installed(project):
    """A model in a git work tree, whose environment lies in that tree as well."""
    project.write({"model/ops.py": F, "fast.py": F.replace("old", "new")})
    library = project.path / "env" / "site-packages" / "library"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(F)
    name = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    for arguments in (["init", "-q"], ["add", "model"], [*name, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *arguments], cwd=project.path, check=True, capture_output=True)
    return project


SCRIPT = """
    sys.path.append("env/site-packages")
    report = apply()
    import library
    {more}
    for check in report.prepared_execution.checks:
        print(check.name, check.outcome)
    print(state(report))
"""


def test_an_installed_package_does_not_answer_for_the_repository_of_the_model(installed):
    installed.declare("group('g', replace('library.f', 'fast.f'))", COMPATIBILITY)
    assert installed.run(SCRIPT.format(more="")).split() == ["applied"]


def test_nor_does_a_group_that_only_changes_imports(installed):
    installed.declare("group('g', inject('model.ops', 'name', 'fast.f'))", COMPATIBILITY)
    assert installed.run(SCRIPT.format(more="import model.ops")).split() == ["applied"]


def test_a_model_does_also_where_it_changes_an_installed_package(installed):
    installed.declare(
        "group('g', replace('library.f', 'fast.f'), replace('model.ops.f', 'fast.f'))",
        COMPATIBILITY,
    )
    printed = installed.run(SCRIPT.format(more="import model.ops")).splitlines()
    assert printed == ["commit warning", "applied"]
