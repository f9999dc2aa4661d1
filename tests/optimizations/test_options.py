"""An option that does not exist is named, with those that do."""

import pytest

from turbo_physai.optimizations.options import refuse_unknown


@pytest.mark.parametrize(
    ("accepted", "said"),
    [
        ((), "option 'c': there are none"),
        (("a",), "option 'c': accepted is a"),
        (("a", "b"), "option 'c': accepted are a, b"),
    ],
)
def test_an_unknown_option_is_refused(accepted, said):
    with pytest.raises(ValueError, match=f"^{said}$"):
        refuse_unknown({"c": 1}, accepted)


def test_known_options_are_not():
    refuse_unknown({"b": 1}, ("a", "b"))
    refuse_unknown({}, ())
