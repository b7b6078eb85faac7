"""Fields are taken by name, come out typed, and are refused with field, value and remedy."""

from collections.abc import Callable
from enum import StrEnum

import pytest

from headrace.core.errors import BrokenSessionError, InvalidRequestError
from headrace.core.fields import INT32_MAX, INT64_MAX, BodyFields, Fields


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


ENDS = ("first", "last")


def test_should_return_what_is_said() -> None:
    read = Fields({"name": "a", "count": 3, "color": "red", "offset": 7, "end": "last", "uid": "u", "epoch": INT32_MAX})
    assert (read.text("name"), read.whole("count", 5, least=3, most=3)) == ("a", 3)
    assert read.one_of("color", Color, Color.BLUE) is Color.RED
    assert (read.whole_or("offset", ENDS), read.whole_or("end", ENDS)) == (7, "last")
    assert (read.optional_text("uid"), read.optional_whole("epoch", most=INT32_MAX)) == ("u", INT32_MAX)
    assert read.finished("all") == "all"


def test_should_return_defaults_for_what_is_not_said() -> None:
    read = Fields({})
    assert (read.text("name", "a"), read.whole("count", 0, least=1)) == ("a", 0)
    assert read.one_of("color", Color, Color.BLUE) is Color.BLUE
    assert read.whole_or("offset", ENDS, "first") == "first"
    assert (read.optional_text("uid"), read.optional_whole("epoch"), "uid" in read) == (None, None, False)


def test_should_refuse_a_number_out_of_bounds_that_is_the_default() -> None:
    assert Fields({}).whole("epoch", -1) == -1
    with pytest.raises(InvalidRequestError, match="epoch -1: must be a whole number from 0"):
        Fields({"epoch": -1}).whole("epoch", -1)


@pytest.mark.parametrize(
    ("value", "take", "words"),
    [
        (1, lambda read: read.text("x"), "x 1: must be a string"),
        (None, lambda read: read.text("x", wanted="given, as a string"), "x None: must be given, as a string"),
        (1, lambda read: read.optional_text("x"), "x 1: must be a string"),
        (True, lambda read: read.whole("x"), f"x True: must be a whole number from 0 to {INT64_MAX}"),
        (None, lambda read: read.whole("x", 5), "x None: must be a whole number from 0"),
        (9, lambda read: read.whole("x", least=1, most=8), "x 9: must be a whole number from 1 to 8"),
        (-1, lambda read: read.optional_whole("x"), "x -1: must be a whole number from 0"),
        ("red", lambda read: read.whole_or("x", ENDS), f"'red': .* from 0 to {INT64_MAX}, 'first' or 'last'"),
        (INT64_MAX + 1, lambda read: read.whole_or("x", ("last",)), f"from 0 to {INT64_MAX}, or 'last'"),
        ("green", lambda read: read.one_of("x", Color), "x 'green': must be one of 'red', 'blue'"),
        (["red"], lambda read: read.one_of("x", Color), "must be one of 'red', 'blue'"),
    ],
)
def test_should_name_field_value_and_remedy(value: object, take: Callable[[Fields], object], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words) as refused:
        take(Fields({"x": value}))
    assert refused.value.details == {"field": "x"}


def test_should_refuse_what_nobody_has_taken() -> None:
    read = Fields({"b": 1, "a": 1, "count": 1})
    with pytest.raises(InvalidRequestError, match="a: this frame takes no such member; it takes none"):
        read.finished(())
    read.whole("count")
    read.text("name", "")
    with pytest.raises(InvalidRequestError, match="a: this frame takes no such member; it takes count, name"):
        read.finished(())


def test_should_raise_the_error_that_it_was_given() -> None:
    with pytest.raises(BrokenSessionError, match="count None: must be a whole number"):
        Fields({}, BrokenSessionError).whole("count")


def test_should_take_a_null_in_a_body_for_absent() -> None:
    read = BodyFields({"count": None, "done": True}, "the body")
    assert (read.whole("count", -1), read.truth("done"), read.truth("once", default=False)) == (-1, True, False)
    with pytest.raises(InvalidRequestError, match="count is missing in the body: send a whole number from 0"):
        read.whole("count")
    with pytest.raises(InvalidRequestError, match="done of the body is 1: send true or false"):
        BodyFields({"done": 1}, "the body").truth("done")


def test_should_read_lists_of_a_body() -> None:
    read = BodyFields({"names": ["a"], "counts": [1, 2], "pairs": [[1], []], "shares": [{"count": 3}]}, "the body")
    assert (read.texts("names"), read.wholes("counts"), read.lists("pairs")) == (["a"], [1, 2], [[1], []])
    assert [each.whole("count") for each in read.objects("shares")] == [3]
    assert (read.texts("others", []), read.wholes("more", [])) == ([], [])
    with pytest.raises(InvalidRequestError, match=r"pairs of the body is \[1\]: send a list of lists"):
        BodyFields({"pairs": [1]}, "the body").lists("pairs")
    with pytest.raises(InvalidRequestError, match=r"count is missing in shares\[0\] of the body"):
        BodyFields({"shares": [{}]}, "the body").objects("shares")[0].whole("count")
