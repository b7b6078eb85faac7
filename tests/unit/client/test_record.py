"""Bytes, text or nothing; anything else is refused with the remedy."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest

from headrace.client.record import as_bytes, as_headers, as_timestamp_ms, as_topic
from headrace.core.errors import LocalError
from headrace.core.limits import RECORD_HEADERS_MAX


@pytest.mark.parametrize(
    ("given", "stored"),
    [(None, None), (b"a", b"a"), ("ä", b"\xc3\xa4"), (bytearray(b"a"), b"a"), (memoryview(b"a"), b"a"), ("", b"")],
)
def test_should_take_bytes_text_and_none(given: Any, stored: bytes | None) -> None:
    assert as_bytes("value", given) == stored


@pytest.mark.parametrize("given", [1, 1.5, {"a": 1}, ["a"], True])
def test_should_name_the_remedy_when_the_type_is_another(given: Any) -> None:
    with pytest.raises(TypeError, match=r"value is \w+, not bytes, str or None: .* json\.dumps\(value\)"):
        as_bytes("value", given)


def test_should_keep_order_and_duplicates_when_headers_are_pairs() -> None:
    assert as_headers([("b", "1"), ("a", None), ("b", b"2")]) == (("b", b"1"), ("a", None), ("b", b"2"))
    assert as_headers({"trace": "1"}) == (("trace", b"1"),)


def test_should_refuse_headers_when_a_name_or_value_has_the_wrong_type() -> None:
    wrong: Any = [(1, "a")]
    with pytest.raises(TypeError, match="name is int"):
        as_headers(wrong)
    wrong = [("a", 1)]
    with pytest.raises(TypeError, match="header 'a' is int"):
        as_headers(wrong)


@pytest.mark.parametrize("given", ["abc", ["trace"], [("trace", "1", "2")], [5]])
def test_should_say_what_headers_are_when_they_are_no_pairs(given: Any) -> None:
    with pytest.raises(TypeError, match=r"a header is .*: headers are \(name, value\) pairs, or a mapping"):
        as_headers(given)


@pytest.mark.parametrize("given", ["1763715600000", 1.5, date(2026, 1, 1), np.datetime64("NaT")])
def test_should_name_the_remedy_when_a_time_is_no_whole_number(given: Any) -> None:
    with pytest.raises(TypeError, match=r"timestamp_ms is \w+: give whole milliseconds since 1970-01-01 UTC"):
        as_timestamp_ms(given)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 1, 1, 1, 0, 0, 1_999, tzinfo=timezone(timedelta(hours=1))),
        datetime(2026, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC).astimezone().replace(tzinfo=None),
        pd.Timestamp("2026-01-01T00:00:00.001"),
        pd.Timestamp("2026-01-01T01:00:00.001+01:00"),
        np.datetime64("2026-01-01T00:00:00.001"),
        np.int64(1_767_225_600_001),
    ],
)
def test_should_take_a_moment_as_a_time(moment: Any) -> None:
    assert as_timestamp_ms(moment) == 1_767_225_600_001


@pytest.mark.parametrize("moment", [datetime.min.replace(tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC), pd.NaT])
def test_should_refuse_a_moment_that_no_record_can_have(moment: Any) -> None:
    with pytest.raises(LocalError, match=r"timestamp_ms is .*: it must be .* since 1970-01-01 UTC"):
        as_timestamp_ms(moment)


def test_should_refuse_a_time_that_a_record_cannot_hold() -> None:
    assert as_timestamp_ms(2**63 - 1) == 2**63 - 1
    with pytest.raises(LocalError, match="from 0 to 2\\^63-1"):
        as_timestamp_ms(2**63)


def test_should_refuse_more_headers_than_a_record_may_have() -> None:
    with pytest.raises(LocalError, match=f"limit is {RECORD_HEADERS_MAX}"):
        as_headers([("a", "b")] * (RECORD_HEADERS_MAX + 1))


def test_should_say_what_a_topic_is_when_it_is_no_name() -> None:
    assert as_topic("flights") == "flights"
    with pytest.raises(TypeError, match="a topic is NoneType, not str"):
        as_topic(None)
    with pytest.raises(LocalError, match="the topic's name is empty"):
        as_topic("")
    with pytest.raises(LocalError, match=r"'my_topic' cannot name a topic.*; try my-topic"):
        as_topic("my_topic")
