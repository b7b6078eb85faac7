"""Options of reading, as values or as sentences with the remedy."""

import pickle
from pathlib import Path

import pytest

from headrace.core.errors import LocalError
from headrace.spark.options import Connection
from headrace.spark.read_options import (
    SPARK_ROWS_PER_TRIGGER_DEFAULT,
    AssignedPartitions,
    AtOffsets,
    AtTime,
    AtTimes,
    BatchOptions,
    LogEdge,
    StreamOptions,
    Topics,
)
from tests.support.certificates import Authority

_TOPIC = {"subscribe": "flights"}


def test_should_have_kafkas_defaults_when_only_a_topic_is_given() -> None:
    batch, stream = BatchOptions.of(_TOPIC), StreamOptions.of(_TOPIC)
    assert (batch.subscription, batch.start, batch.end) == (
        Topics(("flights",)),
        LogEdge("earliest"),
        LogEdge("latest"),
    )
    assert (stream.start, stream.max_offsets) == (LogEdge("latest"), SPARK_ROWS_PER_TRIGGER_DEFAULT)
    assert batch.loss.fails
    assert not stream.loss.starts_over


def test_should_take_names_whatever_their_case() -> None:
    options = BatchOptions.of({"SUBSCRIBE": "flights", "startingoffsets": "EARLIEST", "minpartitions": " 5 "})
    assert (options.start, options.min_partitions) == (LogEdge("earliest"), 5)


def test_should_prefer_the_time_when_several_say_where_to_begin() -> None:
    offsets, times = '{"flights": {"0": 3}}', '{"flights": {"0": 1700000000000}}'
    given = {**_TOPIC, "startingOffsets": offsets}
    assert BatchOptions.of(given).start == AtOffsets("startingOffsets", {"flights": {0: 3}})
    given["startingOffsetsByTimestamp"] = times
    name = "startingOffsetsByTimestamp"
    assert BatchOptions.of(given).start == AtTimes(name, {"flights": {0: 1_700_000_000_000}})
    assert BatchOptions.of({**given, "startingTimestamp": "5"}).start == AtTime(5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": '{"flights": {"0": -1}}'}, r"-1 of flights/0: a batch query would find nothing there"),
        ({"endingOffsets": '{"flights": {"0": -2}}'}, r"-2 of flights/0: a batch query would find nothing there"),
        ({"startingOffsets": '{"flights": {"0": -3}}'}, "write an offset, -2 for earliest or -1 for latest"),
        ({"startingOffsets": '{"flights": {"0": 1.5}}'}, "startingOffsets is .*: write earliest, latest or JSON"),
        ({"startingOffsets": "5"}, "startingOffsets is '5': write earliest"),
        ({"endingOffsetsByTimestamp": '{"flights": {"0": -1}}'}, "write milliseconds since 1970"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp is 'yesterday': write a whole number from 0"),
        ({"endingOffsets": "earliest"}, "endingOffsets is earliest: a batch query would find nothing"),
        ({"timeoutMs": "0"}, "timeoutMs is 0: write a whole number from 1"),
        ({"subscribe": ","}, "subscribe is ',': name topics"),
        ({"subscribe": "Not A Topic"}, "Not A Topic"),
    ],
)
def test_should_name_the_remedy_when_a_batch_option_is_wrong(options: dict[str, str], said: str) -> None:
    with pytest.raises(LocalError, match=said):
        BatchOptions.of({**_TOPIC, **options})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxBytesPerTrigger": "much"}, "maxBytesPerTrigger: 'much' is not a quantity of bytes"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger is 0: write at least 1"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is not a duration"),
        ({"onTopicRecreated": "ignore"}, "onTopicRecreated is 'ignore': write fail or restart"),
        ({"pushFilters": "true"}, "pushFilters means nothing to a streaming query"),
        ({"group": "My Group"}, "My Group"),
        ({"maxOffsetsPerTriger": "1"}, "did you mean maxOffsetsPerTrigger"),
    ],
)
def test_should_name_the_remedy_when_a_stream_option_is_wrong(options: dict[str, str], said: str) -> None:
    with pytest.raises(LocalError, match=said):
        StreamOptions.of({**_TOPIC, **options})


@pytest.mark.parametrize("value", ["flights", "[]", "{}", '{"flights": []}', '{"flights": [-1]}', '{"flights": ["a"]}'])
def test_should_say_what_assign_looks_like_when_it_is_wrong(value: str) -> None:
    with pytest.raises(LocalError, match=r"assign is .*: write JSON such as"):
        BatchOptions.of({"assign": value})
    assert BatchOptions.of({"assign": '{"flights": [1, 0, 1]}'}).subscription == AssignedPartitions({"flights": (0, 1)})


def test_should_say_so_when_a_pattern_is_none() -> None:
    with pytest.raises(LocalError, match="no regular expression"):
        BatchOptions.of({"subscribePattern": "flights("})


def test_should_send_the_token_and_not_show_it() -> None:
    connection = Connection.of({"server": "https://there:9701", "token": "s3cret"})
    assert dict(connection.servers().headers) == {"authorization": "Bearer s3cret"}
    assert "s3cret" not in repr(connection)
    assert pickle.loads(pickle.dumps(connection)) == connection


def test_should_send_no_token_in_the_clear() -> None:
    with pytest.raises(LocalError, match="a token is never sent over plain http") as refused:
        Connection.of({"server": "http://there:9701", "token": "s3cret"}).servers()
    assert "s3cret" not in str(refused.value)


def test_should_take_along_what_only_the_driver_knows(tmp_path: Path) -> None:
    own, other = str(tmp_path / "own.crt"), str(tmp_path / "ca.crt")
    for path in (own, other):
        Path(path).write_bytes(Authority().pem)
    environ = {"HEADRACE_SERVER": "http://a:1, http://b:2", "HEADRACE_CA_FILE": other}
    resolved = Connection().resolved(environ)
    assert (resolved.server, resolved.ca_file) == ("http://a:1,http://b:2", other)
    given = Connection("http://c:3", ca_file=own).resolved(environ)
    assert (given.server, given.ca_file) == ("http://c:3", own)


def test_should_name_the_bundle_when_it_cannot_be_read() -> None:
    with pytest.raises(LocalError, match=r"CA file /nowhere/ca\.crt cannot be read"):
        Connection("http://c:3", ca_file="/nowhere/ca.crt").resolved({})
