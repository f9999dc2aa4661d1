"""What is decided before anything is changed: who is applied, in which order, and who is not."""

from pathlib import Path

import pytest

from turbo_physai import OptimizationConfigError, Registry, group, inject, replace
from turbo_physai.config import Compatibility, GroupEntry, OptimizationConfig, Trust
from turbo_physai.plan import collect, prepare


def declare(id_, *depends_on, target=None):
    return group(id_, replace(target or f"model.{id_}", "fast.f"), depends_on=depends_on)


def config(*entries, **fields):
    entries = [
        e
        if isinstance(e, GroupEntry)
        else GroupEntry(e, places={"": ("o.yaml", 7, f"optimization_groups[{i}]")})
        for i, e in enumerate(entries)
    ]
    return OptimizationConfig(Path("o.yaml"), "test", "1", groups=tuple(entries), **fields)


def plan(groups, *entries, force=(), disable=(), **fields):
    entries = entries or [g.id for g in groups]
    return prepare(config(*entries, **fields), Registry(groups), force, disable)


def fault(groups, *entries, **arguments):
    with pytest.raises(OptimizationConfigError) as caught:
        plan(groups, *entries, **arguments)
    return str(caught.value)


def test_groups_bind_in_the_order_of_the_config():
    groups = [declare("a"), declare("b"), declare("c")]
    assert plan(groups, "c", "a", "b").order == ("c", "a", "b")


def test_a_dependency_comes_first_and_nothing_else_moves():
    groups = [declare("a"), declare("b", "d"), declare("c"), declare("d")]
    assert plan(groups).order == ("a", "d", "b", "c")


def test_import_compatibility_comes_before_everything():
    groups = [declare("a"), group("z", inject("pkg", "name", "fast.f"))]
    assert plan(groups).order == ("z", "a")


def test_import_compatibility_depends_on_its_own_kind_alone():
    groups = [declare("a"), group("z", inject("pkg", "n", "fast.f"), depends_on=["a"])]
    assert "import-compatibility declarations only" in fault(groups)


def test_a_missing_dependency_is_an_error():
    text = fault([declare("a", "nobody")])
    assert text == "o.yaml:7: depends_on of a: found 'nobody'; accepted: a Group of this config: a"


def test_a_circle_is_an_error_that_shows_it():
    assert "a circle: a -> b -> a" in fault([declare("a", "b"), declare("b", "a")])


def test_a_group_that_is_not_enabled_takes_its_dependents_with_it():
    groups = [declare("a"), declare("b", "a"), declare("c", "b")]
    planned = plan(groups, GroupEntry("a", enabled=False), "b", "c")
    assert [g.decision for g in planned.groups.values()] == ["skip"] * 3
    assert planned.groups["c"].reason == "depends on b, which is skipped"


def test_disabled_groups_are_skipped_with_their_dependents():
    planned = plan([declare("a"), declare("b", "a"), declare("c")], disable=["a"])
    assert planned.order == ("c",)
    assert planned.groups["a"].reason == "disabled by the caller"


def test_one_target_is_changed_by_one_group():
    groups = [declare("a", target="model.f"), declare("b", target="model:f"), declare("c")]
    planned = plan(groups)
    assert planned.order == ("a", "c")
    assert planned.groups["b"].decision == "block"
    assert planned.groups["b"].reason == "conflict of model.f: the Group a already changes it"
    assert [c.blocked for c in planned.conflicts] == ["b"]


def test_a_skipped_group_claims_nothing():
    groups = [declare("a", target="model.f"), declare("b", target="model.f")]
    assert plan(groups, disable=["a"]).order == ("b",)


def test_unknown_groups_are_all_named():
    text = fault([declare("a")], "x", "a", "y")
    assert "optimization_groups[0].id: found 'x'; accepted: a declared Group: a" in text
    assert "optimization_groups[2].id: found 'y'" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"force": ["x"]}, "force_groups: found 'x'; accepted: a Group of the config: a, b"),
        ({"disable": ["x"]}, "disable_groups: found 'x'"),
        ({"force": ["a"], "disable": ["a"]}, "found 'a', which is also in disable_groups"),
        ({"force": ["b"]}, "found 'b', which is not enabled"),
    ],
)
def test_a_wrong_id_of_the_caller_is_named(arguments, text):
    entries = ["a", GroupEntry("b", enabled=False)]
    assert text in fault([declare("a"), declare("b")], *entries, **arguments)


def test_a_hash_for_a_target_that_the_group_lacks_is_an_error():
    entry = GroupEntry("a", trust=Trust(source_hashes={"model.typo": ("source-v1:0",)}))
    assert "trust.source_hashes: found 'model.typo'; accepted: a target" in fault(
        [declare("a")], entry
    )


def test_a_package_of_another_version_blocks_unless_forced():
    stated = Compatibility(dependencies={"pytest": "<1", "no-such-package": ">=1"})
    groups = [declare("a"), declare("b")]
    planned = plan(groups, compatibility=stated, force=["b"])
    assert [(c.subject, c.outcome) for c in planned.checks] == [
        ("pytest", "fail"),
        ("no-such-package", "unknown"),
    ]
    assert planned.groups["a"].decision == "block"
    assert "dependency of pytest: expected <1, found" in planned.groups["a"].reason
    assert planned.order == ("b",)


def test_a_backend_that_is_not_there_blocks_even_when_forced(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    planned = plan([declare("a")], compatibility=Compatibility(backend=("cuda",)), force=["a"])
    assert planned.groups["a"].reason == "backend: expected cuda, found cpu"


def test_modules_that_declare_nothing_are_all_named():
    stated = config(optimization_modules=("no.such.module", "json"))
    with pytest.raises(OptimizationConfigError) as caught:
        collect(stated, None)
    first, second = caught.value.faults
    assert "No module named 'no'" in first.found
    assert "no attribute 'GROUPS'" in second.found
    assert "a tuple GROUPS" in second.accepted
