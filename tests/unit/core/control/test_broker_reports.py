"""A broker's report crosses HTTP and comes out as it went in."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.control.broker_reports import (
    BrokerReport,
    Epochs,
    HeldLog,
    PromisedLog,
    Promises,
    known_epochs,
    may_promise,
    parse_promises_request,
    promises_request_object,
)
from headrace.core.errors import RemoteError
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import Durability
from headrace.core.types import LeaderEpoch, Offset, PartitionEpoch, PartitionId, PartitionKey, TopicUid
from tests.support.partition_sets import partition_state, seat

KEY = PartitionKey(TopicUid("uid-1"), PartitionId(3))
LOG = PromisedLog(LeaderEpoch(4), Offset(20), Offset(15), "its volume is another")


def epochs(leader: int, partition: int) -> Epochs:
    return Epochs(LeaderEpoch(leader), PartitionEpoch(partition))


def test_should_read_what_was_asked_and_what_was_answered() -> None:
    asked = {KEY: epochs(4, 9), PartitionKey(TopicUid("uid-0"), PartitionId(0)): epochs(1, 1)}
    assert parse_promises_request(promises_request_object(asked)) == asked
    answer = Promises(seat(2, 5), {KEY: LOG})
    assert Promises.parse(answer.to_object()) == answer
    assert answer.to_object()["partitions"][0]["renewable"] is False


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        {"partitions": [{}]},
        {"partitions": [{"topicUid": "u", "partition": "0", "leaderEpoch": 1, "partitionEpoch": 1}]},
        {"partitions": [{"topicUid": "u", "partition": 0, "leaderEpoch": True, "partitionEpoch": 1}]},
        {"partitions": [{"topicUid": "u", "partition": 0, "leaderEpoch": 1.5, "partitionEpoch": 1}]},
        {"partitions": [{"topicUid": "u", "partition": 0, "leaderEpoch": 1, "partitionEpoch": -1}]},
        {"partitions": [{"topicUid": "u", "partition": 1024, "leaderEpoch": 1, "partitionEpoch": 1}]},
        {"partitions": [{"topicUid": "", "partition": 0, "leaderEpoch": 1, "partitionEpoch": 1}]},
        {"partitions": [{"topicUid": 7, "partition": 0, "leaderEpoch": 1, "partitionEpoch": 1}]},
        {"partitions": [], "more": 1},
        {"partitions": {}},
    ],
)
def test_should_refuse_what_is_no_question(document: Any) -> None:
    with pytest.raises(ValueError, match="the body must be"):
        parse_promises_request(document)


def test_should_refuse_more_questions_than_one_request_has() -> None:
    entry = promises_request_object({KEY: epochs(1, 1)})["partitions"][0]
    with pytest.raises(ValueError, match="10001 partitions, at most 10000"):
        parse_promises_request({"partitions": [entry] * 10_001})


def test_should_take_whole_numbers_however_they_are_written() -> None:
    entry = {"topicUid": "u", "partition": 3.0, "leaderEpoch": 4.0, "partitionEpoch": 9}
    assert parse_promises_request({"partitions": [entry]}) == {
        PartitionKey(TopicUid("u"), PartitionId(3)): epochs(4, 9)
    }


@pytest.mark.parametrize("document", [{}, {"broker": 1, "incarnation": 1, "partitions": [{"topicUid": "u"}]}])
def test_should_refuse_what_is_no_answer(document: dict[str, Any]) -> None:
    with pytest.raises(RemoteError, match="no promise of a broker"):
        Promises.parse(document)


@pytest.mark.parametrize("field", ["lastEpoch", "logEndOffset", "durableEndOffset", "partition"])
def test_should_refuse_an_answer_in_words(field: str) -> None:
    document = Promises(seat(2, 5), {KEY: LOG}).to_object()
    document["partitions"][0][field] = "20"
    with pytest.raises(RemoteError, match=f"{field} is not a whole number"):
        Promises.parse(document)


def test_should_take_the_answer_of_an_empty_log() -> None:
    answer = Promises(seat(2, 5), {KEY: PromisedLog(NO_EPOCH, Offset(0), Offset(0))})
    assert Promises.parse(answer.to_object()) == answer


def test_should_promise_only_what_is_led_by_nobody_and_no_older_than_what_was_seen() -> None:
    offline = partition_state(leader=None, leader_epoch=LeaderEpoch(4), partition_epoch=PartitionEpoch(9))
    assert may_promise(offline, epochs(4, 9))
    assert may_promise(offline, epochs(3, 8))
    assert not may_promise(offline, epochs(4, 10)), "what the operator saw has not come here yet"
    assert not may_promise(offline, epochs(5, 9))
    led = partition_state(leader=seat(0), leader_epoch=LeaderEpoch(4), partition_epoch=PartitionEpoch(9))
    assert not may_promise(led, epochs(4, 9))
    assert not may_promise(None, epochs(4, 9))


def test_should_count_what_is_on_disk_where_the_topic_asks_for_that() -> None:
    assert LOG.rank(Durability.FSYNC) == (4, 15)
    assert LOG.rank(Durability.REPLICATED) == (4, 20)


_numbers = st.integers(0, 1 << 31)
_keys = st.builds(PartitionKey, st.sampled_from([TopicUid("a"), TopicUid("b")]), st.integers(0, 3).map(PartitionId))
_epochs = st.builds(Epochs, _numbers.map(LeaderEpoch), _numbers.map(PartitionEpoch))
_logs = st.builds(
    HeldLog,
    _numbers.map(LeaderEpoch),
    _numbers.map(Offset),
    st.booleans(),
    st.text(),
    st.text(),
    set_aside=st.booleans(),
    namespace=st.text(),
    applied_epoch=_numbers.map(LeaderEpoch),
)


@given(st.dictionaries(_keys, _epochs), st.dictionaries(_keys, _logs))
def test_should_come_out_as_it_went_in(known: dict[PartitionKey, Epochs], logs: dict[PartitionKey, HeldLog]) -> None:
    nothing = Epochs(LeaderEpoch(0), PartitionEpoch(0))
    parsed = BrokerReport.parse(json.loads(json.dumps(BrokerReport(seat(3, 7), known, logs).to_object())))
    assert parsed == BrokerReport(seat(3, 7), {**dict.fromkeys(logs, nothing), **known}, logs)


def test_should_take_an_older_broker_to_act_upon_what_it_has_heard() -> None:
    key, known = PartitionKey(TopicUid("a"), PartitionId(0)), Epochs(LeaderEpoch(4), PartitionEpoch(2))
    log = HeldLog(LeaderEpoch(3), Offset(1), leads=True, applied_epoch=LeaderEpoch(4))
    document = BrokerReport(seat(3, 7), {key: known}, {key: log}).to_object()
    del document["partitions"][0]["log"]["appliedEpoch"]
    assert BrokerReport.parse(document).logs == {key: log}


def test_should_know_the_greatest_of_all_that_it_has_heard() -> None:
    first, second, third = (PartitionKey(TopicUid("a"), PartitionId(number)) for number in range(3))
    old = {first: _state(5, 9)}
    anew = {first: _state(6, 3), second: _state(2, 4)}
    known = known_epochs({first: LeaderEpoch(4), third: LeaderEpoch(7)}, anew, old)
    assert known == {first: (6, 9), second: (2, 4), third: (7, 0)}


def _state(leader_epoch: int, partition_epoch: int) -> PartitionState:
    return partition_state(leader_epoch=LeaderEpoch(leader_epoch), partition_epoch=PartitionEpoch(partition_epoch))


def test_should_refuse_what_is_no_report() -> None:
    with pytest.raises(RemoteError, match="no report of what a broker holds"):
        BrokerReport.parse({"broker": 1})
