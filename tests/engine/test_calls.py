"""Whether a Replacement was called, how often, and how that is told."""

import json

import pytest

MODEL = """
    class C:
        def method(self, x):
            return "old"
        @staticmethod
        def static(x):
            return "old"
        @classmethod
        def of_class(cls, x):
            return "old"
        @property
        def value(self):
            return "old"
    def function(x):
        return "old"
    def other(x):
        return "old"
"""
FAST = """
    class New:
        pass
    def function(x):
        return "new"
    class Methods:
        def method(self, x):
            return (__class__.__name__, "new")
    def of_class(cls, x):
        return (cls.__name__, "new")
    def value(self):
        return "new"
    def wrapped(original, options):
        return lambda x: ("new", original(x))
    def never(x):
        return False
"""
KINDS = {
    "replace('m.function', 'fast.function')": ("m.function(1)", "new"),
    "wrap('m.function', 'fast.wrapped')": ("m.function(1)", ("new", "old")),
    "replace('m.C.method', 'fast.Methods.method')": ("m.C().method(1)", ("C", "new")),
    "replace('m.C.static', 'fast.function')": ("m.C.static(1)", "new"),
    "replace('m.C.of_class', 'fast.of_class')": ("m.C.of_class(1)", ("C", "new")),
    "replace('m.C.value', 'fast.value')": ("m.C().value", "new"),
}


@pytest.fixture
def model(project):
    return project.write({"m.py": MODEL, "fast.py": FAST})


@pytest.mark.parametrize("declared", KINDS)
def test_calls_are_counted_if_asked(model, declared):
    """The name, the signature and the pickle of what stands there stay useful."""
    call, expected = KINDS[declared]
    model.declare(f"group('g', {declared})")
    model.run(
        f"""
        import inspect, pickle
        report = apply()
        import m
        (member,) = report.execution["g"].members
        assert not member.calls.replacement and "- calls: none" in str(report)
        assert {call} == {call} == {expected!r}
        assert report.to_dict()["execution"]["g"]["members"][0]["calls"] == 2
        assert "- calls: 2" in str(report)
        assert member.verification is None
        if inspect.isfunction(member.exchange.new):
            assert "x" in inspect.signature(member.exchange.new).parameters
            if "C." not in {declared!r}:
                assert pickle.loads(pickle.dumps(m.function)) is m.function
    """,
        TURBO_PHYSAI_OBSERVE="1",
    )


def test_nothing_stands_around_a_plain_replacement_unless_asked(model):
    model.declare("group('g', replace('m.function', 'fast.function'), replace('m.C', 'fast.New'))")
    script = """
        report = apply()
        import m, fast
        print(m.function is fast.function, m.C is fast.New)
        print(*(member.calls is None for member in report.execution["g"].members))
    """
    assert model.run(script).split() == ["True", "True", "True", "True"]
    assert model.run(script, TURBO_PHYSAI_OBSERVE="1").split() == ["False", "True", "False", "True"]


def test_a_group_that_was_applied_and_never_called_is_a_warning(model):
    model.declare("""
        group('used', replace('m.function', 'fast.function'),
                      replace('m.C.static', 'fast.function')),
        group('unused', replace('m.other', 'fast.function')),
        group('unknown', replace('m.C.value', 'fast.value'), replace('fast.New', 'm.C'))
    """)
    script = "apply()\nimport m, fast\nm.function(1)\n"
    done = model.script(script, TURBO_PHYSAI_OBSERVE="1")
    assert done.stderr == (
        "turbo_physai: applied, but never ran: unused (never called in this process). Calls in "
        "worker processes and inside torch.compile are not counted\n"
    )
    (journal,) = model.path.glob("reports/*.json")
    groups = json.loads(journal.read_text())["execution"]
    assert groups["unused"]["warnings"] == [
        "applied, but never called in this process; calls inside torch.compile are not counted"
    ]
    assert groups["used"]["warnings"] == groups["unknown"]["warnings"] == []
    assert model.script(script).stderr == ""
    failed = model.script(f"{script}1/0\n", code=1, TURBO_PHYSAI_OBSERVE="1")
    assert "never ran" not in failed.stderr


def test_the_first_arguments_that_went_to_the_original_are_shown(model):
    model.declare("""
        group('g', replace('m.function', 'fast.function', runtime_condition='fast.never'))
    """)
    model.run("""
        report = apply()
        import m
        class Tensor:
            shape, dtype = (2, 3), "torch.float16"
        m.function(x=[Tensor(), None])
        m.function(2)
        assert "- first on the original: x list of 2: [float16 (2, 3), None]" in str(report)
    """)
