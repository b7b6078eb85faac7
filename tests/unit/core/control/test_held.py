"""A broker's report crosses HTTP and comes out as it went in."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.control.broker_reports import BrokerReport, Epochs, HeldLog, known_epochs
from headrace.core.errors import RemoteError
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import LeaderEpoch, Offset, PartitionEpoch, PartitionId, PartitionKey, TopicUid
from tests.support.partition_sets import partition_state, seat

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
