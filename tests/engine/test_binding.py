"""A declared object takes the target's place, whatever kind of place that is."""

import pytest

MODEL = """
    import functools

    def function(x):
        "Slow."
        return ("old", x)

    class Base:
        def inherited(self, x):
            return ("old", x)

    class Model(Base):
        def method(self, x):
            return ("old", x)

        @staticmethod
        def static(x):
            return ("old", x)

        @classmethod
        def of_class(cls, x):
            return ("old", cls.__name__, x)

        @property
        def value(self):
            return ("old", self._value)

        @value.setter
        def value(self, new):
            self._value = new

        @functools.cached_property
        def cached(self):
            return "old"

    class Registry:
        def __init__(self):
            self._held = {"Model": Model}

        @property
        def module_dict(self):
            return self._held

    TABLE = {"op": function}
    REGISTRY = Registry()
"""
FAST = """
    def function(x):
        return ("new", x)

    def method(self, x):
        return ("new", x)

    def of_class(cls, x):
        return ("new", cls.__name__, x)

    def value(self):
        return "new"

    class Other:
        pass
"""
CALLS = {
    ("model.ops.function", "fast.function"): ("ops.function(1)", ("new", 1)),
    ("model.ops.Model.method", "fast.method"): ("ops.Model().method(1)", ("new", 1)),
    ("model.ops:Model.method", "fast:method"): ("ops.Model().method(1)", ("new", 1)),
    ("model.ops.Model.static", "fast.function"): (
        "(ops.Model.static(1), ops.Model().static(2))",
        (("new", 1), ("new", 2)),
    ),
    ("model.ops.Model.of_class", "fast.of_class"): (
        "(ops.Model.of_class(1), ops.Model().of_class(2))",
        (("new", "Model", 1), ("new", "Model", 2)),
    ),
    ("model.ops.Model.value", "fast.value"): ("ops.Model().value", "new"),
    ("model.ops.Model.cached", "fast.value"): ("ops.Model().cached", "new"),
    ("model.ops.Model.inherited", "fast.method"): (
        "(ops.Model().inherited(1), ops.Base().inherited(1))",
        (("new", 1), ("old", 1)),
    ),
    ("model.ops.Model", "fast.Other"): ("ops.Model.__name__", "Other"),
    ("model.ops.TABLE.op", "fast.function"): ("ops.TABLE['op'](1)", ("new", 1)),
    ("model.ops.REGISTRY.module_dict.Model", "fast.Other"): (
        "ops.REGISTRY.module_dict['Model'].__name__",
        "Other",
    ),
}


@pytest.mark.parametrize(("paths", "call"), CALLS.items(), ids=lambda v: v[0])
def test_replacement_runs_in_place_of_the_target(project, paths, call):
    project.write({"model/ops.py": MODEL, "fast.py": FAST})
    project.declare("group('g', replace('{}', '{}'))".format(*paths))
    expression, result = call
    project.run(f"""
        report = apply()
        import model.ops as ops
        assert {expression} == {result!r}, {expression}
        assert report.summary["applied"] == 1 and report.final, str(report)
    """)


def test_a_property_keeps_the_accessors_that_the_replacement_lacks(project):
    project.write({"model/ops.py": MODEL, "fast.py": FAST})
    project.declare("group('g', replace('model.ops.Model.value', 'fast.value'))")
    project.run("""
        apply()
        from model.ops import Model
        m = Model()
        m.value = 3
        assert m._value == 3 and m.value == "new"
    """)


def test_a_factory_gets_the_original_and_the_options_of_its_group(project):
    project.write(
        {
            "model/ops.py": MODEL,
            "fast.py": """
                def twice(original, options):
                    def function(x):
                        return [original(x)] * options.times
                    return function
            """,
        }
    )
    project.declare(
        "group('g', wrap('model.ops.function', 'fast.twice'), "
        "wrap('model.ops.Model.static', 'fast.twice'), options=Options)",
        options="times: int = 1",
        g="options: {times: 2}",
    )
    project.run("""
        import inspect, pickle
        apply()
        from model.ops import Model, function
        assert function(1) == [("old", 1)] * 2 == Model.static(1)
        assert str(inspect.signature(function)) == "(x)" and function.__doc__ == "Slow."
        assert function.__qualname__ == "function" and function.__module__ == "model.ops"
        assert pickle.loads(pickle.dumps(function)) is function
    """)


def test_methods_of_another_name_are_pickled_by_the_name_they_took(project):
    project.write(
        {"model/ops.py": MODEL, "fast.py": "def quick(self, x):\n    return ('new', x)\n"}
    )
    project.declare("group('g', replace('model.ops.Model.method', 'fast.quick'))")
    project.run("""
        import pickle
        apply()
        from model.ops import Model
        assert pickle.loads(pickle.dumps(Model().method))(1) == ("new", 1)
        assert pickle.loads(pickle.dumps(Model.method)) is Model.method
        import fast
        assert fast.quick.__qualname__ == "quick"
    """)


def test_super_in_a_replaced_method_means_the_target_class(project):
    project.write(
        {
            "model/ops.py": MODEL,
            "fast.py": """
                class Fast:
                    def inherited(self, x):
                        return ("new", super().inherited(x))
            """,
        }
    )
    project.declare("group('g', replace('model.ops.Model.inherited', 'fast.Fast.inherited'))")
    project.run("""
        apply()
        from model.ops import Model
        assert Model().inherited(1) == ("new", ("old", 1))
    """)


def test_a_plain_replacement_is_the_object_itself(project):
    project.write({"model/ops.py": MODEL, "fast.py": FAST})
    project.declare("group('g', replace('model.ops.function', 'fast.function'))")
    project.run("""
        apply()
        import fast, model.ops
        assert model.ops.function is fast.function
    """)


def test_aliases_change_with_the_target_whenever_they_are_imported(project):
    project.write(
        {
            "model/ops.py": MODEL + "\n    also = function\n",
            "model/user.py": "from model.ops import function as borrowed\n",
            "fast.py": FAST,
        }
    )
    project.declare("""
        group('g', replace('model.ops.function', 'fast.function',
                           aliases=['model.ops.also', 'model.user.borrowed']))
    """)
    project.run("""
        report = apply()
        import model.ops, fast
        assert model.ops.also is fast.function
        assert state(report) == "pending" and not report.final
        import model.user
        assert model.user.borrowed is fast.function
        assert state(report) == "applied" and report.final
    """)


def test_an_alias_that_holds_another_object_blocks_the_group(project):
    project.write({"model/ops.py": MODEL + "\n    also = len\n", "fast.py": FAST})
    project.declare("""
        group('g', replace('model.ops.function', 'fast.function', aliases=['model.ops.also']))
    """)
    project.run("""
        report = apply()
        import model.ops
        assert model.ops.function(1) == ("old", 1) and model.ops.also is len
        assert state(report) in ("blocked", "rolled_back")
        assert "model.ops.also holds another object" in report.execution["g"].reason
    """)


WRONG = {
    "a class for a function": (
        "model.ops.function",
        "fast.Other",
        "expected function, found class",
    ),
    "a function for a class": (
        "model.ops.Model",
        "fast.function",
        "expected class, found function",
    ),
    "a signature that lacks an argument": (
        "model.ops.function",
        "fast.value",
        "names parameter 1 `self`",
    ),
    "a target that is missing": ("model.ops.nothing", "fast.function", "no 'nothing'"),
    "a method that is missing": ("model.ops.Base.nothing", "fast.method", "no 'nothing'"),
    "a replacement that is missing": ("model.ops.function", "fast.nothing", "no 'nothing'"),
}


@pytest.mark.parametrize(("target", "replacement", "reason"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_blocks_the_group_and_leaves_the_model_alone(
    project, target, replacement, reason
):
    project.write({"model/ops.py": MODEL, "fast.py": FAST})
    project.declare(f"group('g', replace('{target}', '{replacement}'))")
    project.run(f"""
        report = apply()
        import model.ops as ops
        assert ops.function(1) == ("old", 1) and ops.Model().method(1) == ("old", 1)
        assert state(report) == "blocked", str(report)
        assert {reason!r} in report.execution["g"].reason, report.execution["g"].reason
    """)


def test_a_failing_replacement_module_never_breaks_the_models_import(project):
    project.write(
        {"model/ops.py": MODEL, "fast.py": "raise OSError('no driver')\ndef function(x): ...\n"}
    )
    project.declare("group('g', replace('model.ops.function', 'fast.function'))")
    project.run("""
        report = apply()
        from model.ops import function
        assert function(1) == ("old", 1)
        assert state(report) == "rolled_back"
        member, = report.execution["g"].members
        assert member.error.type == "OSError" and "no driver" in member.error.message
    """)


def test_what_a_replacement_module_imports_is_the_original(project):
    project.write(
        {
            "model/ops.py": MODEL,
            "fast.py": """
                from model.ops import function as slow
                def function(x):
                    return ("new", slow(x))
            """,
        }
    )
    project.declare("group('g', replace('model.ops.function', 'fast.function'))")
    project.run("""
        apply()
        from model.ops import function
        assert function(1) == ("new", ("old", 1))
    """)


def test_a_replacement_module_that_is_imported_first_binds_when_it_is_complete(project):
    project.write(
        {
            "model/ops.py": MODEL,
            "fast.py": """
                from model.ops import function as slow
                def function(x):
                    return ("new", slow(x))
            """,
        }
    )
    project.declare("group('g', replace('model.ops.function', 'fast.function'))")
    project.run("""
        report = apply()
        import fast
        from model.ops import function
        assert function(1) == ("new", ("old", 1))
        assert state(report) == "applied"
    """)
