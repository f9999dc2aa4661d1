"""Damaged YAML is a fault with its file and line, at once, whatever the damage."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from turbo_physai.config import OptimizationConfigCatalog, load
from turbo_physai.config.runtime import load_runtime
from turbo_physai.errors import OptimizationConfigError, TurboPhysAIError

ROOT = Path(__file__).parents[2]
HEAD = """\
schema_version: turbophysai/optimization-config/v1
kind: OptimizationConfig
metadata: {id: test, version: "1"}
"""


@pytest.fixture
def read(tmp_path):
    """Reads a config with `text` as the options of its only Group."""

    def read(text):
        file = tmp_path / "optimization.yaml"
        file.write_text(f"{HEAD}optimization_groups:\n  - id: g\n    options: {text}\n")
        return load(file).groups[0].options

    return read


@pytest.fixture
def faults(read):
    def faults(text):
        with pytest.raises(OptimizationConfigError) as caught:
            read(text)
        assert all("\n" not in str(fault) for fault in caught.value.faults)
        return [(f.line, f.key, f.found, f.accepted) for f in caught.value.faults]

    return faults


# Tags.


@pytest.mark.parametrize(
    "value",
    [
        *("!!bool x", "!!bool ''", "!!int ''", "!!int x", "!!int 0x", "!!int '-'", "!!int 1:x"),
        *("!!float x", "!!float ''", "!!timestamp x", "!!timestamp ''", "2001-99-99"),
        *("!!binary x", "!!binary é", "!!null [1]", "!!str [1]"),
        *("!!str {a: 1}", "!!int [1]", "!!bool {a: 1}", "!!map x", "!!seq x", "!!set {a}"),
        *("!!omap [a: 1]", "!own x", "!own [1]", "!!python/name:os.system x", "!!no:str x"),
        pytest.param("1:" * 50_000 + "1", id="sexagesimal"),
        pytest.param("9" * 10_000, id="digits"),
    ],
)
def test_a_tag_that_does_not_fit_is_a_fault_with_its_line(faults, value):
    ((line, key, found, _),) = faults(f"{{a: {value}}}")
    assert (line, key) == (6, "optimization_groups[0].options.a")
    assert len(found) < 300


@pytest.mark.parametrize(
    "value", ["!!bool x", "!!bool ''", "!!bool [x]", "!!str true", "!own true"]
)
def test_a_flag_of_a_config_is_true_or_false(tmp_path, value):
    file = tmp_path / "optimization.yaml"
    file.write_text(HEAD + f"optimization_groups: [{{id: g, enabled: {value}}}]\n")
    with pytest.raises(
        OptimizationConfigError, match=r"enabled: found .*; accepted: true or false"
    ):
        load(file)


@pytest.mark.parametrize("value", ["!!str [x]", "!!str {x: 1}", "!own x", "!!binary eA=="])
def test_a_text_of_a_config_is_a_text(tmp_path, value):
    file = tmp_path / "optimization.yaml"
    file.write_text(HEAD + f"extends: [{value}]\n")
    with pytest.raises(OptimizationConfigError, match=r"extends\[0\]: found .*; accepted: a text"):
        load(file)


def test_explicit_tags_that_fit_are_no_matter(read):
    text = "!!map {a: !!int 1, b: !!seq [!!str 1, !!float 1, !!bool yes, !!null '']}"
    assert read(text) == {"a": 1, "b": ["1", 1.0, True, None]}


# Aliases.


def test_aliases_and_merges_mean_what_they_mean_elsewhere(read):
    text = """
      base: &base {a: 1, b: {c: 2}}
      more: &more {b: 4, d: 5}
      same: *base
      own: {b: 3, <<: *base}
      list: {<<: [*base, *more], a: 0}
      nested: {<<: {<<: *more, e: 6}}"""
    found = read(text)
    assert found["same"] == found["base"]
    assert found["own"] == {"a": 1, "b": 3}
    assert found["list"] == {"a": 0, "b": {"c": 2}, "d": 5}
    assert found["nested"] == {"b": 4, "d": 5, "e": 6}


@pytest.mark.parametrize("value", ["1", "[1]", "[[]]", "x", "null", "!own {a: 1}"])
def test_only_mappings_are_merged(faults, value):
    ((line, key, _, accepted),) = faults(f"{{<<: {value}}}")
    assert (line, key) == (6, "optimization_groups[0].options.<<")
    assert accepted == "another mapping, or a list of such"


@pytest.mark.parametrize("text", ["&a {<<: *a}", "&a {b: {<<: *a}}", "&a {b: *a}", "&a {b: [*a]}"])
def test_a_value_that_contains_itself_is_a_fault(faults, text):
    assert faults(text)


def bomb(form, width=10, height=30):
    """A short text whose aliases stand for `width ** height` values."""
    lines = ["  l0: &l0 [x]" if form == "sequence" else "  l0: &l0 {x: 1}"]
    for i in range(1, height):
        aliases = [f"*l{i - 1}"] * width
        value = {
            "sequence": f"[{', '.join(aliases)}]",
            "mapping": "{" + ", ".join(f"k{n}: {alias}" for n, alias in enumerate(aliases)) + "}",
            "merge": f"{{<<: [{', '.join(aliases)}]}}",
        }[form]
        lines.append(f"  l{i}: &l{i} {value}")
    return "\n" + "\n".join(f"    {line}" for line in lines)


@pytest.mark.parametrize("form", ["sequence", "mapping", "merge"])
def test_aliases_that_expand_without_bound_are_refused(faults, form):
    ((line, _, found, _),) = faults(bomb(form))
    assert line is None
    assert found == "aliases that stand for more than 100,000 values"


# Sizes.


@pytest.mark.parametrize(
    "text",
    [
        "[" * 60 + "]" * 60,
        "{a: " * 60 + "1" + "}" * 60,
        "[" * 900 + "]" * 900,
        pytest.param("[" * 100_000, id="100,000 brackets"),
        pytest.param("\n      " + "- " * 100_000 + "a", id="100,000 dashes"),
        pytest.param("{? " * 100_000, id="100,000 keys"),
    ],
)
def test_values_in_values_without_end_are_a_fault(faults, text):
    assert len(faults(text if text.startswith(("\n", "{")) else f"{{a: {text}}}")) == 1


def test_a_huge_file_is_not_read(tmp_path):
    file = tmp_path / "optimization.yaml"
    file.write_text(HEAD + "# comment\n" * 200_000)
    with pytest.raises(OptimizationConfigError, match="at most 1,000,000 bytes"):
        load(file)


def test_faults_without_end_are_cut_short_and_counted(faults):
    found = faults("{a: [" + ", ".join(["!!int x"] * 1000) + "]}")
    assert len(found) == 51
    assert found[-1][2] == "950 more faults"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        b"a: \0",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        "a: \ud800".encode("utf-8", "surrogatepass"),
        b'a: "\\ud800"',
        b"%YAML 9.9\n---\na",
        b"---\na\n---\nb\n",
        b"a: *b",
        b"&a &b c",
        b"\t- a",
        b'"a\\nb": 1',
        b"? [a, b]\n: c",
        b"a: !<> b",
        b"a: !<tag:yaml.org,2002:int> b",
        b"\xef\xbb\xbf",
        b"<<: {a: 1}",
    ],
)
@pytest.mark.parametrize("load", [load, load_runtime])
def test_what_is_no_config_is_said_to_be_none(tmp_path, content, load):
    file = tmp_path / "config.yaml"
    file.write_bytes(content)
    with pytest.raises(OptimizationConfigError) as caught:
        load(file)
    assert caught.value.faults
    assert all(fault.where == str(file) for fault in caught.value.faults)
    assert all("\n" not in str(fault) for fault in caught.value.faults)


def test_a_mark_of_byte_order_is_no_matter(tmp_path):
    file = tmp_path / "optimization.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + HEAD.encode())
    assert load(file).id == "test"


# Real configs, damaged. `--hypothesis-profile=long` tries thousands.

CONFIGS = [
    file.read_bytes()
    for folder in ("model_configs", "examples/bevformer")
    for file in sorted((ROOT / folder).rglob("*.yaml"))
]
PIECES = [
    *(b"!!bool ", b"!!int ", b"!!float ", b"!!timestamp ", b"!!binary ", b"!!null ", b"!!str "),
    *(b"!!set ", b"!!omap ", b"!!map ", b"!!seq ", b"!own ", b"!", b"!<x> ", b"!!python/none "),
    *(b"&a ", b"*a", b"*a ", b"&b [*a, *a]", b"<<: *a\n", b"<<: ", b"<<: [*a, *b]\n", b"{", b"}"),
    *(
        b"[",
        b"]",
        b": ",
        b"- ",
        b"? ",
        b"| \n",
        b"> \n",
        b"'",
        b'"',
        b"#",
        b"%YAML 1.1\n",
        b"---\n",
    ),
    *(b"...\n", b"\0", b"\t", b"\r", b"\x85", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\xff", b"\\"),
    *(b"\\ud800", b"null", b"~", b"1e999", b".nan", b"0o7", b"0x", b"1:2:3", b"2001-01-01 "),
    *(b"[" * 50, b"- " * 50, b"9" * 5000, b"x" * 5000, "é²\u202e\U0001f600".encode()),
]


@st.composite
def damaged(draw):
    """A real config with a few bytes flipped, cut out, moved, or put in."""
    content = bytearray(draw(st.sampled_from(CONFIGS)))
    for _ in range(draw(st.integers(1, 6))):
        at, end = sorted(draw(st.tuples(*[st.integers(0, len(content))] * 2)))
        kind = draw(st.sampled_from(["flip", "piece", "piece", "cut", "truncate", "copy", "noise"]))
        if kind == "flip" and at < len(content):
            content[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "piece":
            content[at:at] = draw(st.sampled_from(PIECES))
        elif kind == "cut":
            del content[at : min(end, at + 200)]
        elif kind == "truncate":
            del content[max(at, 1) :]
        elif kind == "copy":
            content[at:at] = content[at : min(end, at + 2000)]
        elif kind == "noise":
            content[at:at] = draw(st.binary(max_size=20))
    return bytes(content)


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(damaged())
@example(bomb("merge").encode())
def test_no_damage_is_more_than_a_fault(tmp_path, content):
    """Reads, resolves, and prepares each with the packaged Groups, within a second."""
    from turbo_physai.plan import collect, prepare

    file = tmp_path / f"damaged-{os.getpid()}.yaml"
    file.write_bytes(content)
    began = time.perf_counter()
    for read in (load_runtime, load):
        config = None
        try:
            config = read(file)
        except OptimizationConfigError as error:
            found = error.faults
            assert found and all("\n" not in str(fault) for fault in found)  # noqa: PT018
    if config is not None:
        try:
            resolved = OptimizationConfigCatalog.packaged().resolve(config)
            prepare(resolved, collect(resolved, None))
        except TurboPhysAIError:
            pass
    assert time.perf_counter() - began < 60  # a hang, not a slow machine
