"""Reading a module's source warns of nothing, and leaves everybody else's warnings alone."""

import ast
import threading
import warnings

import pytest

from turbo_physai.evidence.quiet import parse

WARNS = "def f(): return '\\d', 1if True else 2\n"


@pytest.mark.parametrize("flag", ["default", "error", "error::SyntaxWarning", "always"])
def test_a_cached_module_with_an_invalid_escape_is_imported_as_without_us(project, flag):
    project.write({"model.py": WARNS, "quick.py": "def f(): return 'fast'\n"})
    project.declare("group('g', replace('model.f', 'quick.f'))")
    project.python("-Wignore", "-c", "import py_compile as p; p.compile('model.py')")
    project.write(
        {
            "main.py": """\
            import turbo_physai
            turbo_physai.apply(optimization_config_path="optimization.yaml")
            import model
            print(model.f())
            """
        }
    )
    done = project.python(f"-W{flag}", "main.py")
    assert (done.stdout, done.stderr) == ("fast\n", "")


def test_no_warning_is_given_and_none_is_an_error():
    with warnings.catch_warnings(record=True) as given:
        for action in ("always", "error"):
            warnings.simplefilter(action)
            before = list(warnings.filters)
            assert isinstance(parse(WARNS, "model"), ast.Module)
            assert warnings.filters == before
    assert given == []


@pytest.mark.parametrize("source", ["x = = 1", "\0", "(" * 100_000, "x = '\ud800'"])
def test_what_does_not_parse_is_a_syntax_error(source):
    before = list(warnings.filters)
    with pytest.raises(SyntaxError):
        parse(source, "model")
    assert warnings.filters == before


def test_other_threads_are_warned_meanwhile():
    """The filters of this process are those of before, whatever else runs."""
    before = list(warnings.filters)
    end = threading.Event()
    missed = []

    def warn():
        while not end.is_set():
            try:
                warnings.warn_explicit("here", UserWarning, "file", 1)
            except UserWarning:
                continue
            missed.append("a warning that should have been an error")

    def read():
        for i in range(200):
            parse(WARNS * 20 + f"x = {i}\n", "model")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inside = list(warnings.filters)
        others = [threading.Thread(target=warn) for _ in range(2)]
        readers = [threading.Thread(target=read) for _ in range(3)]
        for thread in (*others, *readers):
            thread.start()
        for thread in readers:
            thread.join()
        end.set()
        for thread in others:
            thread.join()
        assert warnings.filters == inside
    assert missed == []
    assert warnings.filters == before
