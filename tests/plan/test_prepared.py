"""One decision for check() and apply(): what was not proven is not applied, and who depends on it
follows."""

import compileall

import pytest

from turbo_physai.evidence import definitions, hashes

F = "def f(x):\n    return ('old', x)\n"
FAST = "def f(x):\n    return ('new', x)\ndef yes(*args): return True\n"
TRUSTED = hashes.ast_hash(definitions.find(F, ("f",), module="m", is_package=False).nodes)
TRUST = f"trust: {{ast_hashes: {{model.ops.f: ['{TRUSTED}']}}}}"

# What a later version of the model may have made of the validated `def f`.
LATER = {
    "if": "import sys\nif sys.version_info > (3,):\n    def f(x):\n        return ('old', x)\n",
    "try": "try:\n    from fastlib import f\nexcept ImportError:\n"
    "    def f(x):\n        return ('old', x)\n",
    "lambda": "f = lambda x: ('old', x)\n",
    "assigned": "def g(x):\n    return ('old', x)\nf = g\n",
    "star": "from model.impl import *\n",
    "getattr": "def g(x):\n    return ('old', x)\ndef __getattr__(name):\n"
    "    if name == 'f': return g\n    raise AttributeError(name)\n",
    "globals": "def g(x):\n    return ('old', x)\nglobals()['f'] = g\n",
}


@pytest.fixture
def model(project):
    project.write({"model/ops.py": F, "model/impl.py": F, "fast.py": FAST})
    return project.declare("group('g', replace('model.ops.f', 'fast.f'))", g=TRUST)


def test_code_whose_stated_hash_fits_is_applied(model):
    model.run("""
        assert check().groups["g"].decision == "apply"
        report = apply()
        from model.ops import f
        assert f(1) == ("new", 1) and state(report) == "applied"
    """)


@pytest.mark.parametrize("source", LATER.values(), ids=LATER)
def test_a_stated_hash_that_cannot_be_compared_blocks_like_one_that_differs(model, source):
    model.write({"model/ops.py": source})
    script = """
        arguments = {}
        prepared = check(**arguments)
        report = apply(**arguments)
        from model.ops import f
        print(prepared.groups["g"].decision, state(report), f(1)[0])
        print(report)
    """
    blocked = model.script(script)
    assert blocked.stdout.splitlines()[0].split() == ["block", "blocked", "old"]
    assert "- fail: ast_hash of model.ops.f: the code cannot be compared" in blocked.stdout
    model.script(script, code=3, TURBO_PHYSAI_STRICT="1")
    if source != LATER["getattr"]:  # a name that only __getattr__ answers is in no namespace
        forced = model.run(script.replace("{}", "{'force_groups': ['g']}"))
        # Whether it is there at all, only the import can tell.
        assert forced.splitlines()[0].split() == ["unknown", "applied", "new"]
        assert "- fail, let through: ast_hash of model.ops.f" in forced


def test_a_hash_of_a_module_without_source_blocks(model):
    compileall.compile_dir(model.path / "model", quiet=1, legacy=True)
    (model.path / "model/ops.py").unlink()
    model.run("""
        assert "has no source" in check().groups["g"].reason
        report = apply()
        from model.ops import f
        assert f(1) == ("old", 1) and state(report) == "blocked"
    """)


def test_a_hash_of_a_method_that_is_inherited_now_blocks(project):
    project.write(
        {
            "model/ops.py": "from model.base import Base\nclass C(Base): pass\n",
            "model/base.py": "class Base:\n    def f(self): return 'old'\n",
            "fast.py": "def f(self): return 'new'\n",
        }
    )
    trust = "trust: {source_hashes: {model.ops.C.f: ['source-v1:00']}}"
    project.declare("group('g', replace('model.ops.C.f', 'fast.f'))", g=trust)
    project.run("""
        assert check().groups["g"].decision == "block"
        report = apply()
        from model.ops import C
        assert C().f() == "old" and state(report) == "blocked"
    """)


DYNAMIC = "import os\n__path__.append(os.path.join(__path__[0], 'hidden'))\n"


@pytest.mark.parametrize("first", ["model.sub", "other"])
def test_a_module_that_cannot_be_found_yet_is_compared_as_soon_as_it_is(project, first):
    """A package computes its search path: evidence waits for the module, then decides."""
    project.write({"model/__init__.py": DYNAMIC, "model/hidden/sub.py": F, "other.py": F})
    project.write({"fast.py": FAST})
    declared = "group('g', replace('model.sub.f', 'fast.f'), replace('other.f', 'fast.f'))"
    script = f"""
        assert check().groups["g"].decision == "unknown", check().groups["g"].reason
        report = apply()
        import {first}
        import model.sub, other
        print(state(report), model.sub.f(1)[0], other.f(1)[0])
    """
    project.declare(declared, g=TRUST.replace("model.ops.f", "model.sub.f"))
    assert project.run(script).split() == ["applied", "new", "new"]
    project.declare(declared, g="trust: {source_hashes: {model.sub.f: ['source-v1:00']}}")
    ended = "blocked" if first == "model.sub" else "rolled_back"
    assert project.run(script).split() == [ended, "old", "old"]


def test_a_module_that_a_finder_in_front_loads_is_compared_before_it_is_bound(model):
    """Evidence was gathered when the module could not be found, and its loader never told."""
    model.write({"other.py": F, "later/new/__init__.py": "", "later/new/ops.py": LATER["lambda"]})
    model.declare(
        "group('g', replace('other.f', 'fast.f'), replace('new.ops:f', 'fast.f'))",
        g=TRUST.replace("model.ops.f", "'new.ops:f'"),
    )
    model.run("""
        report = apply()
        import other
        assert state(report) == "pending" and other.f(1) == ("new", 1)
        class InFront:
            def find_spec(self, name, path=None, target=None):
                if name.startswith("new"):
                    import importlib.machinery
                    return importlib.machinery.PathFinder.find_spec(name, path or ["later"])
        sys.meta_path.insert(0, InFront())
        import new.ops
        sys.meta_path.pop(0)
        importlib.reload(other)
        assert new.ops.f(1) == ("old", 1), "bound without evidence"
        assert other.f(1) == ("old", 1) and state(report) == "rolled_back", str(report)
        assert "cannot be compared" in report.execution["g"].reason
    """)


def test_check_says_unknown_where_the_source_was_not_found(project):
    """As outside of the model's repository: nothing was proven, so nothing is promised."""
    project.write({"fast.py": FAST}).declare("""
        group('g', replace('absent.ops.f', 'fast.f')),
        group('h', replace('json.dumps', 'absent.fast.f')),
        group('after', replace('json.loads', 'json.load'), depends_on=['g'])
    """)
    project.run("""
        groups = check().groups
        assert groups["g"].decision == "unknown"
        assert groups["g"].reason == (
            "target of absent.ops.f: no module 'absent' was found without importing it")
        assert groups["h"].decision == "unknown" and "absent.fast.f" in groups["h"].reason
        assert groups["after"].decision == "block" or groups["after"].decision == "unknown"
    """)


def test_who_depends_on_a_blocked_group_is_blocked_for_check_and_not_started_by_apply(project):
    project.write({"model/ops.py": F + "def g(x): ...\ndef h(x): ...\n", "fast.py": FAST})
    project.declare(
        """
        group('a', replace('model.ops.f', 'fast.f')),
        group('b', replace('model.ops.g', 'fast.f'), depends_on=['a']),
        group('c', replace('model.ops.h', 'fast.f'), depends_on=['b'])
        """,
        a="trust: {source_hashes: {model.ops.f: ['source-v1:00']}}",
    )
    project.run("""
        prepared = check()
        assert [group.decision for group in prepared.groups.values()] == ["block"] * 3
        assert prepared.groups["c"].reason == "depends on b, which is blocked"
        assert prepared.order == ()
        report = apply()
        import model.ops
        assert [state(report, id_) for id_ in "abc"] == ["blocked", "not_started", "not_started"]
        decided = report.prepared_execution.groups
        assert [group.decision for group in decided.values()] == ["block"] * 3
    """)


@pytest.mark.parametrize("condition", ["size = 3", "", "class C:\n    size = property()\n"])
def test_a_runtime_condition_that_cannot_be_called_is_refused(project, condition):
    """Bound, it would raise at every call of the target."""
    name = "C.size" if "class" in condition else "size"
    project.write({"model/ops.py": F, "fast.py": FAST, "conditions.py": condition + "\n"})
    project.declare(
        f"group('g', replace('model.ops.f', 'fast.f', runtime_condition='conditions:{name}'))"
    )
    project.run("""
        decision = check().groups["g"].decision
        report = apply()
        from model.ops import f
        assert f(1) == ("old", 1) and state(report) == "blocked", str(report)
        assert decision in ("block", "unknown")
        assert "runtime_condition" in report.execution["g"].reason
    """)


def test_a_prepared_execution_prints_as_a_table(model):
    model.write({"model/ops.py": "f = None\n"})
    text = model.run("prepared = check(); print(prepared); assert len(repr(prepared)) < 200")
    head, row, *_ = text.splitlines()
    assert head.split() == ["Group", "decision", "reason"]
    assert row.split()[:2] == ["g", "block"]
    assert all(len(line) <= 100 for line in text.splitlines())
