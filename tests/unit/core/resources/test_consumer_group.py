from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.groups.identity import (
    Assignor,
    GroupEpoch,
    GroupName,
    GroupState,
    GroupType,
    MemberId,
    OffsetRetention,
)
from headrace.core.resources.consumer_group import (
    GROUP_SESSION_MS_MAX,
    GROUP_SESSION_MS_MIN,
    ConsumerGroup,
    ConsumerGroupSpec,
    ConsumerGroupStatus,
    LastReset,
    MemberStatus,
    ResetOffset,
    ResetOffsets,
    ResetTo,
    TopicShare,
    TopicStatus,
    auto_created,
)
from headrace.core.resources.metadata import InvalidResourceError, Metadata
from headrace.core.types import BrokerId, Offset, PartitionId, TopicUid
from headrace.kube.resource import CONSUMER_GROUPS

moments = st.integers(0, 4_000_000_000).map(lambda seconds: seconds * 1000)
names = st.sampled_from(["flights", "orders"])
offsets = st.builds(ResetOffset, names, st.integers(0, 9).map(PartitionId), st.integers(0, 1 << 62).map(Offset))
resets = st.one_of(
    st.builds(ResetOffsets, st.just("a"), st.sampled_from([ResetTo.EARLIEST, ResetTo.LATEST])),
    st.builds(ResetOffsets, st.just("b"), st.just(ResetTo.TIMESTAMP), moments, st.lists(names).map(tuple)),
    st.builds(
        ResetOffsets,
        st.just("c"),
        st.just(ResetTo.OFFSETS),
        offsets=st.lists(offsets, min_size=1).map(tuple),
    ),
)
specs = st.builds(
    ConsumerGroupSpec,
    cluster=st.sampled_from(["headrace", "other"]),
    type=st.sampled_from(GroupType),
    assignor=st.sampled_from(Assignor),
    session_timeout_ms=st.integers(1, 10**9),
    offsets_retention_ms=st.none() | st.integers(1, 10**12),
    paused_until_ms=st.none() | moments,
    reset_offsets=st.none() | resets,
)
shares = st.lists(st.builds(TopicShare, names, st.just((PartitionId(0), PartitionId(2)))), max_size=2).map(tuple)
members = st.builds(
    MemberStatus,
    member=st.just(MemberId("m1")),
    instance=st.sampled_from(["", "billing-0"]),
    client_address=st.just("::1"),
    epoch=st.integers(0, 9).map(GroupEpoch),
    topics=st.lists(names).map(tuple),
    assignment=shares,
    owned=shares,
)
topics = st.builds(TopicStatus, names, st.just(TopicUid("uid-1")), st.none() | st.integers(0, 1 << 60))
statuses = st.builds(
    ConsumerGroupStatus,
    observed_generation=st.integers(0, 9),
    state=st.none() | st.sampled_from([state for state in GroupState if state is not GroupState.DEAD]),
    group_epoch=st.integers(0, 9).map(GroupEpoch),
    assignment_epoch=st.integers(0, 9).map(GroupEpoch),
    coordinator=st.none() | st.integers(0, 9).map(BrokerId),
    members=st.lists(members, max_size=2).map(tuple),
    topics=st.lists(topics, max_size=2).map(tuple),
    last_reset=st.none() | st.builds(LastReset, st.just("a"), st.sampled_from(["", "2026-12-01T00:00:00Z"])),
    conditions=st.just(({"type": "Ready", "status": "True"},)),
)


@pytest.mark.parametrize(
    "reset",
    [
        ResetOffsets("a", ResetTo.EARLIEST, topics=("flights",)),
        ResetOffsets("b", ResetTo.TIMESTAMP, 1_795_305_600_000),
        ResetOffsets("c", ResetTo.OFFSETS, offsets=(ResetOffset("flights", PartitionId(2), Offset(7)),)),
    ],
)
def test_should_write_out_a_reset_as_it_was_read(reset: ResetOffsets) -> None:
    assert ResetOffsets.parse(reset.to_object()) == reset


def test_should_write_out_a_group_with_all_that_is_known_of_it() -> None:
    share = TopicShare("flights", (PartitionId(0), PartitionId(2)))
    one = MemberStatus(MemberId("m1"), "billing-0", "::1", GroupEpoch(3), ("flights",), (share,), (share,))
    status = ConsumerGroupStatus(
        2, GroupState.STABLE, GroupEpoch(3), GroupEpoch(3), BrokerId(1), (one,), last_reset=LastReset("a", "")
    )
    spec = ConsumerGroupSpec(paused_until_ms=1_795_305_600_000, reset_offsets=ResetOffsets("a", ResetTo.LATEST))
    group = ConsumerGroup(Metadata("billing", "default"), spec, status)
    assert CONSUMER_GROUPS.parse(group.to_object()) == group
    assert group.name == GroupName("default", "billing")
    plain = ConsumerGroup(Metadata("billing", "default"), ConsumerGroupSpec(offsets_retention_ms=None))
    assert CONSUMER_GROUPS.parse(plain.to_object()) == plain


@given(specs, statuses)
def test_should_come_back_when_any_group_is_written_out(spec: ConsumerGroupSpec, status: ConsumerGroupStatus) -> None:
    group = ConsumerGroup(Metadata("billing", "default"), spec, status)
    assert CONSUMER_GROUPS.parse(group.to_object()) == group
    assert group.name == GroupName("default", "billing")


def test_should_fill_in_the_defaults_of_the_resource() -> None:
    assert ConsumerGroup.parse({"metadata": {"name": "billing"}}) == ConsumerGroup(Metadata("billing"))
    spec = ConsumerGroupSpec()
    assert (spec.cluster, spec.type, spec.assignor) == ("headrace", GroupType.CONSUMER, Assignor.UNIFORM)
    assert (spec.session_timeout_ms, spec.offsets_retention_ms) == (45_000, 7 * 86_400_000)
    assert ConsumerGroupStatus.parse({"state": "Unknown"}) == ConsumerGroupStatus()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"assignor": "Best"}, "spec.assignor: 'Best'"),
        ({"type": "Kafka"}, "spec.type: 'Kafka'"),
        ({"sessionTimeout": "45"}, "spec.sessionTimeout: '45' is not a duration"),
        ({"offsetsRetention": 7}, "spec.offsetsRetention"),
    ],
)
def test_should_name_the_field_when_it_cannot_be_read(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidResourceError) as raised:
        ConsumerGroup.parse({"metadata": {"name": "billing"}, "spec": spec})
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"pausedUntil": "tomorrow"}, "spec.pausedUntil: 'tomorrow' is no point in time"),
        ({"pausedUntil": "2026-12-01T00:00:00"}, "spec.pausedUntil: '2026-12-01T00:00:00' is no point in time"),
        ({"resetOffsets": {"to": "Latest"}}, "spec.resetOffsets: id is missing"),
        ({"resetOffsets": {"id": "a", "to": "Timestamp"}}, "spec.resetOffsets: timestamp belongs"),
        ({"resetOffsets": {"id": "a", "to": "Offsets", "offsets": []}}, "spec.resetOffsets: offsets belong"),
    ],
)
def test_should_go_on_without_what_cannot_be_read(spec: dict[str, Any], said: str) -> None:
    found = ConsumerGroup.parse({"metadata": {"name": "billing"}, "spec": {"sessionTimeout": "9s", **spec}})
    (name,) = spec
    (fault,) = found.spec.faults
    assert (fault.field, fault.message) == (f"spec.{name}", found.spec.fault(name))
    assert said in fault.message
    assert found.spec.session_timeout_ms == 9_000
    assert (found.spec.paused_until_ms, found.spec.reset_offsets) == (None, None)
    assert found.spec.fault("sessionTimeout") == ""


def test_should_read_times_as_the_api_server_does() -> None:
    times = ("2026-11-22T00:00:00z", "2026-11-22t00:00:00Z", "2026-11-22T01:00:00+01:00")
    read = {ConsumerGroupSpec.parse({"pausedUntil": each}).paused_until_ms for each in times}
    assert read == {1_795_305_600_000}


def test_should_refuse_a_status_that_cannot_be_read() -> None:
    with pytest.raises(InvalidResourceError, match="status"):
        ConsumerGroup.parse({"metadata": {"name": "billing"}, "status": {"members": [{}]}})


def test_should_tell_the_coordinator_times_by_its_own_clock() -> None:
    spec = ConsumerGroupSpec(session_timeout_ms=6_000, paused_until_ms=1_000_500, offsets_retention_ms=None)
    group = ConsumerGroup(Metadata("billing"), spec)
    settings = group.settings(70, 1_000_000)
    assert (settings.session_ms, settings.paused_until_ms, settings.offsets_retention_ms) == (6_000, 570, None)
    assert [group.is_paused(at) for at in (1_000_499, 1_000_500)] == [True, False]
    assert not ConsumerGroup(Metadata("billing")).is_paused(0)
    assert ConsumerGroup(Metadata("billing")).settings(0, 5).paused_until_ms is None


@pytest.mark.parametrize(("asked_ms", "given_ms"), [(1, GROUP_SESSION_MS_MIN), (1 << 40, GROUP_SESSION_MS_MAX)])
def test_should_keep_sessions_within_reason(asked_ms: int, given_ms: int) -> None:
    spec = ConsumerGroupSpec(session_timeout_ms=asked_ms)
    assert ConsumerGroup(Metadata("billing"), spec).settings(0, 0).session_ms == given_ms


def test_should_know_its_own_work_again() -> None:
    made = ConsumerGroup.parse(auto_created(GroupName("lab", "billing"), "other"))
    assert (made.name, made.spec.cluster, made.auto_created) == (GroupName("lab", "billing"), "other", True)
    assert made.spec.offsets_retention_ms == ConsumerGroupSpec().offsets_retention_ms
    for kept_ms in (None, 30_000):
        again = ConsumerGroup.parse(auto_created(GroupName("lab", "billing"), "other", OffsetRetention(kept_ms)))
        assert again.spec.offsets_retention_ms == kept_ms
    assert not ConsumerGroup(Metadata("billing")).auto_created
    assert not made.deleting
    assert ConsumerGroup(Metadata("billing", deletion_timestamp="now")).deleting


def test_should_add_lags_up_as_far_as_they_are_known() -> None:
    known = TopicStatus("flights", TopicUid("u1"), 7)
    unknown = TopicStatus("orders", TopicUid("u2"), None)
    assert ConsumerGroupStatus(topics=(known, known._replace(lag=5))).lag == "12"
    assert ConsumerGroupStatus(topics=(known, unknown)).lag == "unknown"
    written = ConsumerGroupStatus(topics=(known, unknown)).to_object()
    assert (written["topicNames"], written["memberCount"]) == ("flights,orders", 0)
