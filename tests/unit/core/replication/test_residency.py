"""Which replicas live on a broker follows from the API and the disk, whatever happened before.

A broker remembers the partitions that it gives away.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.log.checkpoints import DamagedFileError, seal
from headrace.core.replication.residency import (
    GIVING_AWAY_FILE,
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
    format_giving_away,
    given_away,
    moved_in_sight,
    noted_removals,
    parse_giving_away,
    plan_residency,
    seen_leaving,
)
from headrace.core.replication.seats import LogFacts
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import BrokerId, LeaderEpoch, PartitionEpoch, PartitionId, PartitionKey, Seat, SetUid, TopicUid
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


BROKER, OTHER = BrokerId(0), BrokerId(1)
STATE = partition_state(leader=seat(1), replicas=(OTHER, BROKER))


def at(
    epoch: int, *, replicas: tuple[BrokerId, ...] = (OTHER, BROKER), removing: tuple[BrokerId, ...] = ()
) -> PartitionSet:
    epochs = PartitionEpoch(epoch)
    return partition_set(replace(STATE, partition_epoch=epochs, replicas=replicas, removing=removing))


def test_should_note_when_it_is_first_to_be_removed() -> None:
    assert noted_removals({}, BROKER, [at(3, removing=(BROKER,))], ()) == {KEY: 3}
    assert noted_removals({KEY: PartitionEpoch(3)}, BROKER, [at(4, removing=(BROKER,))], {KEY}) == {KEY: 3}
    assert noted_removals({}, BROKER, [at(3, removing=(OTHER,))], {KEY}) == {}


def test_should_forget_what_is_to_stay_and_what_is_deleted() -> None:
    notes = {KEY: PartitionEpoch(3)}
    assert noted_removals(notes, BROKER, [at(4)], {KEY}) == {}
    assert noted_removals(notes, BROKER, [at(4, replicas=(OTHER,))], {KEY}) == notes
    assert noted_removals(notes, BROKER, [], {KEY}) == notes
    assert noted_removals(notes, BROKER, [at(4, replicas=(OTHER,))], ()) == {}


def test_should_believe_nothing_that_is_older_than_the_note() -> None:
    notes = {KEY: PartitionEpoch(3)}
    assert given_away(notes, [at(4, replicas=(OTHER,))]) == {KEY}
    assert given_away(notes, [at(3, replicas=(OTHER,))]) == set()
    assert given_away({}, [at(4, replicas=(OTHER,))]) == set()


def led_in(leader_epoch: int, moved: PartitionSet) -> PartitionSet:
    (state,) = moved.partitions
    return partition_set(replace(state, leader_epoch=LeaderEpoch(leader_epoch)))


def test_should_see_a_move_that_the_same_leader_ends_and_nothing_that_recover_wrote() -> None:
    leaving = seen_leaving({}, BROKER, [led_in(7, at(3, removing=(BROKER,)))], ())
    moved, recovered = led_in(7, at(4, replicas=(OTHER,))), led_in(8, at(4, replicas=(OTHER,)))
    assert leaving == {KEY: ("", 7)}
    for a_set, seen in ((moved, {KEY}), (recovered, set())):
        leaving = seen_leaving(leaving, BROKER, [a_set], ())
        assert moved_in_sight(leaving, [a_set]) == seen


def test_should_see_no_move_in_a_set_that_was_made_anew() -> None:
    leaving = seen_leaving({}, BROKER, [at(3, removing=(BROKER,))], ())
    (moved,) = (at(4, replicas=(OTHER,)),)
    anew = replace(moved, metadata=replace(moved.metadata, uid="another"))
    assert moved_in_sight(seen_leaving(leaving, BROKER, [anew], ()), [anew]) == set()


def test_should_see_no_move_of_what_went_back_nor_of_what_is_to_stay() -> None:
    leaving, removing = {KEY: (SetUid(""), LeaderEpoch(7))}, led_in(7, at(3, removing=(BROKER,)))
    assert seen_leaving(leaving, BROKER, [removing], {KEY.uid}) == {}
    assert seen_leaving(leaving, BROKER, [led_in(7, at(4))], ()) == {}
    assert seen_leaving({}, BROKER, [led_in(7, at(4, replicas=(OTHER,)))], ()) == {}
    assert seen_leaving(leaving, BROKER, [], ()) == {}


def test_should_be_read_as_it_was_written() -> None:
    notes = {KEY: PartitionEpoch(3), PartitionKey(TopicUid("u"), PartitionId(7)): PartitionEpoch(0)}
    assert parse_giving_away(format_giving_away(notes)) == notes
    with pytest.raises(DamagedFileError, match="are not rows"):
        parse_giving_away(seal(GIVING_AWAY_FILE, ["u x 1"]))
