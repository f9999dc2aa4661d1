"""Whatever a report is given becomes plain data: bounded, printable, and without an exception."""

import enum
import json
import sys
import types

import pytest

from turbo_physai.engine.plain import plain, shown, text


class Hostile:
    def __repr__(self):
        raise ValueError("no repr")

    def __getattr__(self, name):
        raise RuntimeError(name)


class NoText:
    def __repr__(self):
        return 5


class Unreadable(dict):
    def items(self):
        raise OSError


class Recursive:
    def __repr__(self):
        return repr(self)


class Level(enum.Enum):
    HIGH = 1


cycle = [1]
cycle.append(cycle)
wide = []
wide += [wide] * 1000
deep = "bottom"
for _ in range(10_000):
    deep = {"down": deep}

VALUES = [
    *(None, True, 1, 2.5, "text", [1, (2, {3})], {"a": {"b": 1}}),
    *({(1, 2): 3, None: 1, 1.5: 2}, {Hostile(): Hostile()}, {"\ud800": "\udfff"}, {b"k": b"\xff"}),
    *(float("nan"), float("-inf"), 10**5000, -(2**200), 1j, Level.HIGH, range(3), iter([1])),
    *(Hostile(), NoText(), Unreadable(a=1), Recursive(), type, len, sys, object()),
    *(cycle, wide, deep, "x" * 10**6, b"x" * 10**6, list(range(10**6)), dict.fromkeys(range(9999))),
    *(frozenset({1}), types.MappingProxyType({"a": 1}), bytearray(b"a"), memoryview(b"a")),
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_any_value_is_plain_data(value):
    written = json.dumps(plain(value), allow_nan=False)
    assert len(written) < 250_000
    assert json.loads(written) == plain(value)
    for made in text(value), shown(value):
        assert isinstance(made, str)
        assert len(made.encode()) < 10_000


def test_what_json_can_hold_stays_as_it_is():
    value = {"a": [1, 2.5, None, True, "ä"], "b": {"c": {}}}
    assert plain(value) == value
    assert plain(value) is not value
    assert plain((1, [2])) == [1, [2]]


def test_what_is_cut_says_so():
    assert plain(list(range(150)))[-1] == "... 50 more"
    assert plain(dict.fromkeys(map(str, range(150))))["..."] == "50 more"
    assert plain("x" * 5000).endswith("... (5000 characters)")
    assert plain(float("nan")) == "nan"
    assert plain({(1, 2): 3}) == {"(1, 2)": 3}
    assert plain(Hostile()) == "<Hostile: RuntimeError when it was read>"


def test_an_interrupt_is_not_swallowed():
    class Interrupted:
        def __repr__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plain(Interrupted())


def test_arrays_are_named_and_scalars_are_numbers():
    numpy = pytest.importorskip("numpy")
    assert plain([numpy.float32(1.5), numpy.int64(3), numpy.bool_(True)]) == [1.5, 3, True]
    assert plain(numpy.ones((2, 3))) == "<ndarray of shape (2, 3), float64>"


def test_tensors_are_named_and_not_read():
    torch = pytest.importorskip("torch")
    named = "<Tensor of shape (2, 3), torch.float32>"
    assert plain({"x": torch.ones(2, 3, device="meta")}) == {"x": named}
