"""`turbo-physai optimization` makes configs from recipes, shows them, compares and checks them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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


MODEL = """\
def f(x, scale=2):
    # what it is worth
    if x > 0:
        y = x * scale
        return y
    return 0


def g(x):
    return x
"""


@pytest.fixture
def trusted(project):
    """A config that trusts the code in `checkout`, with that code kept beside it."""
    fast = "def f(x, scale=2): return x * scale\n\ndef g(x): return x\n"
    project.write({"checkout/model.py": MODEL, "fast.py": fast})
    project.declare(
        "group('f', replace('model.f', 'fast.f')), group('g', replace('model.g', 'fast.g'))"
    )
    (project.path / "optimization.yaml").rename(project.path / "recipe.yaml")
    made = ("--output", "made.yaml", "--keep-source")
    project.python(*CLI, "generate", "recipe.yaml", "--checkout", "checkout", *made)
    return project


APPLIED = "Group  decision  reason\nf      apply\ng      apply\n"
CHECK = (*CLI, "check", "--optimization-config", "made.yaml", "--checkout", "checkout")


def test_a_check_says_what_would_become_of_each_group(trusted):
    done = trusted.python(*CHECK)
    assert done.stdout == APPLIED
    told = json.loads(trusted.python(*CHECK, "--json").stdout)
    assert told["order"] == ["f", "g"]
    assert told["changes"] == {}


def change(project, before, after):
    file = project.path / "checkout/model.py"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))


def test_a_line_that_changed_blocks_its_group_alone_and_is_named(trusted):
    change(trusted, "y = x * scale", "y = x + scale")
    shown = trusted.python(*CHECK, code=1).stdout
    assert "line 4 is 'y = x + scale', not 'y = x * scale'" in " ".join(shown.split())
    assert "\ng      apply\n" in shown
    diff = "-        y = x * scale\n+        y = x + scale\n"
    assert diff in shown
    assert diff in json.loads(trusted.python(*CHECK, "--json", code=1).stdout)["changes"]["model.f"]
    forced = trusted.python(*CHECK, "--force-group", "f").stdout
    assert "\nf      apply (forced)\n" in forced

    trusted.write({"main.py": "import model; print(model.f(1), model.g(1))\n"})
    run = ("-m", "turbo_physai.run", "--optimization-config", "made.yaml", "main.py")
    path = f"{trusted.path}/checkout:{trusted.path}:{ROOT}"
    done = trusted.python(*run, PYTHONPATH=path)
    assert done.stdout == "3 1\n"
    assert "line 4 is 'y = x + scale', not 'y = x * scale'" in done.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# what it is worth", "# what it costs"),
        ("    if x > 0:\n", "\n\n    if (x > 0):\n"),
        ("def g(x):", "def h(x):\n    return 1\n\n\ndef g(x):"),
    ],
)
def test_formatting_comments_and_other_code_change_nothing(trusted, before, after):
    change(trusted, before, after)
    assert trusted.python(*CHECK).stdout == APPLIED


def test_without_the_kept_source_hashes_decide_alone(trusted):
    (trusted.path / "made.source.json").unlink()
    change(trusted, "y = x * scale", "y = x + scale")
    shown = trusted.python(*CHECK, code=1).stdout
    assert "is not what was validated: expected source-v1:" in " ".join(shown.split())
    assert "y = x" not in shown


def test_a_kept_source_that_is_not_what_the_hashes_stand_for_is_not_shown(trusted):
    kept = trusted.path / "made.source.json"
    kept.write_text(kept.read_text().replace("x * scale", "x - scale"))
    change(trusted, "y = x * scale", "y = x + scale")
    assert "x - scale" not in trusted.python(*CHECK, code=1).stdout


def test_two_checkouts_are_compared_by_the_targets_of_a_config(trusted):
    shutil.copytree(trusted.path / "checkout", trusted.path / "other")
    both = (*CLI, "diff", "checkout", "other", "--optimization-config", "made.yaml")
    assert trusted.python(*both).stdout == ""
    change(trusted, "def g(x):\n    return x", "def g(x):\n    return -x")
    shown = trusted.python(*both, code=1).stdout
    assert shown.startswith("model.g\n--- validated\n")
    assert "-    return -x\n+    return x\n" in shown
    change(trusted, "def g", "def gone")
    assert "checkout: the module has no 'g'" in trusted.python(*both, code=1).stdout


def test_two_configs_are_compared_by_what_they_state(recipe):
    other = recipe.path / "recipes/other.yaml"
    text = (recipe.path / "recipes/recipe.yaml").read_text()
    other.write_text(
        text.replace("mode: b", "mode: a").replace("id: h", "id: h\n    optional: true")
    )
    both = (*CLI, "diff", "recipes/recipe.yaml", "recipes/other.yaml")
    rows = [line.split() for line in recipe.python(*both, code=1).stdout.splitlines()]
    assert rows == [
        ["key", "old", "new"],
        ["optimization_groups[g].options.mode", "b", "a"],
        ["optimization_groups[h].optional", "True"],
    ]
    assert recipe.python(*both[:-1], "recipes/recipe.yaml").stdout == ""


def test_everything_that_is_wrong_in_configs_is_said_at_once(recipe):
    folder = recipe.path / "recipes"
    text = (folder / "recipe.yaml").read_text()
    (folder / "wrong.yaml").write_text(text.replace("mode: b", "mod: b").replace("id: h", "id: i"))
    files = ("recipes/recipe.yaml", "recipes/wrong.yaml", "recipes/absent.yaml")
    done = recipe.python(*CLI, "validate", *files, code=2)
    assert done.stdout == f"{folder}/recipe.yaml: valid, 2 Groups, 1 of them enabled\n"
    assert "options.mod: found an unknown option" in done.stderr
    assert "found 'i'; accepted: a declared Group" in done.stderr
    assert "CONFIG: found no file at" in done.stderr


def test_each_value_is_shown_with_the_place_that_states_it(recipe):
    show = (*CLI, "show", "--optimization-config", "recipes/recipe.yaml")
    told = {v["key"]: v for v in json.loads(recipe.python(*show, "--json").stdout)}
    mode = told["optimization_groups[g].options.mode"]
    file = recipe.path / "recipes/recipe.yaml"
    line = [i for i, text in enumerate(file.read_text().splitlines(), 1) if "mode: b" in text]
    assert mode == {**mode, "value": "b", "origin": f"{file}:{line[0]}"}
    assert told["optimization_groups[g].options.factor"]["origin"] == "default"
    shown = recipe.python(*show).stdout
    assert "  options.mode" in shown
    assert f"recipes/recipe.yaml:{line[0]}\n" in shown


def test_the_commit_of_a_clean_checkout_can_be_stated(recipe):
    stated = (*GENERATE, "--commit")
    assert "found no commit" in recipe.python(*stated, code=2).stderr
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
        subprocess.run(["git", "-C", str(recipe.path / "checkout"), *who, *command], check=True)
    made = recipe.python(*stated).stdout
    commit = subprocess.run(
        ["git", "-C", str(recipe.path / "checkout"), "rev-parse", "HEAD"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    assert f"commits:\n      - {commit}" in made or f"- {commit}" in made
    (recipe.path / "checkout/model.py").write_text("def f(): return 1\n")
    assert "changed files" in recipe.python(*stated, code=2).stderr


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """What `init` writes, with a folder beside it."""
    folder = tmp_path_factory.mktemp("init")
    begun = cli(folder, "init", "swift-attention")
    assert begun.returncode == 0, begun.stderr
    return folder / "swift-attention"


def cli(folder, *arguments, path=""):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TURBO_", "PYTHON"))}
    environment |= {"PYTHONPATH": f"{path}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["TURBO_PHYSAI_REPORT_DIR"] = str(folder / "reports")
    command = [sys.executable, *(CLI if arguments[0] in ("init", "generate", "check") else ())]
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_what_is_begun_passes_its_own_tests(begun):
    pytest.importorskip("torch")
    done = cli(begun, "-m", "pytest", "-q", path=begun)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_nothing_is_overwritten(begun):
    before = {file: file.read_text() for file in begun.rglob("*.*") if file.is_file()}
    error = cli(begun.parent, "init", "swift-attention").stderr
    assert "found a folder with files in it; accepted: a folder that is new or empty" in error
    assert {file: file.read_text() for file in before} == before


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("9lives", "accepted: letters, digits, - and _, a letter first"),
        ("BEVFormer", "a model of turbo_physai's own"),
        ("json", "a package that can be imported already"),
    ],
)
def test_a_name_that_no_package_can_have_is_refused(tmp_path, name, found):
    done = cli(tmp_path, "init", name)
    assert done.returncode == 2
    assert found in done.stderr
    assert not any(tmp_path.iterdir())


# A model that the templates know nothing of.
OTHER_MODEL = """\
def score(boxes, weight=1.0):
    total = 0.0
    for box in boxes:
        total += box * weight
    return total
"""
OTHER_CATALOG = """\
from turbo_physai import group, replace
GROUPS = (
    group("swift_attention.score", replace("zoo.head.score", "swift_attention.replacements.score")),
)
"""
OTHER_REPLACEMENT = "def score(boxes, weight=1.0):\n    return weight * sum(boxes)\n"


@pytest.mark.slow
def test_it_is_edited_generated_checked_installed_elsewhere_and_run_by_its_name(begun, tmp_path):
    pytest.importorskip("setuptools", "77")
    package, model = begun / "swift_attention", tmp_path / "model"
    (model / "zoo").mkdir(parents=True)
    (model / "zoo/__init__.py").touch()
    (model / "zoo/head.py").write_text(OTHER_MODEL)
    (model / "train.py").write_text("from zoo.head import score\nprint(score([1.0, 2.0]))\n")
    (package / "catalog.py").write_text(OTHER_CATALOG)
    (package / "replacements.py").write_text(OTHER_REPLACEMENT)
    recipe = package / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace(".rms_norm", ".score"))
    files = ("swift_attention/recipe.yaml", "--output", "swift_attention/optimization.yaml")
    trust = ("--checkout", str(model), "--keep-source", "--force")
    done = cli(begun, "generate", *files, *trust, path=begun)
    assert done.returncode == 0, done.stderr
    check = ("check", "--optimization-config", files[2], "--checkout", str(model))
    assert "swift_attention.score  apply" in cli(begun, *check, path=begun).stdout

    elsewhere = tmp_path / "elsewhere"
    pip = ("-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation")
    done = cli(begun, *pip, "--target", str(elsewhere), ".")
    assert done.returncode == 0, done.stderr
    run = ("-m", "turbo_physai.run", "--strict", "--model", "Swift-Attention", "train.py")
    done = cli(model, *run, path=elsewhere)
    assert (done.returncode, done.stdout) == (0, "3.0\n"), done.stderr

    head = model / "zoo/head.py"
    head.write_text(OTHER_MODEL.replace("total += box", "# soon\n        total  +=  box"))
    assert cli(model, *run, path=elsewhere).returncode == 0
    head.write_text(OTHER_MODEL.replace("total += box", "total -= box"))
    done = cli(model, *run, path=elsewhere)
    assert done.returncode == 3
    assert "line 4 is 'total -= box * weight', not 'total += box * weight'" in done.stderr
