"""Single histories of imports, each of which once went wrong."""

MODEL = "import switch\n\ndef f(x):\n    return ('old', x)\n\nif switch.fail:\n    raise ValueError\n"
FAST = "def f(x):\n    return ('new', x)\n"


def test_the_journal_holds_the_evidence_of_an_import_that_fails(project):
    project.write({"model.py": MODEL, "switch.py": "fail = False\n", "fast.py": FAST})
    project.declare("group('g', replace('model.f', 'fast.f'))")
    project.run("""
        report = apply()
        import model, switch
        switch.fail, file = True, model.__file__
        source = open(file).read().replace("def f", "# moved down" + chr(10) + "def f")
        open(file, "w").write(source)
        del sys.modules["model"]
        try:
            import model
        except ValueError:
            pass
        told = json.loads(report.journal.path.read_text())
        assert told == json.loads(json.dumps(report.to_dict(), default=str))
        assert "model.py:4" in str(told["prepared_execution"])
    """)
