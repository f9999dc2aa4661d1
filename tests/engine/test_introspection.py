"""What was replaced can be pickled, copied, compiled and looked at like what it replaced."""

import pytest

MODEL = """
    class C:
        def __init__(self, x=1):
            self.x = x
        def forward(self, x):
            return ("old", self.x, x)
    def f(x, y=2):
        "Slow."
        return ("old", x)
    def save(x):
        return ("old", x)
    def load(x):
        return ("old", x)
"""
FAST = """
    import functools
    class C:
        def __init__(self, x=1):
            self.x = x
    def f(x, y=2):
        return ("new", x)
    def forward(self, x):
        return ("new", self.x, x)
    def wrapped(original, options):
        def inside(*args, **kwargs):
            return ("new", *original(*args, **kwargs))
        return inside
    def subclass(original, options):
        class Sub(original):
            def forward(self, x):
                return ("new", self.x, x)
        return Sub
"""
PICKLE = """
    import pickle
    def copy(obj):
        return pickle.loads(pickle.dumps(obj))
"""


@pytest.fixture
def model(project):
    return project.write({"m.py": MODEL, "fast.py": FAST, "copying.py": PICKLE})


def test_what_stands_in_the_model_is_pickled_by_a_name_that_leads_to_it(model):
    model.declare("""
        group('g', replace('m.f', 'fast.f'), wrap('m.save', 'fast.wrapped'),
                   wrap('m.C', 'fast.subclass'))
    """)
    model.run("""
        import pickle
        from copying import copy
        report = apply()
        import m
        assert state(report) == "applied", str(report)
        for each in (m.f, m.save, m.C):
            assert copy(each) is each
            assert getattr(sys.modules[each.__module__], each.__qualname__) is each
        made = copy(m.C(5))
        assert type(made) is m.C and made.forward(2) == ("new", 5, 2)
        assert copy(made.forward)(2) == ("new", 5, 2)
        with open("pickled", "wb") as file:
            pickle.dump([m.f, m.save, m.C, m.C(5)], file)
    """)
    # Without us: a wrapped object is the model's own again, a replaced one stays the replacement.
    model.run("""
        import pickle, m, fast
        f, save, C, made = pickle.load(open("pickled", "rb"))
        assert f is fast.f and save is m.save and C is m.C and type(made) is m.C and made.x == 5
        assert made.forward(2) == ("old", 5, 2)
    """)


def test_instances_of_the_old_class_are_reported_since_they_cannot_be_pickled(model):
    """By nature: their class is no longer what its name leads to. Rolling back cures it."""
    model.write({"late.py": MODEL, "broken.py": "def f(): ...\nraise OSError\n"})
    model.declare("group('g', wrap('m.C', 'fast.subclass'), wrap('late.f', 'broken.f'))")
    model.run("""
        import m, pickle
        from copying import copy
        made = m.C()
        report = apply()
        try:
            pickle.dumps(made)
        except pickle.PicklingError as error:
            assert "not the same object as m.C" in str(error)
        else:
            raise AssertionError
        assert "1 instance(s) made before" in report.execution["g"].members[0].left
        during = m.C()
        import late
        assert state(report) == "rolled_back" and type(copy(made)) is m.C
        try:
            pickle.dumps(during)
        except pickle.PicklingError as error:
            assert "not the same object as m.C" in str(error)
        else:
            raise AssertionError
    """)


def test_paired_targets_change_together_or_not_at_all(model):
    model.declare("group('g', wrap('m.save', 'fast.wrapped'), wrap('m.load', 'fast.missing'))")
    model.run("""
        report = apply()
        import m
        assert m.save(1) == m.load(1) == ("old", 1) and state(report) != "applied"
    """)


def test_marks_of_torch_compile_are_not_copied_to_a_wrapper(model):
    """`functools.wraps` copies them; they speak of the original and have the wrapper passed by."""
    model.write(
        {
            "m.py": MODEL
            + """
    f._torchdynamo_orig_callable = f
    f._torchdynamo_disable = True
    f.get_compiler_config = lambda: None
    f.of_the_model = "kept"
            """,
            "fast.py": """
                import functools
                def wrapped(original, options):
                    @functools.wraps(original)
                    def inside(*args, **kwargs):
                        return ("new", *original(*args, **kwargs))
                    return inside
                def always(*args, **kwargs):
                    return True
            """,
        }
    )
    for declaration in (
        "wrap('m.f', 'fast.wrapped')",
        "wrap('m.f', 'fast.wrapped', runtime_condition='fast.always')",
    ):
        model.declare(f"group('g', {declaration})")
        model.run("""
            report = apply()
            import m
            assert m.f(1) == ("new", "old", 1) and m.f.of_the_model == "kept"
            assert set(vars(m.f)) == {"__signature__", "of_the_model"}, set(vars(m.f))
            original = report.execution["g"].members[0].exchange.old
            assert "_torchdynamo_disable" in vars(original)
        """)


@pytest.mark.slow
def test_replaced_and_wrapped_functions_compile_without_graph_breaks(model):
    pytest.importorskip("torch")
    model.write(
        {
            "m.py": """
                import torch
                def f(x):
                    return x + 1
                def g(x):
                    return x + 1
                def h(x):
                    return x + 1
                class Layer(torch.nn.Module):
                    def forward(self, x):
                        return h(g(f(x)))
            """,
            "fast.py": """
                def f(x):
                    return x * 2
                def wrapped(original, options):
                    def inside(x):
                        return original(x) * 3
                    return inside
                def is_float(x):
                    return x.dtype.is_floating_point
            """,
        }
    )
    model.declare("""
        group('g', replace('m.f', 'fast.f'), wrap('m.g', 'fast.wrapped'),
                   replace('m.h', 'fast.f', runtime_condition='fast.is_float'))
    """)
    model.run("""
        import torch
        report = apply()
        import m
        assert state(report) == "applied"
        x, layer = torch.randn(4), m.Layer()
        eager = layer(x)
        assert torch.equal(eager, (x * 2 + 1) * 3 * 2)
        explained = torch._dynamo.explain(layer)(x)
        assert explained.graph_break_count == 0 and explained.graph_count == 1, explained
        torch._dynamo.reset()
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        assert torch.allclose(compiled(x), eager)
    """)


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["plain", "wrapping", "stacked"])
def test_torch_jit_never_scripts_the_original_of_what_was_wrapped(model, factory):
    """It reads the source behind `__wrapped__`. What it can compile it compiles, and it refuses the
    rest, be it scripted itself, called by a scripted function or a method of a scripted module."""
    pytest.importorskip("torch")
    model.write(
        {
            "m.py": """
                import functools
                import torch
                def typed(x):
                    return x + 1
                def f(x):
                    return x + 1
                def conditional(x):
                    return x + 1
                @functools.singledispatch
                def dispatched(x):
                    return x + 1
                def caller(x):
                    return f(x)
                class Layer(torch.nn.Module):
                    def forward(self, x):
                        return x + 1
                class Conditional(torch.nn.Module):
                    def forward(self, x):
                        return x + 1
                class Typed(torch.nn.Module):
                    def forward(self, x):
                        return x + 1
            """,
            "fast.py": """
                import functools, torch
                def plain(original, options):
                    def inside(*args, **kwargs):
                        return original(*args, **kwargs) * 3
                    return inside
                def wrapping(original, options):
                    return functools.wraps(original)(plain(original, options))
                def stacked(original, options):
                    return torch.no_grad()(wrapping(original, options))
                def typed(original, options):
                    @functools.wraps(original)
                    def inside(x):
                        return original(x) * 3
                    return inside
                def method(self, x):
                    return (x + 1) * 3
                def typed_method(original, options):
                    @functools.wraps(original)
                    def forward(self, x):
                        return (x + 1) * 3
                    return forward
                def function(x):
                    return (x + 1) * 3
                def always(*args, **kwargs):
                    return True
            """,
        }
    )
    model.declare(f"""
        group('g', wrap('m.f', 'fast.{factory}'), wrap('m.typed', 'fast.typed'),
              wrap('m.dispatched', 'fast.{factory}'), wrap('m.Layer.forward', 'fast.{factory}'),
              wrap('m.Typed.forward', 'fast.typed_method'),
              replace('m.conditional', 'fast.function', runtime_condition='fast.always'),
              replace('m.Conditional.forward', 'fast.method', runtime_condition='fast.always'))
    """)
    model.run("""
        import torch
        report = apply()
        import m
        assert state(report) == "applied", str(report)
        x = torch.ones(2)
        wanted = [6.0, 6.0]
        for each in (m.typed, m.Typed()):
            assert each(x).tolist() == torch.jit.script(each)(x).tolist() == wanted
        for each in (m.f, m.conditional, m.dispatched, m.caller, m.Layer(), m.Conditional()):
            assert each(x).tolist() == torch.jit.trace(each, x)(x).tolist() == wanted
            try:
                torch.jit.script(each)
            except (RuntimeError, torch.jit.frontend.NotSupportedError) as error:
                assert "can't take variable number of arguments" in str(error)
            else:
                raise AssertionError(each)
    """)


def test_signatures_show_what_is_called(model):
    """A wrapper that takes any arguments shows the original's signature, without `__wrapped__`,
    behind which compilers find the original. The check of a replacement looks at its own arguments,
    not at those of what it wraps."""
    model.write(
        {
            "fast.py": FAST
            + """
    @functools.wraps(f)
    def narrow(x):
        return ("new", x)
    narrow.__wrapped__ = f
            """
        }
    )
    model.declare("""
        group('g', replace('m.f', 'fast.f'), wrap('m.save', 'fast.wrapped')),
        group('narrow', replace('m.C.forward', 'fast.narrow'))
    """)
    model.run("""
        import inspect
        report = apply()
        import m
        assert not hasattr(m.f, "__wrapped__") and str(inspect.signature(m.f)) == "(x, y=2)"
        assert str(inspect.signature(m.save)) == "(x)" and inspect.unwrap(m.save) is m.save
        assert "def inside" in inspect.getsource(m.save)
        assert state(report) == "applied"
        assert state(report, "narrow") == "blocked", str(report)
        assert "(x)" in report.execution["narrow"].reason
    """)


def test_copies_of_an_instance_run_the_replacement_on_themselves(model):
    """Methods are replaced in the class; one that is replaced in an instance is bound to it, and a
    deep copy is bound to the copy."""
    model.write({"m.py": MODEL + "\n    ONE = C(1)\n"})
    for target in ("m.C.forward", "m.ONE.forward"):
        model.declare(f"group('g', replace('{target}', 'fast.forward'))")
        model.run(f"""
            import copy
            report = apply()
            import m
            other = copy.deepcopy(m.ONE)
            other.x = 2
            assert m.ONE.forward(0) == ("new", 1, 0) and other.forward(0) == ("new", 2, 0)
            assert other.forward.__self__ is other
            assert ("forward" in vars(m.ONE)) is ({target!r} == "m.ONE.forward")
            assert state(report) == "applied"
        """)


def test_a_run_that_applied_nothing_says_so_and_strict_mode_fails_it(model):
    """A target that went away in a refactoring must not turn a run into a silent no-op."""
    model.declare("""
        group('gone', replace('m.gone', 'fast.f')), group('never', replace('unused.f', 'fast.f'))
    """)
    model.write({"unused.py": MODEL})
    script = """
        import atexit
        report = apply()
        atexit.register(lambda: print(report.summary["applied"], state(report, "gone"), flush=True))
        import m
        assert m.f(1) == ("old", 1)
    """
    assert model.run(script) == "0 blocked\n"
    assert model.python("main.py", code=3, TURBO_PHYSAI_STRICT="1").stdout == "0 blocked\n"
