"""A predicate decides, call by call, whether the replacement or the original runs."""

import pytest

from turbo_physai.report.journal import read

MODEL = """
    class C:
        def method(self, x):
            return ("old", x)
        @staticmethod
        def static(x):
            return ("old", x)
        @classmethod
        def of_class(cls, x):
            return ("old", x)
    def function(x):
        "Slow."
        return ("old", x)
"""
FAST = """
    def function(x):
        if x == 13:
            raise ArithmeticError("mine")
        return ("new", x)
    def method(self, x):
        return ("new", x)
    def of_class(cls, x):
        return ("new", x)
    def wrapped(original, options):
        return lambda x: ("new", *original(x))
    def positive(*args, **kwargs):
        x = kwargs.get("x", args[-1] if args else None)
        if x is None:
            raise LookupError("the condition's own")
        return x > 0 if x < 100 else x
"""
TARGETS = {
    "m.function": ("replace", "function", "m.function"),
    "m.C.method": ("replace", "method", "m.C().method"),
    "m.C.static": ("replace", "function", "m.C.static"),
    "m.C.of_class": ("replace", "of_class", "m.C.of_class"),
}


@pytest.fixture
def model(project):
    return project.write({"m.py": MODEL, "fast.py": FAST})


@pytest.mark.parametrize("target", TARGETS)
def test_true_runs_the_replacement_and_false_the_original(model, target):
    """Anything else is a TypeError: a tensor or None must not pass for an answer."""
    kind, replacement, call = TARGETS[target]
    model.declare(f"""
        group('g', {kind}('{target}', 'fast.{replacement}', runtime_condition='fast.positive'))
    """)
    model.run(f"""
        import inspect, pickle
        report = apply()
        import m
        call = {call}
        assert call(1) == call(x=1) == ("new", 1) and call(-1) == call(x=-1) == ("old", -1)
        for answer in (100, 200.5):
            try:
                call(answer)
            except TypeError as error:
                assert "fast.positive" in str(error) and repr(answer) in str(error)
            else:
                raise AssertionError
        assert state(report) == "applied" and str(inspect.signature(call)) == "(x)"
        assert pickle.loads(pickle.dumps(call))(1) == ("new", 1)
    """)


def test_exceptions_of_condition_and_replacement_reach_the_caller(model):
    """Nothing is tried again on the original."""
    model.write({"m.py": "ran = []\ndef function(x):\n    ran.append(x)\n"})
    model.declare("""
        group('g', replace('m.function', 'fast.function', runtime_condition='fast.positive'))
    """)
    model.run("""
        apply()
        import m
        for argument, error_type in ((None, LookupError), (13, ArithmeticError)):
            try:
                m.function(argument)
            except error_type as error:
                assert error.__context__ is None
            else:
                raise AssertionError
        assert m.ran == []
    """)


def test_a_wrapper_can_have_a_condition_too(model):
    model.declare("""
        group('g', wrap('m.function', 'fast.wrapped', runtime_condition='fast.positive'))
    """)
    model.run("""
        apply()
        import m
        assert m.function(1) == ("new", "old", 1) and m.function(-1) == ("old", -1)
        assert m.function.__doc__ == "Slow."
    """)


@pytest.mark.parametrize("condition", ["fast.missing", "broken.check", "no_such_module.check"])
def test_a_condition_that_cannot_be_imported_ends_the_group(model, condition):
    model.write({"broken.py": "raise OSError\n"})
    model.declare(
        f"group('g', replace('m.function', 'fast.function', runtime_condition='{condition}'))"
    )
    model.run("""
        report = apply()
        import m
        assert m.function(1) == ("old", 1)
        assert state(report) in ("blocked", "rolled_back") and report.execution["g"].reason
    """)


def test_a_class_has_no_call_to_decide_about(model):
    model.write({"fast.py": "class C: ...\ndef positive(x): return True\n"})
    model.declare("group('g', replace('m.C', 'fast.C', runtime_condition='fast.positive'))")
    model.run("""
        report = apply()
        import m
        assert m.C().method(1) == ("old", 1) and state(report) == "blocked"
        assert "runtime_condition needs a function" in report.execution["g"].reason
    """)


@pytest.mark.parametrize("target", TARGETS)
def test_the_report_counts_the_calls_that_went_each_way(model, target):
    """They are current whenever a report is asked for, and in the journal when the process ends."""
    kind, replacement, call = TARGETS[target]
    model.declare(f"""
        group('g', {kind}('{target}', 'fast.{replacement}', runtime_condition='fast.positive'),
                   wrap('m.C', 'fast.same'))
    """)
    model.write({"fast.py": FAST + "    def same(original, options):\n        return original\n"})
    model.run(f"""
        report = apply()
        import m
        call = {call}
        def counted():
            counted, other = report.to_dict()["execution"]["g"]["members"]
            assert other["branches"] is None
            return counted["branches"]
        assert counted() == {{"replacement": 0, "original": 0}}
        assert [call(x)[0] for x in (-1, -2, -3, 1)] == ["old", "old", "old", "new"]
        assert counted() == {{"replacement": 1, "original": 3}}
        assert call(x=2) == ("new", 2)
        assert counted() == {{"replacement": 2, "original": 3}}
        line = "- calls: 2 on the replacement, 3 on the original (runtime_condition)"
        assert line in str(report), str(report)
        call(3)
    """)
    (journal,) = model.path.glob("reports/**/*.json")
    group = read(journal)["execution"]["g"]
    assert group["members"][0]["branches"] == {"replacement": 3, "original": 3}
    assert group["warnings"] == []


@pytest.mark.parametrize(("calls", "warns"), [("-1, -2", True), ("-1, 1", False)])
def test_a_group_whose_every_call_went_to_the_original_warns_at_the_end(model, calls, warns):
    model.declare("""
        group('g', replace('m.function', 'fast.function', runtime_condition='fast.positive'))
    """)
    model.run(f"""
        apply()
        import m
        for x in [{calls}]:
            m.function(x)
    """)
    (journal,) = model.path.glob("reports/**/*.json")
    warnings = read(journal)["execution"]["g"]["warnings"]
    assert len(warnings) == warns
    assert not warns or "sent every call (2) to the original" in warnings[0]


@pytest.mark.slow
@pytest.mark.parametrize("torch_first", [True, False])
def test_counting_costs_a_compiled_function_neither_a_graph_break_nor_a_compilation(
    model, torch_first
):
    pytest.importorskip("torch")
    model.write(
        {
            "m.py": "def function(x):\n    return x + 1\n",
            "fast.py": """
                def function(x):
                    return x * 2
                def is_vector(x):
                    return x.dim() == 1
            """,
        }
    )
    model.declare("""
        group('g', replace('m.function', 'fast.function', runtime_condition='fast.is_vector'))
    """)
    model.run(f"""
        if {torch_first}:
            import torch
        report = apply()
        import m
        import torch
        compilations = []
        def backend(graph, inputs):
            compilations.append(graph)
            return graph.forward
        compiled = torch.compile(m.function, fullgraph=True, backend=backend)
        vector, matrix = torch.ones(3), torch.ones(2, 3)
        for i in range(5):
            assert torch.equal(compiled(vector), vector * 2)
            m.function(vector)  # changes the count between the calls of the compiled function
        assert len(compilations) == 1
        for i in range(5):
            assert torch.equal(compiled(matrix), matrix + 1)
            m.function(matrix)
        assert len(compilations) == 2
        (member,) = report.execution["g"].members
        calls = member.calls
        assert (calls.replacement, calls.original, calls.is_compiled) == (5, 5, {torch_first})
    """)
