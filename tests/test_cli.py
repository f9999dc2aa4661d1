"""`turbo-physai optimization` makes configs from recipes, and shows the options of Groups."""

import pytest

CLI = ("-m", "turbo_physai.cli", "optimization")


@pytest.fixture
def recipe(project):
    """A recipe, its catalog beside it, and the model's code in another folder."""
    project.write({"checkout/model.py": "def f(): ...\n"}).declare(
        """
        group('g', replace('model.f', 'fast.f'), options=Options),
        group('h', inject('m', 'n', 'o.p'))
        """,
        options="""
        factor: float = option(2.0, help="by how much")
        mode: Literal['a', 'b'] | None = None
        """,
        g="enabled: false\noptions: {mode: b}",
    )
    folder = project.path / "recipes"
    folder.mkdir()
    (project.path / "optimization.yaml").rename(folder / "recipe.yaml")
    (project.path / "declared.py").rename(folder / "declared.py")
    return project


TABLE = """\
g (not enabled)
  option  type              default  value  help
  factor  float             2.0      2.0    by how much
  mode    "a" | "b" | null  null     "b"

without options: h
"""


def test_the_options_of_a_config_are_shown(recipe):
    show = (*CLI, "options", "--optimization-config", "recipes/recipe.yaml")
    assert recipe.python(*show).stdout == TABLE
    file = recipe.path / "recipes/recipe.yaml"
    file.write_text(file.read_text().replace("mode: b", "mode: c"))
    error = recipe.python(*show, code=2).stderr
    assert '[0].options.mode: found "c" (str); accepted: "a" | "b" | null' in error


def test_showing_options_imports_no_torch(project):
    pytest.importorskip("turbo_physai.model_configs")
    show = """
        import sys
        from turbo_physai.cli import app
        try:
            app(["optimization", "options", "--model", "bevformer"])
        except SystemExit as exit_:
            assert not exit_.code
        assert not {"torch", "triton", "mmcv"} & sys.modules.keys()
    """
    shown = project.run(show)
    assert 'visibility  "first_item" | "per_item"' in shown
    assert "bevformer.compile.encoder (not enabled)\n" in shown
