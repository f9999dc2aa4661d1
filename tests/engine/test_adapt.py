"""A target stays what kind of thing it is, and rolling back restores that very object."""

import pytest

MODEL = """
    import abc, functools

    def function(x):
        return ("old", x)

    class Meta(abc.ABCMeta):
        def of_meta(cls, x):
            return ("old", x)

    class Base:
        def inherited(self, x):
            return ("old", x)
        @classmethod
        def inherited_class(cls, x):
            return ("old", x)

    class C(Base, metaclass=Meta):
        __slots__ = ("slot", "_held")
        def method(self, x):
            return ("old", x)
        @staticmethod
        def static(x):
            return ("old", x)
        @classmethod
        def of_class(cls, x):
            return ("old", x)
        @property
        def value(self):
            return ("old", self._held)
        @value.setter
        def value(self, new):
            self._held = new
        @value.deleter
        def value(self):
            del self._held
        @functools.cached_property
        def cached(self):
            return ("old", 0)
        partial = functools.partialmethod(method, 0)
        def __len__(self):
            return 1
        class Inner:
            def method(self, x):
                return ("old", x)

    class Abstract(metaclass=abc.ABCMeta):
        @abc.abstractmethod
        def method(self, x):
            return ("old", x)

    class Concrete(Abstract):
        def method(self, x):
            return super().method(x)

    class Alone:
        def forward(self, x):
            return ("old", x)
    ONE, OTHER = Alone(), Alone()
    ONE.extra = 1
    TABLE = {"op": function}
    namespaces = [globals(), TABLE, vars(ONE), vars(OTHER)]
    namespaces += [vars(c) for c in (Meta, Base, C, C.Inner, Abstract, Concrete, Alone)]
    before = [dict(namespace) for namespace in namespaces]
"""
FAST = """
    import functools
    def function(x):
        return ("new", x)
    def method(self, x):
        return ("new", x)
    def of_class(cls, x):
        return ("new", x)
    def of_meta(cls, x):
        return ("new", x)
    def getter(self):
        return ("new", 0)
    def partial(self):
        return ("new", 0)
    def size(self):
        return 2
    class Fast:
        value = property(getter)
    def wrap(original, options):
        return lambda *args, **names: ("new", original(*args, **names)[1])
    def wrap_getter(original, options):
        read = original.fget if isinstance(original, property) else original.func
        return lambda self: ("new", read(self)[1])
    def wrap_partial(original, options):
        return lambda self: ("new", original.__get__(self)()[1])
    def wrap_size(original, options):
        return lambda self: original(self) + 1
"""
NEW_OLD = ("new", 1), ("old", 1)
#          target: (replacement, factory, how it is called, what comes of it)
KINDS = {
    "function": ("function", "wrap", "m.function(1)", ("new", 1)),
    "TABLE.op": ("function", "wrap", "m.TABLE['op'](1)", ("new", 1)),
    "Meta.of_meta": ("of_meta", "wrap", "m.C.of_meta(1)", ("new", 1)),
    "C.method": ("method", "wrap", "c.method(1), m.C.method(c, 1)", (("new", 1),) * 2),
    "C.static": ("function", "wrap", "c.static(1), m.C.static(1)", (("new", 1),) * 2),
    "C.of_class": ("of_class", "wrap", "c.of_class(1), m.C.of_class(1)", (("new", 1),) * 2),
    "C.value": ("getter", "wrap_getter", "(setattr(c, 'value', 0), c.value)[1]", ("new", 0)),
    "C.cached": ("getter", "wrap_getter", "c.cached, c.__dict__.pop('cached')", (("new", 0),) * 2),
    "C.partial": ("partial", "wrap_partial", "c.partial()", ("new", 0)),
    "C.__len__": ("size", "wrap_size", "len(c)", 2),
    "C.inherited": (
        "method",
        "wrap",
        "c.inherited(1), m.Base().inherited(1)[0]",
        (("new", 1), "old"),
    ),
    "C.inherited_class": ("of_class", "wrap", "m.C.inherited_class(1)", ("new", 1)),
    "C.Inner.method": ("method", "wrap", "m.C.Inner().method(1)", ("new", 1)),
    "Abstract.method": ("method", "wrap", "m.Concrete().method(1)", ("new", 1)),
    "ONE.forward": (
        "method",
        "wrap",
        "m.ONE.forward(1), m.OTHER.forward(1)[0]",
        (("new", 1), "old"),
    ),
}


@pytest.fixture
def model(project):
    project.write({"m.py": MODEL, "fast.py": FAST, "late.py": "def function(x): ...\n"})
    # A member whose module comes later, and which then fails: it takes all the others back.
    project.write({"late_fast.py": "raise OSError('no driver')\ndef function(x): ...\n"})
    return project


def rolled_back(members):
    failing = "replace('late.function', 'late_fast.function')"
    return f"group('g', {', '.join(members)}, {failing})"


@pytest.mark.parametrize("kind", ["replace", "wrap"])
def test_every_kind_of_target_keeps_its_kind_and_comes_back(model, kind):
    """All kinds in one Group: afterwards each namespace holds the identical objects."""
    which = 0 if kind == "replace" else 1
    model.declare(
        rolled_back(f"{kind}('m.{target}', 'fast.{row[which]}')" for target, row in KINDS.items())
    )
    calls = {target: row[2:] for target, row in KINDS.items()}
    model.run(f"""
        import inspect
        report = apply()
        import m
        c = m.C()
        assert state(report) == "pending", str(report)
        for target, (call, expected) in {calls!r}.items():
            assert eval(call) == expected, (target, eval(call))
        for name, type_ in dict(static=staticmethod, of_class=classmethod, value=property).items():
            assert type(inspect.getattr_static(m.C, name)) is type_
        del c.value
        assert not hasattr(c, "_held") and m.Abstract.__abstractmethods__ == {{"method"}}
        import late
        assert state(report) == "rolled_back", str(report)
        for namespace, before in zip(m.namespaces, m.before):
            now = dict(namespace)
            for key in set(before) | set(now) - {{"before"}}:
                assert now.get(key, "absent") is before.get(key, "absent"), key
        assert m.function(1) == c.method(1) == m.C.static(1) == ("old", 1) and len(c) == 1
        assert {{member.state.value for member in report.execution["g"].members}} == {{
            "restored", "waiting"}}
    """)


def test_an_inherited_attribute_is_absent_again_in_the_child(model):
    model.declare(rolled_back(["replace('m.C.inherited', 'fast.method')"]))
    model.run("""
        apply()
        import m
        assert "inherited" in vars(m.C) and m.C().inherited(1) == ("new", 1)
        import late
        assert "inherited" not in vars(m.C) and m.C.inherited is m.Base.inherited
    """)


WRONG = {
    "an entry of __slots__": ("m.C.slot", "fast.method", "an entry of __slots__"),
    "a class for a method": ("m.C.method", "fast.Fast", "found class"),
    "a property for a method": ("m.C.method", "fast.Fast.value", "property"),
    "a value for a partialmethod": ("m.C.partial", "fast.functools", "the replacement a value"),
    "what only the metaclass has": ("m.C.of_meta", "fast.method", "no 'of_meta'"),
}


@pytest.mark.parametrize(("target", "replacement", "reason"), WRONG.values(), ids=WRONG)
def test_what_cannot_keep_its_kind_is_refused(model, target, replacement, reason):
    model.declare(f"group('g', replace('{target}', '{replacement}'))")
    model.run(f"""
        report = apply()
        import m
        assert state(report) == "blocked"
        assert {reason!r} in report.execution["g"].reason, report.execution["g"].reason
        assert [dict(n) for n in m.namespaces][1:] == m.before[1:]
    """)


def test_a_class_that_names_itself_in_super_is_warned_of(project):
    """`super(Name, self)` looks the name up when it runs, and would find the replacement."""
    project.write(
        {
            "m.py": """
                class Named:
                    def __init__(self):
                        super(Named, self).__init__()
                class Plain:
                    def __init__(self):
                        super().__init__()
                        super(dict, {}).__init__()
            """,
            "fast.py": "class Named: ...\nclass Plain: ...\n",
        }
    )
    project.declare("""
        group('g', replace('m.Named', 'fast.Named')),
        group('plain', replace('m.Plain', 'fast.Plain'))
    """)
    project.run("""
        warned, = (c for c in check().groups["g"].checks if c.name == "super")
        assert warned.outcome == "warning" and "super(Named" in warned.reason
        assert not [c for c in check().groups["plain"].checks if c.name == "super"]
        report = apply()
        import m
        assert "super(Named" in str(report) and state(report) == "applied"
    """)


def test_subclasses_that_keep_the_old_base_are_named(model):
    model.write({"user.py": "import m\nclass Sub(m.Base): ...\nmade = Sub()\n"})
    model.declare("group('g', replace('m.Base', 'fast.Fast'))")
    model.run("""
        import user, m, fast
        report = apply()
        member, = report.execution["g"].members
        assert {"the subclass m.C", "the subclass user.Sub"} <= set(member.left)
        assert m.Base is fast.Fast and not isinstance(user.made, m.Base)
        assert "the subclass user.Sub" in str(report)
    """)


def test_a_registered_object_is_exchanged_in_its_registry_and_put_back(model):
    """No module body ever runs because of us, so nothing is registered twice."""
    model.write(
        {
            "registry.py": """
                HELD, runs = {}, []
                def register(cls):
                    if cls.__name__ in HELD:
                        raise KeyError(f"{cls.__name__} is already registered")
                    HELD[cls.__name__] = cls
                    return cls
            """,
            "ops.py": """
                from registry import HELD, register, runs
                runs.append(__name__)
                @register
                class Op: ...
            """,
            "fast.py": "class Op: ...\n",
        }
    )
    model.declare(rolled_back(["replace('ops.HELD.Op', 'fast.Op', aliases=['ops.Op'])"]))
    model.run("""
        import registry
        report = apply()
        import ops, fast
        assert registry.HELD["Op"] is ops.Op is fast.Op
        import late
        assert registry.HELD == {"Op": ops.Op} and ops.Op.__module__ == "ops"
        assert registry.runs == ["ops"] and state(report) == "rolled_back"
    """)


@pytest.mark.parametrize("declaration", ["replace('m.Base', 'f.part')", "wrap('m.Base', 'f.make')"])
def test_a_class_is_only_replaced_by_a_class(model, declaration):
    model.write({"f.py": "import functools\npart = functools.partial(dict)\n"})
    model.write(
        {"f.py": "import functools\npart = functools.partial(dict)\nmake = lambda o, _: part\n"}
    )
    model.declare(f"group('g', {declaration})")
    model.run("""
        report = apply()
        import m
        assert m.Base is m.before[0]["Base"] and isinstance(m.C(), m.Base)
        assert state(report) == "blocked" and "target is a class" in report.execution["g"].reason
    """)


def test_an_instance_is_changed_in_its_own_dict_alone(model):
    model.declare(rolled_back(["replace('m.ONE.forward', 'fast.method')"]))
    model.run("""
        apply()
        import m
        assert m.ONE.forward(1) == ("new", 1) and m.OTHER.forward(1) == ("old", 1)
        assert vars(m.Alone)["forward"] is m.before[-1]["forward"]
        assert set(vars(m.ONE)) == {"extra", "forward"} and type(m.ONE) is m.Alone
        assert (m.Alone.__qualname__, m.Alone.__module__) == ("Alone", "m")
        import late
        assert vars(m.ONE) == {"extra": 1}
    """)


def test_instances_made_before_during_and_after_hold_the_original_again(model):
    model.declare(rolled_back(["replace('m.Alone.forward', 'fast.method')"]))
    model.run("""
        apply()
        import m
        during = m.Alone()
        assert during.forward(1) == m.ONE.forward(1) == ("new", 1)
        import late
        original = m.before[-1]["forward"]
        for each in (m.ONE, during, m.Alone()):
            assert each.forward.__func__ is original and "forward" not in vars(each)
    """)


@pytest.mark.parametrize("target", ["m.List.__getitem__", "m.Error.__str__"])
def test_special_methods_of_types_written_in_c_are_refused(project, target):
    """Assigning one, and taking it back, leaves the type's slots changed for good."""
    project.write({"m.py": "class List(list): ...\nclass Error(Exception): ...\n"})
    project.write({"fast.py": "def get(self, *args):\n    return 'new'\n"})
    project.declare(f"group('g', replace('{target}', 'fast.get'))")
    project.run("""
        report = apply()
        import m
        assert m.List([1])[0] == 1 and str(m.Error("x")) == "x"
        assert not {"__getitem__", "__str__"} & (vars(m.List).keys() | vars(m.Error).keys())
        assert state(report) == "blocked"
        assert "cannot be taken back" in report.execution["g"].reason
    """)


def test_an_immutable_type_fails_its_group(model):
    model.declare("""
        group('g', replace('m.function', 'fast.function'),
                   replace('datetime.timedelta.total_seconds', 'fast.partial'))
    """)
    model.run("""
        import _datetime, datetime
        assert datetime.timedelta is _datetime.timedelta
        report = apply()
        import m
        assert m.function(1) == ("old", 1) and datetime.timedelta(1).total_seconds() == 86400
        assert state(report) == "rolled_back", str(report)
        assert report.execution["g"].members[1].error.type == "TypeError"
    """)


def test_what_the_replacement_raises_is_never_answered_by_the_original(project):
    project.write(
        {
            "m.py": "ran = []\ndef function(x):\n    ran.append(x)\n",
            "fast.py": """
                def function(x):
                    raise ArithmeticError("mine")
                def always(x):
                    return True
            """,
        }
    )
    project.declare(
        "group('g', replace('m.function', 'fast.function', runtime_condition='fast.always'))"
    )
    project.run("""
        apply()
        import m
        try:
            m.function(1)
        except ArithmeticError as error:
            assert str(error) == "mine" and error.__context__ is None
        else:
            raise AssertionError
        assert m.ran == []
    """)
