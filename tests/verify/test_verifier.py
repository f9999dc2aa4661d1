"""The first calls of a Replacement are compared with the original; what differs is rolled back."""

import json

import pytest

pytest.importorskip("torch")

MODEL = """
    import torch
    def scaled(x, w):
        return (x * w).sum(-1)
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x
            return x * x
        @staticmethod
        def backward(ctx, grad):
            return 2 * ctx.x * grad
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.calls = 0
        def forward(self, x):
            self.calls += 1
            return torch.nn.functional.dropout(self.linear(x), 0.5)
    class Old:
        pass
    def half(x):
        return x * 2
    def noted(x, into):
        into.add_(x)
"""
FAST = """
    import torch
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return (x * w).sum(-1)
        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad[..., None] * w, SIGN * (grad[..., None] * x)
    SIGN = 1
    def scaled(x, w):
        return Scaled.apply(x, w)
    def scaled_wrong(x, w):
        return Scaled.apply(x, w) + 0 * (w - w.detach()).sum() - 2 * ((w - w.detach()) * x).sum(-1)
    def square_forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    def square_backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad
    def square_backward_wrong(ctx, grad):
        (x,) = ctx.saved_tensors
        return -2 * x * grad
    def layer(self, x):
        self.calls += 1
        return torch.nn.functional.dropout(x @ self.linear.weight.T + self.linear.bias, 0.5)
    def layer_wrong(self, x):
        self.calls += 1
        weight = 2 * self.linear.weight.detach() - self.linear.weight
        return torch.nn.functional.dropout(x @ weight.T + self.linear.bias, 0.5)
    class New:
        pass
    def small(x):
        return bool(x.dtype is torch.float32)
    def noted(x, into):
        into += x + 1
"""


@pytest.fixture
def model(project):
    project.environment["TURBO_PHYSAI_VERIFY"] = "2"
    return project.write({"m.py": MODEL, "fast.py": FAST})


def test_a_right_replacement_stays_and_its_errors_are_reported(model):
    model.declare("""
        group('g', replace('m.scaled', 'fast.scaled'), replace('m.Layer.forward', 'fast.layer')),
        group('function', *(replace(f'm.Square.{n}', f'fast.square_{n}')
                            for n in ('forward', 'backward')))
    """)
    model.run("""
        report = apply()
        import m, torch
        x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)
        layer = m.Layer()
        for i in range(4):
            m.scaled(x, w).sum().backward()
            torch.manual_seed(i)
            out = layer(x)
            torch.manual_seed(i)
            assert torch.equal(torch.nn.functional.dropout(layer.linear(x), 0.5), out)
            m.Square.apply(x).sum().backward()
        assert torch.allclose(w.grad, 4 * x.sum(0)) and layer.calls == 4
        assert layer.linear.weight.grad is None
        assert state(report) == state(report, "function") == "applied"
        scaled, forward = report.execution["g"].members
        assert scaled.calls.replacement == forward.calls.replacement == 4
        assert (scaled.verification.calls, scaled.verification.with_gradients) == (2, 2)
        assert set(scaled.verification.errors) >= {"output", "gradient of x", "gradient of w"}
        assert "gradient of self.linear.weight" in forward.verification.errors
        one, other = report.execution["function"].members
        assert one.verification.calls == one.verification.with_gradients == 2
        assert other.verification.skipped == "compared together with its forward"
        assert other.calls.replacement == 4
        assert "verified: 2 calls, 2 with gradients" in str(report)
    """)


@pytest.mark.parametrize(
    ("declared", "call", "where"),
    [
        ("replace('m.scaled', 'fast.scaled_wrong')", "m.scaled(x, w)", "gradient of w"),
        (
            "replace('m.Layer.forward', 'fast.layer_wrong')",
            "layer(x)",
            "gradient of self.linear.weight",
        ),
        (
            "replace('m.Square.forward', 'fast.square_forward'), "
            "replace('m.Square.backward', 'fast.square_backward_wrong')",
            "m.Square.apply(x)",
            "gradient of x",
        ),
        (
            "replace('m.Square.backward', 'fast.square_backward_wrong')",
            "m.Square.apply(x)",
            "",
        ),
        ("replace('m.noted', 'fast.noted')", "m.noted(x, into) or into * x", "argument into"),
    ],
)
def test_what_is_wrong_is_named_rolled_back_and_never_used(model, declared, call, where):
    """From there on everything is as in a run without us, random numbers included."""
    if not where:
        model.write({"fast.py": FAST.replace("(x,) = ctx.saved_tensors", "x = ctx.x")})
        where = "output"
    model.declare(f"group('g', {declared})")
    script = f"""
        report = apply()
        import m, torch
        torch.manual_seed(0)
        x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)
        layer, into = m.Layer(), torch.zeros(3, 4)
        for _ in range(3):
            {call.replace(" or ", "; ") if " or " in call else call}
            out = {call}
            out.sum().backward()
        grads = [t.grad.tolist() for t in (x, w, *layer.parameters()) if t.grad is not None]
        print(json.dumps([grads, out.tolist(), torch.rand(1).item(), state(report),
                          report.execution["g"].reason]))
    """
    *found, ended, reason = json.loads(model.run(script))
    *plain, off, _ = json.loads(model.run(script, TURBO_PHYSAI_DISABLE="1"))
    assert found == plain
    assert (ended, where in reason, "Inputs: " in reason) == ("rolled_back", True, True)
    assert off != "applied"


def test_a_run_in_half_precision_shows_what_went_to_the_original(model):
    model.declare("""
        group('g', replace('m.half', 'fast.twice', runtime_condition='fast.small'))
    """)
    model.write({"fast.py": FAST + "    def twice(x):\n        return x + x\n"})
    model.run("""
        report = apply()
        import m, torch
        m.half(torch.ones(2, 3, dtype=torch.float16))
        m.half(torch.ones(5))
        assert "first on the original: x float16 (2, 3)" in str(report), str(report)
        (member,) = report.to_dict()["execution"]["g"]["members"]
        assert member["first_original"] == "x float16 (2, 3)" and member["calls"] == 2
        assert member["verification"]["calls"] == 1
    """)


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradients_are_compared_under_activation_checkpointing(model, reentrant):
    for wrong, ended in (("", "applied"), ("_wrong", "rolled_back")):
        model.declare(f"group('g', replace('m.Layer.forward', 'fast.layer{wrong}'))")
        model.run(f"""
            report = apply()
            import m, torch
            from torch.utils.checkpoint import checkpoint
            layer, x = m.Layer(), torch.randn(3, 4, requires_grad=True)
            for _ in range(3):
                checkpoint(layer, x, use_reentrant={reentrant}).sum().backward()
            (member,) = report.execution["g"].members
            assert member.verification.with_gradients, str(report)
            assert state(report) == "{ended}", str(report)
        """)


def test_the_dtypes_of_autocast_are_those_of_the_original(model):
    model.declare("group('g', replace('m.Layer.forward', 'fast.linear'))")
    linear = "torch.nn.functional.linear(x, self.linear.weight, self.linear.bias)"
    made = f"    def linear(self, x):\n        return torch.nn.functional.dropout({linear}, 0.5)\n"
    model.write({"fast.py": FAST + made})
    model.run("""
        report = apply()
        import m, torch
        layer, x = m.Layer(), torch.randn(3, 4, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x).dtype is torch.bfloat16
            assert torch.is_autocast_cache_enabled()
        (member,) = report.execution["g"].members
        assert member.verification.calls == 1 and state(report) == "applied", str(report)
    """)


def test_what_cannot_be_compared_says_why(model):
    model.declare("""
        group('class', replace('m.Old', 'fast.New')),
        group('constructor', wrap('m.Layer.__init__', 'fast.same')),
        group('declared', wrap('m.half', 'fast.same', verify=False)),
        group('raises', wrap('m.scaled', 'fast.tolerant'))
    """)
    model.write(
        {
            "fast.py": FAST
            + """
    def same(original, options):
        return lambda *args, **kwargs: original(*args, **kwargs)
    def tolerant(original, options):
        return lambda x, w: x if w is None else original(x, w)
"""
        }
    )
    model.run("""
        report = apply()
        import m, torch
        m.Old(), m.Layer(), m.half(1)
        assert m.scaled(3, None) == 3
        why = [g.members[0].verification.skipped for g in report.execution.values()]
        assert why[0].startswith("a class") and why[1].startswith("a constructor")
        assert why[2] == "declared with verify=False"
        assert why[3].startswith("the original raised TypeError")
        assert set(map(lambda id: state(report, id), report.execution)) == {"applied"}
    """)


@pytest.mark.slow
def test_a_compiled_caller_is_neither_broken_nor_compared(model):
    model.declare("group('g', replace('m.scaled', 'm2.scaled'))")
    model.write({"m2.py": "def scaled(x, w):\n    return x @ w\n"})
    model.run("""
        report = apply()
        import m, torch
        graphs = []
        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward
        compiled = torch.compile(lambda x, w: m.scaled(x, w), fullgraph=True, backend=backend)
        for _ in range(3):
            compiled(torch.ones(3, 4), torch.ones(4))
        assert len(graphs) == 1
        (member,) = report.execution["g"].members
        assert member.verification.skipped.startswith("its caller is compiled")
        assert member.calls.is_compiled and not member.calls.replacement
        assert not report.execution["g"].unused
    """)


def test_a_tolerance_may_be_stated_and_inputs_may_be_kept(model):
    model.write({"fast.py": FAST + "    def near(x):\n        return x * 2.01\n"})
    model.declare("group('g', replace('m.half', 'fast.near', tolerance=0.1))")
    script = """
        report = apply()
        import m, torch
        m.half(torch.ones(2))
        print(state(report), report.execution["g"].members[0].verification.saved)
    """
    assert model.run(script).split()[0] == "applied"
    model.declare("group('g', replace('m.half', 'fast.near'))")
    ended, _, saved = model.run(script, TURBO_PHYSAI_VERIFY_SAVE="kept").partition(" ")
    assert (ended, saved.startswith("torch.load(")) == ("rolled_back", True)
    (kept,) = model.path.glob("kept/*.pt")
    model.run(f"""
        import torch
        kept = torch.load({str(kept)!r}, weights_only=False)
        assert torch.equal(kept["args"][0], torch.ones(2)) and kept["target"] == "m.half"
    """)


def test_more_calls_are_compared_if_asked(model):
    model.declare("group('g', replace('m.half', 'fast.half'))")
    model.write({"fast.py": FAST + "    def half(x):\n        return x + x\n"})
    model.run(
        """
        report = apply()
        import m
        for i in range(11):
            m.half(i)
        assert report.execution["g"].members[0].verification.calls == 1 + 3
    """,
        TURBO_PHYSAI_VERIFY="1",
        TURBO_PHYSAI_VERIFY_EVERY="3",
    )


def test_strict_mode_ends_the_process_at_a_mismatch(model):
    model.declare("group('g', replace('m.scaled', 'fast.scaled_wrong'))")
    done = model.script(
        """
        apply()
        import m, torch
        m.scaled(torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True))
        print("not reached")
    """,
        code=3,
        TURBO_PHYSAI_STRICT="1",
    )
    assert done.stdout == ""
    assert "strict mode: g is not applied (rolled_back): m.scaled: MismatchError" in done.stderr


def test_an_argument_that_cannot_be_read_or_copied_breaks_nothing(model):
    model.write({"fast.py": FAST + "    def half(x):\n        return x * 2\n"})
    model.declare("group('g', replace('m.half', 'fast.half'))")
    model.run("""
        report = apply()
        import m, torch, threading
        class Locked:
            def __init__(self):
                self.lock = threading.Lock()
            def __mul__(self, other):
                return 7
        class Odd(Locked):
            def __getattribute__(self, name):
                raise RuntimeError(name)
        assert m.half(Locked()) == m.half(Odd()) == 7
        (member,) = report.execution["g"].members
        assert member.verification.skipped.startswith("the arguments cannot be copied: TypeError")
        assert not member.verification.calls and state(report) == "applied"
    """)


def test_what_runs_inside_an_original_is_original_too(model):
    """A fault is not blamed on a Replacement that calls, in its original, the one that has it."""
    model.write(
        {
            "m.py": MODEL + "    def outer(x, w):\n        return scaled(x, w) + 1\n",
            "fast.py": FAST + "    def outer(x, w):\n        return Scaled.apply(x, w) + 1\n",
        }
    )
    model.declare("""
        group('outer', replace('m.outer', 'fast.outer')),
        group('inner', replace('m.scaled', 'fast.scaled_wrong'))
    """)
    model.run("""
        report = apply()
        import m, torch
        x, w = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
        m.outer(x, w)
        assert state(report, "outer") == state(report, "inner") == "applied"
        assert report.execution["inner"].members[0].calls.replacement == 0
        m.scaled(x, w)
        assert state(report, "outer") == "applied" and state(report, "inner") == "rolled_back"
    """)


def test_a_node_keeps_its_backward_when_the_group_is_rolled_back(model):
    """The original's backward would look in vain for what the replacement's forward has saved."""
    wrong = "    return x * x + (x > 10)"
    model.write({"fast.py": FAST.replace("    return x * x", wrong, 1)})
    model.declare("""
        group('g', *(replace(f'm.Square.{n}', f'fast.square_{n}') for n in ('forward', 'backward')))
    """)
    model.run("""
        report = apply()
        import m, torch
        x, y = torch.full((2,), 3.0, requires_grad=True), torch.full((2,), 11.0, requires_grad=True)
        first = m.Square.apply(x)
        assert state(report) == "applied"
        second = m.Square.apply(y)
        assert state(report) == "rolled_back" and second.tolist() == [121, 121]
        (first + second).sum().backward()
        assert x.grad.tolist() == [6, 6] and y.grad.tolist() == [22, 22]
    """)
