"""`turbo-physai optimization` makes configs from recipes, and shows the options of Groups."""

import pytest

CLI = ("-m", "turbo_physai.cli", "optimization")
GENERATE = (*CLI, "generate", "recipes/recipe.yaml", "--checkout", "checkout")


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


def test_a_catalog_may_lie_beside_the_recipe_or_in_the_working_directory(recipe):
    made = recipe.python(*GENERATE).stdout
    assert "source-v1:" in made
    (recipe.path / "recipes/declared.py").rename(recipe.path / "declared.py")
    assert recipe.python(*GENERATE).stdout == made


def test_a_catalog_that_is_not_found_is_said_with_the_folders(recipe):
    (recipe.path / "recipes/declared.py").rename(recipe.path / "checkout/hidden.py")
    error = recipe.python(*GENERATE, code=2).stderr
    assert "optimization_modules[0]: found 'declared', which fails: ModuleNotFoundError" in error
    assert f"looked in {recipe.path}/checkout, {recipe.path}/recipes, {recipe.path}, " in error


def test_the_same_files_make_the_same_config(recipe):
    first = recipe.python(*GENERATE, PYTHONHASHSEED="1").stdout
    other = ["generate", str(recipe.path / "recipes/recipe.yaml"), "--checkout"]
    again = recipe.python(*CLI, *other, str(recipe.path / "checkout"), PYTHONHASHSEED="2").stdout
    assert first == again


def test_an_existing_file_is_replaced_only_when_forced(recipe):
    output = recipe.path / "made.yaml"
    to_file = (*GENERATE, "--output", "made.yaml")
    recipe.python(*to_file)
    made = output.read_text()
    output.write_text("mine\n")
    error = recipe.python(*to_file, code=2).stderr
    expected = "found made.yaml, which exists; accepted: a new file, or --force to replace it"
    assert error == f"turbo_physai: --output: {expected}\n"
    assert output.read_text() == "mine\n"
    recipe.python(*to_file, "--force")
    assert output.read_text() == made


def test_the_recipe_is_never_overwritten(recipe):
    file = recipe.path / "recipes/recipe.yaml"
    before = file.read_text()
    done = recipe.python(*GENERATE, "--output", "recipes/recipe.yaml", "--force", code=2)
    assert "the recipe itself" in done.stderr
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--output", "no/made.yaml"], "--output: found no/made.yaml: No such file or directory"),
        (["--checkout", "no"], "no: found nothing; accepted: the folder of the model's code"),
    ],
)
def test_a_wrong_argument_is_one_line(recipe, arguments, said):
    error = recipe.python(*GENERATE, *arguments, code=2).stderr
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("mode: b", "mod: b", "[0].options.mod: found an unknown option; accepted: factor: float"),
        (
            "id: h",
            "id: i",
            "optimization_groups[1].id: found 'i'; accepted: a declared Group: g, h",
        ),
    ],
)
def test_a_recipe_is_checked_as_a_config_is(recipe, before, after, said):
    file = recipe.path / "recipes/recipe.yaml"
    file.write_text(file.read_text().replace(before, after))
    assert said in recipe.python(*GENERATE, code=2).stderr


def test_a_recipe_may_list_groups_that_an_extended_config_declares(recipe):
    file = recipe.path / "recipes/recipe.yaml"
    entries = "extends: [common.base]\noptimization_groups:\n  - {id: mmcv.ext, enabled: false}\n"
    file.write_text(file.read_text().replace("optimization_groups:\n", entries))
    assert "id: mmcv.ext\n    enabled: false\n" in recipe.python(*GENERATE).stdout


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
