"""Strict mode ends a process whose Groups were not all applied, as soon as that is certain."""

import pytest

MODEL = {"model.py": "def f(a): return 'slow'\n", "other.py": "def f(a): return 'slow'\n"}
FITS = "def f(a): return 'fast'\n"
STRICT = {"TURBO_PHYSAI_STRICT": "1"}
IMPORT = """
    report = apply()
    import model
    print("imported")
    """


@pytest.fixture
def strict(project):
    """A project with a Group on `model.f`, whose replacement is given."""

    def make(replacement, more=""):
        project.write({**MODEL, "quick.py": replacement})
        return project.declare(f"group('g', replace('model.f', 'quick.f')){more}")

    return make


def test_a_run_in_which_all_is_applied_ends_as_it_does(strict):
    project = strict(FITS)
    assert project.script(IMPORT + "sys.exit(7)", code=7, **STRICT).stdout == "imported\n"
    project.script(IMPORT, **STRICT)


@pytest.mark.parametrize(
    ("kind", "replacement", "state", "reason"),
    [
        ("replace", "def f(): pass\n", "blocked", "has no parameter `a`"),
        ("wrap", "def f(original, options): raise KeyError('k')\n", "rolled_back", "KeyError: 'k'"),
    ],
)
def test_a_group_that_fails_ends_the_process_at_the_import(
    strict, kind, replacement, state, reason
):
    project = strict(replacement).declare(f"group('g', {kind}('model.f', 'quick.f'))")
    assert project.script(IMPORT).stdout == "imported\n"
    done = project.script(IMPORT, code=3, **STRICT)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"turbo_physai: strict mode: g is not applied ({state}): ")
    assert reason in line


def test_a_program_that_goes_on_all_the_same_ends_with_the_code_3(strict):
    project = strict("import absent\n")
    script = """
        import atexit
        apply()
        atexit.register(print, "later")
        try:
            import model
        except BaseException:
            print("caught")
        """
    done = project.script(script, code=3, **STRICT)
    assert done.stdout == "caught\nlater\n"
    assert done.stderr.count("strict mode") == 1


def test_a_model_that_was_never_imported_is_noticed_at_the_end(strict):
    done = strict(FITS).script("apply(); print('end')", code=3, **STRICT)
    assert done.stdout == "end\n"
    assert done.stderr == (
        "turbo_physai: strict mode: g is not applied (not_started): never imported: model.f\n"
    )


def test_an_error_of_the_program_keeps_its_code(strict):
    done = strict(FITS).script("apply()\n1 / 0", code=1, **STRICT)
    assert "ZeroDivisionError" in done.stderr
    assert "strict mode" in done.stderr


def test_groups_that_are_not_wanted_are_not_missed(strict):
    project = strict(FITS, ", group('h', replace('other.f', 'quick.f'))")
    project.script(IMPORT, code=3, **STRICT)
    project.script(IMPORT.replace("apply()", "apply(disable_groups=['h'])"), **STRICT)
    project.script(IMPORT, TURBO_PHYSAI_DISABLE_GROUPS="h", **STRICT)


def test_forked_children_and_helpers_end_as_they_would(strict):
    strict(FITS).script(
        """
        report = apply()
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        import model
        """,
        **STRICT,
    )


def test_a_program_may_ask_for_it_itself(strict):
    project = strict("def f(): pass\n")
    done = project.script("apply(strict=True)\nimport model", code=3)
    assert "turbo_physai: strict mode: g is not applied (blocked)" in done.stderr
    strict(FITS).script("apply(strict=True)\nimport model")
