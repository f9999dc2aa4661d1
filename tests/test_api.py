"""apply() and check(): one config, one verdict, once per process; errors before any change."""

import pytest

SOURCES = {
    "model/ops.py": "def f(x): return ('old', x)\ndef g(x): return ('old', x)\n",
    "fast.py": "def f(x): return ('new', x)\n",
}


@pytest.fixture
def model(project):
    return project.write(SOURCES).declare("""
        group('g', replace('model.ops.f', 'fast.f')),
        group('h', replace('model.ops.g', 'fast.f'), depends_on=['g'])
    """)


def test_importing_turbo_physai_imports_nothing_heavy(project):
    project.run("assert not {'torch', 'triton', 'typer', 'numpy'} & set(sys.modules)")


def test_apply_imports_neither_targets_nor_replacements(model):
    model.run("""
        apply()
        assert not {"model", "model.ops", "fast"} & set(sys.modules)
        assert not {"torch", "triton", "typer"} & set(sys.modules)
    """)


def test_check_decides_as_apply_and_changes_nothing(model):
    model.run("""
        before = list(sys.meta_path)
        prepared = check()
        assert prepared.order == ("g", "h") and sys.meta_path == before
        assert not {"model", "fast"} & set(sys.modules)
        names = {c.name: c.outcome for c in prepared.groups["g"].checks}
        assert names == {"target": "pass", "trust": "warning", "replacement": "pass",
                         "kind": "pass", "signature": "pass"}
        assert check(disable_groups=["g"]).order == ()
        apply()
        from model.ops import f
        assert f(1) == ("new", 1)
    """)


def test_check_says_no_where_apply_would(model):
    model.write({"fast.py": "def f(y): ...\n"})
    model.run("""
        prepared = check()
        assert prepared.groups["g"].decision == "block"
        assert "the replacement names parameter 1 `y`" in prepared.groups["g"].reason
        report = apply()
        import model.ops
        assert state(report) == "blocked" and state(report, "h") == "not_started"
        assert report.execution["g"].reason == prepared.groups["g"].reason
    """)


def test_a_second_apply_raises_also_after_a_failure(model):
    model.run("""
        for first in ({"optimization_config_path": "absent.yaml"}, {}):
            try:
                apply(**first)
            except TurboPhysAIError as error:
                text = str(error)
        assert "apply() works once per process; it was called before" in text, text
        assert "main.py" in text
    """)


@pytest.mark.parametrize("name", ["force_groups", "disable_groups"])
def test_a_plain_text_for_ids_is_a_type_error(model, name):
    model.run(f"""
        try:
            apply({name}="g")
        except TypeError as error:
            assert "{name} is a sequence of texts" in str(error)
        else:
            raise AssertionError
        assert not any(type(f).__module__.startswith("turbo") for f in sys.meta_path)
    """)


def test_disabled_and_forced_groups_may_come_from_the_environment(model):
    model.run(
        """
        report = apply()
        assert report.prepared_execution.groups["g"].reason == "disabled by the caller"
        """,
        TURBO_PHYSAI_DISABLE_GROUPS="g, h",
    )
    model.run(
        """
        try:
            apply()
        except OptimizationConfigError as error:
            assert "found 'nobody'" in str(error)
        """,
        TURBO_PHYSAI_FORCE_GROUPS="nobody",
    )


def test_the_kill_switch_installs_nothing(model):
    model.run(
        """
        before = list(sys.meta_path)
        report = apply()
        import model.ops
        assert model.ops.f(1) == ("old", 1) and sys.meta_path == before
        assert report.final and report.summary["skipped"] == 2
        """,
        TURBO_PHYSAI_DISABLE="1",
    )


def test_registry_and_catalog_of_the_caller(project):
    project.write(SOURCES)
    project.write(
        {
            "base.yaml": """\
                schema_version: turbophysai/optimization-config/v1
                kind: OptimizationConfig
                metadata: {id: base, version: "1"}
                optimization_groups: [{id: g}]
            """,
            "own.yaml": """\
                schema_version: turbophysai/optimization-config/v1
                kind: OptimizationConfig
                metadata: {id: own, version: "1"}
                extends: [base]
            """,
        }
    )
    project.run("""
        registry = Registry([group("g", replace("model.ops.f", "fast.f"))])
        report = apply(optimization_config_path="own.yaml", registry=registry,
                       catalog=OptimizationConfigCatalog(["base.yaml"]))
        from model.ops import f
        assert f(1) == ("new", 1) and report.summary["applied"] == 1
    """)


def test_code_that_is_not_trusted_blocks_unless_forced(model):
    config = model.path / "optimization.yaml"
    wrong = "    trust: {source_hashes: {model.ops.f: ['source-v1:00']}}\n"
    config.write_text(config.read_text().replace("  - id: h\n", wrong + "  - id: h\n"))
    model.run("""
        report = apply()
        from model.ops import f
        assert f(1) == ("old", 1) and state(report) == "blocked"
        assert "is not what was validated" in report.execution["g"].reason
    """)
    model.run("""
        report = apply(force_groups=["g"])
        from model.ops import f
        assert f(1) == ("new", 1) and state(report) == "applied"
        checks = report.prepared_execution.groups["g"].checks
        assert ("source_hash", "fail") in [(c.name, c.outcome) for c in checks]
    """)


def test_code_that_is_trusted_passes(model):
    digest = model.script("""
        from turbo_physai.evidence import examine, hashes
        from turbo_physai.declarations.names import ObjectPath
        print(hashes.ast_hash(examine.read(ObjectPath("model.ops.f")).found.nodes))
    """).stdout.strip()
    config = model.path / "optimization.yaml"
    trust = f"    trust: {{ast_hashes: {{model.ops.f: ['{digest}']}}}}\n"
    config.write_text(config.read_text().replace("  - id: h\n", trust + "  - id: h\n"))
    model.run("""
        report = apply()
        import model.ops
        checks = {c.name: c.outcome for c in report.prepared_execution.groups["g"].checks}
        assert checks["ast_hash"] == "pass" and state(report) == "applied"
    """)
