"""Single histories of imports, each of which once went wrong."""

MODEL = (
    "import switch\n\ndef f(x):\n    return ('old', x)\n\nif switch.fail:\n    raise ValueError\n"
)
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
        told = journal(report)
        assert told == json.loads(json.dumps(report.to_dict(), default=str))
        assert "model.py:4" in str(told["prepared_execution"])
    """)


def rolled_back_after_capture(project, member):
    """`model.f` is live when `user` imports it; then the import of `other` fails the Group."""
    project.write(
        {
            "model.py": "def f(x):\n    return ('old', x)\n",
            "other.py": "def f(x):\n    return ('old', x)\n",
            "user.py": """
                from model import f as borrowed
                class Holder:
                    act = borrowed
                def fixed(x, act=borrowed):
                    return act(x)
            """,
            "fast.py": """
                def f(x):
                    return ("new", x)
                def factory(original, options):
                    return lambda x: ("new", original(x)[1])
                def broken(original, options):
                    raise OSError("no driver")
            """,
            "friend.py": "from fast import f\n",
        }
    )
    project.declare(f"group('g', {member}, wrap('other.f', 'fast.broken'))")
    return """
        report = apply()
        import model, user
        assert user.borrowed(1) == user.Holder.act(1) == ("new", 1) and state(report) == "pending"
        assert report.execution["g"].members[0].left == []
        import friend, other, fast
        assert state(report) == "rolled_back" and user.borrowed is model.f
        left = report.execution["g"].members[0].left
    """


def test_a_rollback_takes_back_what_others_imported_in_between(project):
    script = rolled_back_after_capture(project, "wrap('model.f', 'fast.factory')")
    project.run(f"""{script}
        assert user.Holder.act is model.f
        assert left == ["user.fixed"] and user.fixed(1) == ("new", 1)
    """)


def test_a_rollback_leaves_those_alone_who_imported_the_replacement_itself(project):
    script = rolled_back_after_capture(project, "replace('model.f', 'fast.f')")
    project.run(f"""{script}
        assert friend.f is fast.f and model.f(1) == ("old", 1)
        # Where this one has it from does not show.
        assert sorted(left) == ["user.Holder.act", "user.fixed"]
    """)


def test_a_member_is_bound_although_an_earlier_ones_alias_came_before_its_target(project):
    project.write(
        {
            "model.py": "from late import g as borrowed\ndef f(x):\n    return ('old', x)\n",
            "late.py": "def g(x):\n    return ('old', x)\nimport model\nraise ValueError\n",
            "fast.py": "def f(x):\n    return ('new', x)\ng = f\n",
        }
    )
    project.declare("""
        group('g', replace('late.g', 'fast.f', aliases=['model.borrowed']),
                   replace('model.f', 'fast.f'))
    """)
    project.run("""
        report = apply()
        try:
            import late
        except ValueError:
            pass
        import model
        assert model.f(1) == ("new", 1) and state(report) == "pending"
        members = report.execution["g"].members
        assert [member.state.value for member in members] == ["waiting", "bound"]
    """)
