"""Options are checked where a config meets the declared Groups; all get the same object."""

import json
from textwrap import dedent

import pytest

from turbo_physai import OptimizationConfigCatalog, OptimizationConfigError, Registry, check
from turbo_physai.declarations import group, option, replace

HEAD = """\
schema_version: turbophysai/optimization-config/v1
kind: OptimizationConfig
metadata: {id: %s, version: "1"}
"""


def registry():
    import attrs

    @attrs.frozen
    class Options:
        factor: float = option(2.0, help="by how much")
        sizes: tuple[int, ...] = (1, 2)

    return Registry(
        [
            group("g", replace("no_model.f", "fast.f"), options=Options),
            group("h", replace("no_model.g", "fast.f")),
        ]
    )


@pytest.fixture
def checked(tmp_path):
    """The PreparedExecution of a config; `base`, if given, is what it may extend."""

    def checked(text, base=""):
        file, parent = tmp_path / "own.yaml", tmp_path / "base.yaml"
        file.write_text(HEAD % "own" + dedent(text))
        parent.write_text(HEAD % "base" + dedent(base))
        catalog = OptimizationConfigCatalog([parent])
        return check(optimization_config_path=file, registry=registry(), catalog=catalog)

    return checked


@pytest.fixture
def faults(checked):
    def faults(text, base=""):
        with pytest.raises(OptimizationConfigError) as caught:
            checked(text, base)
        return [
            (each.where.rpartition("/")[2], each.line, each.key, each.found, each.accepted)
            for each in caught.value.faults
        ]

    return faults


LISTED = "factor: float, sizes: list[int]"


def test_every_wrong_option_is_named_with_its_own_line(faults):
    text = """\
    optimization_groups:
      - id: h
        enabled: false
        options: {x: 1}
      - id: g
        options:
          facter: 3.0
          sizes:
            - 1
            - two
      - {id: i}
    """
    assert faults(text) == [
        ("own.yaml", 7, "optimization_groups[0].options.x", "an unknown option", "no options"),
        (
            *("own.yaml", 10, "optimization_groups[1].options.facter", "an unknown option"),
            f"{LISTED}; did you mean 'factor'?",
        ),
        ("own.yaml", 11, "optimization_groups[1].options.sizes[1]", '"two" (str)', "int"),
        ("own.yaml", 14, "optimization_groups[2].id", "'i'", "a declared Group: g, h"),
    ]


def test_an_inherited_option_is_named_where_it_is_stated(faults):
    base = """\
    optimization_groups:
      - id: h
      - id: g
        options: {factor: much}
    """
    own = "extends: [base]\noptimization_groups:\n  - {id: g, enabled: false}\n"
    assert faults(own, base) == [
        (
            *("base.yaml", 7, "optimization_groups[1].options.factor"),
            *('"much" (str)', "float"),
        )
    ]


def test_options_of_ones_own_take_the_place_of_inherited_ones(faults, checked):
    base = "optimization_groups:\n  - {id: h}\n  - {id: g, options: {wrong: 1, factor: 1}}\n"
    own = "extends: [base]\noptimization_groups:\n  - id: g\n    options: {sizes: [%s]}\n"
    assert faults(own % "x", base) == [
        ("own.yaml", 7, "optimization_groups[0].options.sizes[0]", '"x" (str)', "int")
    ]
    options = checked(own % "3", base).groups["g"].options
    assert (options.factor, options.sizes) == (2.0, (3,))


def test_a_hash_of_an_inherited_trust_is_named_where_it_is_stated(faults):
    base = """\
    optimization_groups:
      - id: g
        trust:
          ast_hashes: {no_model.x: ["ast-v1:0"]}
    """
    own = "extends: [base]\noptimization_groups:\n  - {id: g, options: {factor: 1}}\n"
    ((file, line, key, found, _),) = faults(own, base)
    assert (file, line, found) == ("base.yaml", 7, "'no_model.x'")
    assert key == "optimization_groups[0].trust.ast_hashes"


def test_the_report_has_the_resolved_values_as_plain_data(checked):
    prepared = checked("optimization_groups:\n  - {id: g, options: {factor: 3}}\n  - {id: h}\n")
    groups = json.loads(json.dumps(prepared.to_dict()))["groups"]
    assert groups["g"]["options"] == {"factor": 3.0, "sizes": [1, 2]}
    assert groups["h"]["options"] == {}


@pytest.fixture
def misspelt(project):
    project.write(
        {
            "model.py": "def f(): return 'old'\n",
            "fast.py": "def make(original, options): return lambda: options.factor\n",
            "main.py": "import model\nprint(model.f())\n",
        }
    )
    return project.declare(
        "group('g', wrap('model.f', 'fast.make'), options=Options)",
        options="factor: float = 2.0",
        g="options: {facter: 3.0}",
    )


MISSPELT = (
    "optimization.yaml:7: optimization_groups[0].options.facter: found an unknown option; "
    "accepted: factor: float; did you mean 'factor'?"
)


def test_a_misspelt_option_ends_every_way_in_before_the_program_starts(misspelt):
    config = ["--optimization-config", "optimization.yaml"]
    for done in (
        misspelt.python("-m", "turbo_physai.run", *config, "main.py", code=2),
        misspelt.python("-m", "turbo_physai.cli", "run", *config, "--", "echo", "x", code=2),
    ):
        assert MISSPELT in done.stderr
        assert done.stdout == ""
    misspelt.run(f"""
        for call in check, apply:
            try:
                call()
            except OptimizationConfigError as error:
                assert {MISSPELT!r} in str(error), error
            else:
                raise AssertionError
        import model
        assert model.f() == "old"
    """)


def test_factories_get_an_instance(misspelt):
    config = misspelt.path / "optimization.yaml"
    config.write_text(config.read_text().replace("facter", "factor"))
    done = misspelt.python(
        "-m", "turbo_physai.run", "--optimization-config", config.name, "main.py"
    )
    assert done.stdout == "3.0\n"
