"""`compiled` makes graphs of a model's functions, or leaves them alone and says why."""

from textwrap import dedent

import pytest

from turbo_physai.report.journal import read

pytest.importorskip("torch")
pytestmark = pytest.mark.slow  # each starts torch and its compiler

MODEL = {
    "model.py": """
        import torch

        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(4, 4)
                self.dropout = torch.nn.Dropout(0.5)

            def forward(self, x, aloud=False):
                x = self.linear(x)
                if aloud:
                    print("heard")
                return self.dropout(x)
        """,
}
GROUP = """
    group('g', wrap('model.Layer.forward', 'turbo_physai.optimizations.compiled:compiled'),
          options=Options)
"""
OPTIONS = "from turbo_physai.optimizations.options import CompileOptions as Options"


@pytest.fixture
def compiling(project):
    """Runs a script after the model is imported and returns it with what the journal says of the
    Group."""

    def run(script, options="backend: aot_eager", before=""):
        project.write(MODEL).declare(GROUP, options=OPTIONS, g=f"options: {{{options}}}")
        start = "report = apply()\nimport torch\n"
        ready = "\nfrom model import Layer\nx = torch.randn(2, 4)\n"
        done = project.script(start + dedent(before) + ready + dedent(script))
        (file,) = (project.path / "reports").glob("report-*.json")
        return done, read(file)["execution"]["g"]

    return run


def metrics(group):
    return group["members"][0]["metrics"]


ONE = {"graphs": 1, "graph_breaks": 0, "recompiles": 0}


def test_nothing_is_compiled_before_the_first_call(compiling):
    _, group = compiling("Layer()")
    assert (group["state"], metrics(group)) == ("applied", {})


def test_layers_that_are_alike_share_a_graph(compiling):
    _, group = compiling("""
    for layer in [Layer(), Layer(), Layer()]:
        for _ in range(3):
            layer(x).sum().backward()
        assert layer.linear.weight.grad.abs().sum() > 0
    """)
    assert metrics(group) == {"train": ONE}


def test_training_and_evaluation_are_compiled_apart_and_only_once(compiling):
    _, group = compiling("""
    layer = Layer()
    for _ in range(3):
        layer.train()(x)
        layer.eval()(x)
        with torch.no_grad():
            layer(x)
    assert torch.equal(layer(x), layer.linear(x))
    """)
    assert metrics(group) == {"train": ONE, "eval": ONE, "eval without gradients": ONE}


def test_a_shape_that_changes_is_a_recompile(compiling):
    _, group = compiling("""
    layer = Layer()
    layer(x)
    layer(torch.randn(3, 4))
    """)
    assert metrics(group)["train"] == {"graphs": 2, "graph_breaks": 0, "recompiles": 1}


def test_a_graph_break_is_counted_and_explained(compiling):
    done, group = compiling("Layer()(x, aloud=True); print(report)")
    told = metrics(group)["train"]
    assert (told["graphs"], told["graph_breaks"], told["recompiles"]) == (2, 1, 0)
    assert "print" in told["reasons"][0] or "builtin" in told["reasons"][0]
    assert "heard" in done.stdout
    assert "- train: graphs 2, graph_breaks 1, recompiles 0" in done.stdout


def test_what_cannot_be_compiled_runs_as_it_was_and_the_report_says_so(compiling):
    done, group = compiling(
        """
        for _ in range(2):
            assert Layer()(x, aloud=True).shape == (2, 4)
        """,
        "backend: aot_eager, fullgraph: true",
    )
    assert done.stdout.count("heard") == 2
    assert metrics(group)["fallback"].startswith("Unsupported: ")
    (warning,) = group["warnings"]
    assert warning.startswith("model.Layer.forward could not be compiled and runs as it was: ")
    assert warning in done.stderr


def test_a_backend_that_fails_is_not_asked_again(compiling):
    done, group = compiling(
        """
        for _ in range(2):
            print(Layer()(x).shape)
        """,
        "backend: broken",
        before="""
        def broken(graph, inputs, **options):
            print("asked")
            raise ValueError("no such instruction")
        torch._dynamo.register_backend(broken, name="broken")
        """,
    )
    assert done.stdout == "asked\n" + 2 * "torch.Size([2, 4])\n"
    assert "no such instruction" in metrics(group)["fallback"]


def test_what_the_model_raises_is_the_models(compiling):
    _, group = compiling("""
    layer = Layer()
    for _ in range(2):
        try:
            layer(torch.randn(2, 5))
        except RuntimeError as error:
            assert "mat1 and mat2" in str(error), error
        else:
            raise AssertionError
    """)
    assert "fallback" not in metrics(group)


def test_what_torch_refuses_ends_the_group_and_not_the_model(compiling):
    done, group = compiling("print(Layer()(x).shape)", "backend: nowhere")
    assert group["state"] == "rolled_back"
    assert "nowhere" in group["reason"]
    assert done.stdout == "torch.Size([2, 4])\n"


def test_inside_a_larger_graph_it_is_a_part_of_that(compiling):
    _, group = compiling("""
    layers = torch.nn.Sequential(Layer(), Layer())
    torch.compile(layers, backend="aot_eager", fullgraph=True)(x)
    """)
    assert metrics(group) == {}
