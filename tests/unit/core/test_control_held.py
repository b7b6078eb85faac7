"""A broker's report crosses HTTP and comes out as it went in."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.control.held import BrokerReport, Epochs, HeldLog
from headrace.core.errors import RemoteError
from headrace.core.types import LeaderEpoch, Offset, PartitionEpoch, PartitionId, PartitionKey, TopicUid
from tests.support.partition_sets import seat

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
)


@given(st.dictionaries(_keys, _epochs), st.dictionaries(_keys, _logs))
def test_should_come_out_as_it_went_in(known: dict[PartitionKey, Epochs], logs: dict[PartitionKey, HeldLog]) -> None:
    nothing = Epochs(LeaderEpoch(0), PartitionEpoch(0))
    parsed = BrokerReport.parse(json.loads(json.dumps(BrokerReport(seat(3, 7), known, logs).to_object())))
    assert parsed == BrokerReport(seat(3, 7), {**dict.fromkeys(logs, nothing), **known}, logs)


def test_should_refuse_what_is_no_report() -> None:
    with pytest.raises(RemoteError, match="no report of what a broker holds"):
        BrokerReport.parse({"broker": 1})
