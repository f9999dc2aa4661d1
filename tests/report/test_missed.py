"""Each Group that was to be applied and was not is one line in the log, without being asked."""

import pytest

MODEL = {
    "model.py": "def f(a): return 'slow'\n",
    "quick.py": "def f(a): return 'fast'\ndef bad(): ...\n"
    "def make(f, options): raise KeyError(1)\n",
}


@pytest.fixture
def model(project):
    return project.write(MODEL)


def lines(done):
    return [line for line in done.stderr.splitlines() if line.startswith("turbo_physai: ")]


CASES = {
    "blocked": (
        "group('g', replace('model.f', 'quick.bad'))",
        "",
        "the Group g is not applied (blocked): signature of model.f",
    ),
    "hash": (
        "group('g', replace('model.f', 'quick.f'))",
        "trust: {source_hashes: {model.f: ['source-v1:00']}}",
        "let it through with --force-group g, else leave it out with --disable-group g.",
    ),
    "rolled_back": (
        "group('g', wrap('model.f', 'quick.make'))",
        "",
        "the Group g is not applied (rolled_back): model.f: KeyError: 1.",
    ),
    "replacement": (
        "group('g', replace('model.f', 'qiuck.f'))",
        "",
        "the Group g is not applied (rolled_back): model.f: ModuleNotFoundError: No module named",
    ),
    "typo in the module": (
        "group('g', replace('modle.f', 'quick.f'))",
        "",
        "(not_started): never imported: modle.f (no module 'modle' was found",
    ),
    "not imported": (
        "group('g', replace('model:f', 'quick.f'))",
        "",
        "the Group g is not applied (not_started): never imported: model:f. If it is not needed, "
        "leave it out with --disable-group g.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_said_once_and_the_program_goes_on(model, case):
    declared, entry, text = CASES[case]
    model.declare(declared, g=entry)
    use = "" if case == "not imported" else "import model, importlib; importlib.reload(model)"
    done = model.script(f"apply(); {use}\nprint('end')")
    assert done.stdout == "end\n"
    (line,) = lines(done)
    assert text in line, line


def test_nothing_is_said_when_all_is_well(model):
    model.declare("""
        group('g', replace('model.f', 'quick.f')),
        group('h', inject('model', 'n', 'json.x'))
    """)
    config = (model.path / "optimization.yaml").read_text()
    (model.path / "optimization.yaml").write_text(config + "    enabled: false\n")
    assert model.script("apply(); import model").stderr == ""


def test_who_depends_on_it_is_said_too(model):
    model.write({"other.py": "def f(a): ...\n"}).declare("""
        group('g', replace('model.f', 'quick.bad')),
        group('h', replace('other.f', 'quick.f'), depends_on=['g'])
    """)
    first, second = lines(model.script("apply(); import model, other"))
    assert "the Group g is not applied (blocked)" in first
    assert "the Group h is not applied (not_started): depends on g, which is blocked" in second


def test_workers_and_forked_children_are_silent(model):
    model.declare("group('g', replace('model.f', 'quick.bad'))")
    done = model.script("""
        report = apply()
        if os.fork() == 0:
            import model
            sys.exit(0)
        os.wait()
    """)
    (line,) = lines(done)
    assert "never imported" in line  # the parent's own


def test_every_rank_says_it(model):
    model.declare("group('g', replace('model.f', 'quick.bad'))")
    for rank in ("0", "3"):
        assert len(lines(model.script("apply(); import model", RANK=rank))) == 1


def test_a_program_that_logs_gets_it_in_its_log(model):
    model.declare("group('g', replace('model.f', 'quick.bad'))")
    done = model.script("""
        import logging
        logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(name)s %(message)s")
        apply()
        import model
    """)
    assert done.stdout.startswith("WARNING turbo_physai turbo_physai: the Group g is not applied")
    assert done.stderr == ""


def test_a_handler_that_raises_does_not_break_the_models_import(model):
    model.declare("group('g', replace('model.f', 'quick.bad'))")
    model.run("""
        import logging
        class Broken(logging.Handler):
            def handle(self, record): raise RuntimeError("full")
        logging.getLogger().addHandler(Broken())
        apply()
        import model
        assert model.f(1) == "slow"
    """)


# What serves a fused replacement.

BACKENDS = """
from turbo_physai import BackendResult
def fused(): return BackendResult("cpu")
def slow(): return BackendResult("torch", fused=False, reason="there is no compiled library")
def wrong(): return "cpu"
def broken(): raise KeyError("device")
"""


def declare_backend(model, name):
    model.write({"backends.py": BACKENDS})
    return model.declare(f"group('g', replace('model.f', 'quick.f', backend='backends:{name}'))")


def test_the_backend_that_serves_a_replacement_is_in_the_report(model):
    declare_backend(model, "fused")
    done = model.script("""
        report = apply(strict=True)
        import model
        report.require()
        assert report.to_dict()["execution"]["g"]["members"][0]["backend"]["name"] == "cpu"
        print(report)
    """)
    assert "    - backend: cpu\n" in done.stdout
    assert done.stderr == ""


def test_a_replacement_that_nothing_fused_serves_is_missed(model):
    declare_backend(model, "slow")
    script = """
        report = apply()
        import model
        assert model.f(1) == "fast" and state(report) == "applied"
        try:
            report.require()
        except OptimizationNotAppliedError as error:
            print(error)
    """
    done = model.script(script)
    reason = "the Group g is applied, but not fused: torch serves it: there is no compiled library."
    (line,) = lines(done)
    assert reason in line
    assert "g is applied, but not fused" in done.stdout
    strict = model.script(script, code=3, TURBO_PHYSAI_STRICT="1")
    assert "strict mode: g is applied, but not fused" in strict.stderr


@pytest.mark.parametrize("name", ["wrong", "broken", "absent"])
def test_a_backend_that_does_not_answer_takes_the_group_back(model, name):
    declare_backend(model, name)
    done = model.script("apply(); import model; assert model.f(1) == 'slow'")
    (line,) = lines(done)
    assert "the Group g is not applied" in line
