"""What lives on a broker follows from what the API says and what the disk holds, whatever happened before."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.replication.residency import (
    Action,
    Adopt,
    Close,
    Delete,
    Holding,
    ObservedPartitions,
    Open,
    Orphan,
    Purge,
    Report,
    Restore,
    plan_residency,
)
from headrace.core.replication.seats import LogFacts
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import BrokerId, LeaderEpoch, PartitionId, PartitionKey, Seat, TopicUid
from tests.support.partition_sets import partition_set, partition_state, seat

ME = seat(0, 2)
UID = TopicUid("uid-1")
KEY = PartitionKey(UID, PartitionId(0))
LOG = LogFacts(LeaderEpoch(1))
IN_SIGHT = "in sight"
THE_FIRST = partition_set(partition_state()).uid


def plan(
    *sets: PartitionSet,
    held: Mapping[PartitionKey, Holding] | None = None,
    logs: Mapping[PartitionKey, LogFacts] | None = None,
    described: bool = True,
    overdue: bool = False,
    going: bool | str = False,
    kept: Collection[TopicUid] = (),
) -> list[Action]:
    described_uids = {UID} if described else set()
    overdue_keys, going_keys = {KEY} if overdue else set(), {KEY} if going else set()
    opened = {key: THE_FIRST for key, holding in (held or {}).items() if holding is Holding.OPEN}
    observed = ObservedPartitions(ME, sets, held or {}, logs or {}, opened, described_uids, overdue_keys, going_keys)
    return plan_residency(replace(observed, moved_in_sight={KEY} if going == IN_SIGHT else set(), kept=kept))


def test_should_open_what_is_placed_here_when_it_is_not_open() -> None:
    here = partition_set(partition_state(leader=ME))
    opened = Open(KEY, here.topic_name, here.partitions[0], here.uid, "flights-0 places it here")
    assert plan(here) == [opened]
    assert plan(here, held={KEY: Holding.RESTING}) == [opened]
    assert plan(here, held={KEY: Holding.BUSY}) == []
    assert plan(here, held={KEY: Holding.OPEN}, logs={KEY: LOG}) == []


def made_anew(leader: Seat, **fields: Any) -> PartitionSet:
    first = partition_set(partition_state(leader=leader), **fields)
    return replace(first, metadata=replace(first.metadata, uid="made anew"))


def test_should_close_what_was_opened_for_a_set_that_was_deleted_and_made_anew() -> None:
    closed = Close(KEY, "flights-0 was deleted and made anew")
    for anew in (made_anew(ME), made_anew(seat(1))):
        assert plan(anew, held={KEY: Holding.OPEN}, logs={KEY: LOG}) == [closed]
        assert plan(anew, held={KEY: Holding.OPEN}, logs={KEY: LOG}, going=IN_SIGHT) == [closed]
        assert plan(anew, held={KEY: Holding.BUSY}) == []
    (opened,) = plan(made_anew(ME), held={KEY: Holding.RESTING})
    assert isinstance(opened, Open)
    assert opened.asked_by == "made anew"
    (deleted,) = plan(made_anew(ME, deleting=True), held={KEY: Holding.OPEN})
    assert isinstance(deleted, Delete)


def test_should_wait_when_the_settings_of_the_topic_are_not_known() -> None:
    assert plan(partition_set(partition_state(leader=ME)), described=False) == []


def test_should_leave_alone_what_is_placed_elsewhere() -> None:
    elsewhere = partition_set(partition_state(leader=seat(1)))
    assert plan(elsewhere) == []
    assert plan(elsewhere, held={KEY: Holding.RESTING}) == []


def test_should_delete_what_was_moved_to_others_and_nothing_else_that_is_placed_elsewhere() -> None:
    moved = partition_set(partition_state(leader=seat(1)))
    for holding in (Holding.OPEN, Holding.RESTING, Holding.BROKEN):
        (deleted,) = plan(moved, held={KEY: holding}, going=IN_SIGHT)
        assert deleted == Delete(KEY, "flights-0 has moved it to other brokers")
    assert plan(moved, held={KEY: Holding.BUSY}, going=IN_SIGHT) == []
    nobody_leads = partition_set(partition_state(leader=None, replicas=(BrokerId(1),)))
    assert plan(nobody_leads, held={KEY: Holding.RESTING}, going=IN_SIGHT) == []
    still_here = partition_set(partition_state(leader=ME))
    assert plan(still_here, held={KEY: Holding.OPEN}, logs={KEY: LOG}, going=IN_SIGHT) == []


def test_should_set_aside_what_was_moved_to_others_out_of_sight_and_take_it_back_when_it_is_placed_here_again() -> None:
    moved = partition_set(partition_state(leader=seat(1)))
    for holding in (Holding.OPEN, Holding.RESTING, Holding.BROKEN):
        (orphaned,) = plan(moved, held={KEY: holding}, going=True)
        assert isinstance(orphaned, Orphan), "`cluster recover` may have dropped the only copy"
    assert plan(moved, held={KEY: Holding.ORPHANED}, going=True) == []
    (purged,) = plan(moved, held={KEY: Holding.ORPHANED}, going=True, overdue=True, kept={UID})
    assert isinstance(purged, Purge)
    nobody_leads = partition_set(partition_state(leader=None, replicas=(BrokerId(1),)))
    assert plan(nobody_leads, held={KEY: Holding.ORPHANED}, going=True, overdue=True) == []
    here = partition_set(partition_state(leader=ME))
    assert [type(action) for action in plan(here, held={KEY: Holding.ORPHANED}, going=True)] == [Restore]
    deleting = partition_set(partition_state(leader=seat(1)), deleting=True)
    assert [type(action) for action in plan(deleting, held={KEY: Holding.ORPHANED}, going=True)] == [Restore]


def test_should_report_and_not_write_when_epochs_went_back() -> None:
    old = partition_set(partition_state(leader=seat(0, 1)))
    (report,) = plan(old, held={KEY: Holding.OPEN}, logs={KEY: LogFacts(LeaderEpoch(9))})
    assert isinstance(report, Report)
    assert report.key == KEY


def test_should_delete_the_data_when_the_topic_is_being_deleted() -> None:
    deleting = partition_set(partition_state(leader=ME), deleting=True)
    reason = "topic default/flights is being deleted"
    assert plan(deleting, held={KEY: Holding.OPEN}, logs={KEY: LOG}) == [Delete(KEY, reason)]
    assert plan(deleting, held={KEY: Holding.RESTING}) == [Delete(KEY, reason)]
    assert plan(deleting, held={KEY: Holding.BUSY}) == []
    assert plan(deleting, held={KEY: Holding.ORPHANED}) == [Restore(KEY, "topic default/flights is back")]
    assert plan(deleting) == []


def test_should_set_aside_and_never_delete_when_the_topic_is_in_no_set() -> None:
    (orphaned,) = plan(held={KEY: Holding.OPEN}, logs={KEY: LOG})
    assert isinstance(orphaned, Orphan)
    assert isinstance(plan(held={KEY: Holding.RESTING})[0], Orphan)
    assert plan(held={KEY: Holding.ORPHANED}) == []
    assert plan(held={KEY: Holding.BUSY}) == []


def test_should_purge_what_is_overdue_only_while_no_set_names_it() -> None:
    reason = "its topic has not returned within the orphan retention"
    assert plan(held={KEY: Holding.ORPHANED}, overdue=True) == [Purge(KEY, reason)]
    assert plan(held={KEY: Holding.BUSY}, overdue=True) == []
    back = plan(partition_set(partition_state(leader=ME)), held={KEY: Holding.ORPHANED}, overdue=True)
    assert [type(action) for action in back] == [Restore]


def test_should_set_aside_what_the_sets_of_its_topic_do_not_name() -> None:
    other = partition_set(partition_state(1, leader=seat(1)))
    (orphaned,) = plan(other, held={KEY: Holding.OPEN}, logs={KEY: LOG})
    assert isinstance(orphaned, Orphan)
    assert plan(other, held={KEY: Holding.ORPHANED}, overdue=True) == [], "the topic is there"


def test_should_purge_nothing_that_a_topic_has_or_claims() -> None:
    assert plan(held={KEY: Holding.ORPHANED}, overdue=True, kept={UID}) == []


def test_should_adopt_before_it_opens_and_only_what_is_set_aside_for_good() -> None:
    old = PartitionKey(TopicUid("uid-0"), PartitionId(0))
    here = partition_set(partition_state(leader=ME)).adopting(old.uid, [PartitionId(0)])
    (state,) = here.partitions
    assert plan(here, held={old: Holding.ORPHANED}) == [Adopt(KEY, old, state, "default/flights goes on with it")]
    assert plan(here, held={old: Holding.BUSY}) == [], "nothing is opened empty beside it"
    (orphaned,) = plan(here, held={old: Holding.OPEN}, logs={old: LOG})
    assert isinstance(orphaned, Orphan)
    back = partition_set(partition_state(leader=seat(1)), topic="other", uid=old.uid)
    assert plan(here, back, held={old: Holding.ORPHANED}) == [Restore(old, "topic default/other is back")]


def test_should_leave_alone_what_it_need_not_adopt() -> None:
    old = PartitionKey(TopicUid("uid-0"), PartitionId(0))
    here = partition_set(partition_state(leader=ME)).adopting(old.uid, [PartitionId(0)])
    assert plan(here, held={old: Holding.ORPHANED, KEY: Holding.OPEN}, logs={KEY: LOG}) == [], "it has gone on already"
    assert [type(action) for action in plan(here)] == [Open]
    elsewhere = partition_set(partition_state(leader=seat(1))).adopting(old.uid, [PartitionId(0)])
    assert plan(elsewhere, held={old: Holding.ORPHANED}) == []
    other = partition_set(partition_state(leader=ME)).adopting(old.uid, [PartitionId(7)])
    assert [type(action) for action in plan(other, held={old: Holding.ORPHANED})] == [Open]


def test_should_take_it_back_when_the_topic_returns() -> None:
    here = partition_set(partition_state(leader=ME))
    assert plan(here, held={KEY: Holding.ORPHANED}) == [Restore(KEY, "topic default/flights is back")]


@given(
    st.lists(st.sampled_from([None, seat(0, 1), ME, seat(1)]), min_size=1, max_size=4),
    st.lists(st.sampled_from([None, *Holding]), min_size=5, max_size=5),
    st.booleans(),
    st.booleans(),
)
def test_should_never_act_twice_on_a_partition_nor_delete_unasked(
    leaders: list[None], holdings: list[Holding | None], deleting: bool, overdue: bool
) -> None:
    placed = partition_set(*(partition_state(p, leader=one) for p, one in enumerate(leaders)), deleting=deleting)
    held = {placed.key(PartitionId(p)): holding for p, holding in enumerate(holdings) if holding is not None}
    logs = {key: LOG for key, holding in held.items() if holding is Holding.OPEN}

    actions = plan(placed, held=held, logs=logs, overdue=overdue)

    touched = [action.key for action in actions]
    assert len(touched) == len(set(touched))
    assert all(held.get(key) is not Holding.BUSY for key in touched)
    assert deleting or not any(isinstance(action, Delete) for action in actions)
    assert not any(isinstance(action, Purge) for action in actions), "the topic is there"
    orphaned = [action.key.partition for action in actions if isinstance(action, Orphan)]
    assert all(partition >= len(leaders) for partition in orphaned)
