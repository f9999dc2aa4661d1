"""A wrong config is told apart in one go: file, line, key, what was found and what is accepted."""

import textwrap

import pytest

from turbo_physai import OptimizationConfigError
from turbo_physai.config import load

HEAD = """\
schema_version: turbophysai/optimization-config/v1
kind: OptimizationConfig
metadata: {id: test, version: "1"}
"""


@pytest.fixture
def read(tmp_path):
    def read(text):
        file = tmp_path / "optimization.yaml"
        file.write_text(textwrap.dedent(text))
        return load(file)

    return read


@pytest.fixture
def faults(read):
    def faults(text):
        with pytest.raises(OptimizationConfigError) as caught:
            read(text)
        return [(f.line, f.key, f.found, f.accepted) for f in caught.value.faults]

    return faults


def test_a_whole_config_is_read(read):
    config = read(
        HEAD
        + textwrap.dedent("""\
        model: {name: BEVFormer}
        extends: [common.base]
        optimization_modules: [pkg.catalog]
        compatibility:
          commits: ["0123"]
          allow_dirty: true
          dependencies: {mmcv-full: ">=1.4,<2"}
          backend: [cuda, cpu]
          repository: [owner/name]
        optimization_groups:
          - id: g.one
            enabled: false
            options: {block: 32, names: [a, b], nested: {flag: on, of: null}}
            trust:
              source_hashes: {pkg.mod.f: ["source-v1:00"]}
        """)
    )
    assert config.model_name == "BEVFormer"
    assert config.compatibility.dependencies == {"mmcv-full": ">=1.4,<2"}
    (entry,) = config.groups
    assert not entry.is_enabled
    assert entry.options == {"block": 32, "names": ["a", "b"], "nested": {"flag": True, "of": None}}
    assert entry.trust.source_hashes == {"pkg.mod.f": ("source-v1:00",)}


def test_every_fault_of_a_file_is_told_at_once(faults):
    found = faults("""\
        schema_version: turbophysai/optimization-config/v2
        kind: OptimizationConfig
        metadata: {id: test, version: 1.0}
        optimisation_groups: []
        optimization_groups:
          - id: g
            enabled: sometimes
          - {enabled: true}
    """)
    assert [(line, key) for line, key, *_ in found] == [
        (1, "schema_version"),
        (3, "metadata.version"),
        (4, "optimisation_groups"),
        (7, "optimization_groups[0].enabled"),
        (8, "optimization_groups[1].id"),
    ]
    assert found[0][3] == "turbophysai/optimization-config/v1"
    assert found[1][2:] == ("'1.0' (number)", 'a text, in quotes: "1.0"')
    assert found[3][2:] == ("'sometimes' (text)", "true or false")


def test_an_unknown_key_names_the_known_ones(faults):
    ((line, key, found, accepted),) = faults(
        HEAD + "optimization_groups:\n  - {id: g, option: {}}\n"
    )
    assert (line, key, found) == (5, "optimization_groups[0].option", "an unknown key")
    assert "id, enabled, optional, options, trust" in accepted


def test_a_repeated_key_is_an_error_at_any_depth(faults):
    ((line, key, found, _),) = faults(HEAD + "extends: []\nextends: []\n")
    assert (line, key, found) == (5, "extends", "a second one, the first in line 4")
    options = "optimization_groups:\n  - id: g\n    options: {a: {b: 1, b: 2}}\n"
    ((_, key, *_),) = faults(HEAD + options)
    assert key == "optimization_groups[0].options.a.b"


def test_a_group_is_listed_once(faults):
    ((line, _, found, _),) = faults(HEAD + "optimization_groups:\n  - id: g\n  - id: g\n")
    assert (line, found) == (6, "'g' again, the first in line 5")
    ((line, key, *_),) = faults(HEAD + "optimization_groups: [{id: g}, {id: g}]\n")
    assert (line, key) == (4, "optimization_groups[1].id")


@pytest.mark.parametrize(
    ("text", "key", "accepted"),
    [
        ("extends: common", "extends", "a list"),
        ("model: BEVFormer", "model", "a mapping with the keys name"),
        ("compatibility: {backend: [tpu]}", "compatibility.backend[0]", "cpu or cuda"),
        ("compatibility: {dependencies: {a: 1}}", "compatibility.dependencies.a", 'in quotes: "1"'),
        (
            "optimization_groups: [{id: g, options: 3}]",
            "optimization_groups[0].options",
            "a mapping",
        ),
        (
            "optimization_groups: [{id: g, trust: {ast_hashes: {t: ['md5:0']}}}]",
            "optimization_groups[0].trust.ast_hashes.t[0]",
            "a hash such as ast-v1:0123…",
        ),
        ("? [a]\n: b", "a list", "a text as the key"),
        (
            "optimization_groups: [{id: g, options: &o {a: *o}}]",
            "optimization_groups[0].options.a",
            "a value that does not contain itself",
        ),
    ],
)
def test_a_wrong_type_says_what_is_accepted(faults, text, key, accepted):
    found = faults(HEAD + text + "\n")
    assert found[0][1] == key
    assert accepted in found[0][3]


def test_what_is_no_yaml_mapping_is_one_fault(faults):
    assert faults("")[0][2] == "an empty file"
    assert faults("- a\n- b\n")[0][2] == "a list"
    ((line, _, _, accepted),) = faults("a: [\n")
    assert (line, accepted) == (2, "valid YAML")


def test_the_message_reads_as_file_line_key(read, tmp_path):
    with pytest.raises(OptimizationConfigError) as caught:
        read(HEAD + "extend: []\n")
    assert str(caught.value).startswith(
        f"{tmp_path}/optimization.yaml:4: extend: found an unknown key"
    )
