"""`turbo-physai models` and `doctor` tell what is there, before anything is started."""

import json

import pytest

CLI = ("-m", "turbo_physai")


@pytest.fixture
def swift(project):
    """A project whose folder holds a distribution with a config of its own."""
    project.write({"swift/bev/notes.py": ""})
    project.declare("group('g', replace('model.f', 'fast.f'))")
    (project.path / "optimization.yaml").rename(project.path / "swift/bev/optimization.yaml")
    return ship(project, "swift", "swift-bev = swift.bev")


def ship(project, distribution, entry_points):
    folder = project.path / f"{distribution}-2.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Name: {distribution}\nVersion: 2.0\n")
    (folder / "entry_points.txt").write_text(f"[turbo_physai.configs]\n{entry_points}\n")
    return project


def test_models_of_all_packages_are_listed(swift):
    pytest.importorskip("turbo_physai.model_configs")
    found = {
        each["name"]: each for each in json.loads(swift.python(*CLI, "models", "--json").stdout)
    }
    assert found["bevformer"]["model"] == "BEVFormer"
    assert len(found["bevformer"]["commits"][0]) == 40
    assert found["swift_bev"]["origin"] == "swift 2.0"
    assert found["swift_bev"]["groups"] == ["g"]
    shown = swift.python(*CLI, "models").stdout
    assert f"{swift.path}/swift/bev/optimization.yaml" in shown


@pytest.mark.parametrize(
    ("entry_point", "fault"),
    [
        ("swift-bev = other.x", "two 2.0 has that name, too"),
        ("bevformer = swift.bev", "has that name, too"),
        ("broken = swift.absent", "and no file"),
    ],
)
def test_a_name_that_cannot_be_used_is_said(swift, entry_point, fault):
    pytest.importorskip("turbo_physai.model_configs")
    ship(swift, "two", entry_point)
    assert fault in swift.python(*CLI, "models", code=1).stdout


def test_a_model_of_another_package_is_run_by_its_name(swift):
    swift.write({"model.py": "def f(): return 'old'\n", "fast.py": "def f(): return 'new'\n"})
    swift.write({"main.py": "import model; print(model.f())\n"})
    run = ("-m", "turbo_physai.run", "--strict", "--model", "Swift-BEV", "main.py")
    assert swift.python(*run).stdout == "new\n"
    named = swift.python(
        "-m", "turbo_physai.run", "main.py", TURBO_PHYSAI_OPTIMIZATION_CONFIG="swift_bev"
    )
    assert named.stdout == "new\n"


def test_the_doctor_shows_what_a_start_here_would_find(swift):
    swift.write({"model.py": "def f(): ...\n", "fast.py": "def f(): ...\n"})
    named = {"TURBO_PHYSAI_OPTIMIZATION_CONFIG": "swift_bev", "TURBO_PHYSAI_STRICT": "0"}
    told = json.loads(swift.python(*CLI, "doctor", "--json", code=None, **named).stdout)
    found = {each["subject"]: each["found"] for each in told["findings"]}
    assert {"python", "torch", "C++ compiler", "import hooks", "start-up file"} <= found.keys()
    config = f"{swift.path}/swift/bev/optimization.yaml"
    assert found["config"] == f"{config} (TURBO_PHYSAI_OPTIMIZATION_CONFIG=swift_bev)"
    assert found["TURBO_PHYSAI_STRICT"] == "0"
    assert told["groups"] == [{"id": "g", "decision": "apply", "reason": ""}]


def test_the_doctor_says_what_is_in_the_way(swift):
    wrong = {"TURBO_PHYSAI_OPTIMIZATION_CONFIG": "absent", "TURBO_PHYSAI_STRICT": "si"}
    shown = swift.python(*CLI, "doctor", code=1, **wrong).stdout
    assert "! model: found 'absent'; accepted: " in shown
    assert "! TURBO_PHYSAI_STRICT: found 'si'" in shown


def test_the_version_is_that_of_the_installed_distribution(project):
    from importlib.metadata import version

    assert project.python(*CLI, "--version").stdout == f"turbo_physai {version('turbo_physai')}\n"
