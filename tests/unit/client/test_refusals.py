"""A mistake in a call is refused by name, with what to do instead."""

from datetime import date
from functools import partial
from typing import Any

import pytest

from headrace import AsyncConsumer, AsyncProducer, Consumer, Producer
from headrace.client.consumer.options import as_ms, fixed_offset
from headrace.client.groups.assigned_partitions import checked_metadata
from headrace.client.record import as_bytes, as_headers, check_offset
from headrace.core.errors import LocalError

NOBODY = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("made", "options", "said"),
    [
        (Producer, {"bootstrap_servers": NOBODY}, "Producer has no option bootstrap_servers: do you mean server?"),
        (AsyncProducer, {"linger": 5}, "AsyncProducer has no option linger: do you mean linger_ms?"),
        (Consumer, {"topics": ["flights"]}, "Consumer has no option topics: do you mean the topics' names as they are"),
        (AsyncConsumer, {"group_id": "a"}, "AsyncConsumer has no option group_id: do you mean group?"),
        (Producer, {"xyz": 1}, "Producer has no option xyz: it has server, namespace, acks"),
    ],
)
def test_should_name_the_option_that_is_meant(made: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError) as caught:
        made(**options)
    assert str(caught.value).startswith(said)


def test_should_say_that_the_producer_is_closed_whatever_the_topic() -> None:
    producer = Producer(NOBODY)
    producer.close()
    with pytest.raises(LocalError, match="this producer is closed"):
        producer.send("flights", b"a")


async def test_should_say_that_the_async_producer_is_closed_whatever_the_topic() -> None:
    producer = AsyncProducer(NOBODY)
    await producer.close()
    with pytest.raises(LocalError, match="this producer is closed"):
        await producer.send("flights", b"a")


def test_should_give_an_example_that_is_python_where_a_header_is_wrong() -> None:
    wrong: Any = {"a": 1}
    with pytest.raises(TypeError, match=r"header 'a' is int, .* for example json\.dumps\(value\) or str\(value\)"):
        as_headers(wrong)


@pytest.mark.parametrize("time", ["2024-01-01", None, date(2024, 1, 1), True, 1.5])
def test_should_refuse_what_is_no_time(time: Any) -> None:
    with pytest.raises(TypeError, match=r"time is \w+: give a datetime, or milliseconds since 1970-01-01 UTC"):
        as_ms(time)


def test_should_refuse_a_time_beyond_64_bits() -> None:
    with pytest.raises(LocalError, match="time is 9223372036854775808"):
        as_ms(2**63)


@pytest.mark.parametrize("offset", [2**63, True, False, -1])
def test_should_refuse_what_is_no_offset(offset: Any) -> None:
    with pytest.raises(LocalError, match=f"offset is {offset}: it must be earliest, latest, an offset from 0"):
        fixed_offset(offset, "offset")


def test_should_refuse_to_commit_what_is_no_offset() -> None:
    for wrong in (True, "5", None):
        with pytest.raises(TypeError, match=r"the offset of flights/0 is \w+: give a whole number"):
            check_offset("the offset of flights/0", wrong)
    for out_of_range in (-1, 2**63):
        with pytest.raises(LocalError, match="it must be 0 or more, that of the next record"):
            check_offset("the offset of flights/0", out_of_range)


def test_should_refuse_half_of_a_surrogate_pair_by_name() -> None:
    half = "a\ud800"
    said = r"cannot be stored as UTF-8: character 1 is '\\ud800', half of a surrogate pair"
    with pytest.raises(LocalError, match=f"value {said}"):
        as_bytes("value", half)
    with pytest.raises(LocalError, match=f"header 'a' {said}"):
        as_headers({"a": half})
    with pytest.raises(LocalError, match=f"a header's name {said}"):
        as_headers({half: "a"})
    with pytest.raises(LocalError, match=f"metadata {said}"):
        checked_metadata(half)
    for name, made in (
        ("namespace", partial(Producer, "http://127.0.0.1:1", half)),
        ("instance_id", partial(Consumer, "flights", group="g", instance_id=half)),
        ("pattern", partial(Consumer, pattern=half, group="g")),
    ):
        with pytest.raises(LocalError, match=f"{name} {said}"):
            made()
