"""Offline partitions whose seats nobody can renew.

Whose turn it is to be asked about, and who has not answered.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.control.actions import ChangeKind, PatchStatus, ReplaceSet
from headrace.core.control.broker_reports import Epochs, PromisedLog, Promises
from headrace.core.control.last_resort import PromiseRequests, Questions, questions
from headrace.core.control.observed import BrokerState
from headrace.core.control.plan import plan
from headrace.core.types import BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionId, PartitionKey, Seat, TopicUid
from tests.support.control import NOW_MS, ModelApi, broker, brokers, topic
from tests.support.partition_sets import seat

UID = TopicUid("uid-flights")
KEY = PartitionKey(UID, PartitionId(0))
LOST_DISK = "its volume is another"


def log(epoch: int, end: int, *, durable: int | None = None, damage: str = "") -> PromisedLog:
    return PromisedLog(LeaderEpoch(epoch), Offset(end), Offset(end if durable is None else durable), damage)


def offline(*isr: Seat, **spec: Any) -> ModelApi:
    """A partition on three brokers in their second life that nobody leads; in sync were `isr`, else broker 0."""
    api = ModelApi.of([topic(partitions=1, replicas=3, **spec)], brokers(3))
    api.settle()
    api.brokers = {number: broker(number, incarnation=2) for number in api.brokers}
    (state,) = api.sets["flights-0"].partitions
    api.sets["flights-0"] = api.sets["flights-0"].with_partitions(replace(state, leader=None, isr=isr or (seat(0),)))
    return api


def promised(*logs: PromisedLog | None, incarnation: int = 2) -> dict[BrokerId, Promises]:
    """By brokers 0, 1 and 2."""
    return {
        BrokerId(number): Promises(seat(number, incarnation), {} if each is None else {KEY: each})
        for number, each in enumerate(logs)
    }


def resorted(api: ModelApi, promises: dict[BrokerId, Promises]) -> ReplaceSet | None:
    plans = plan(tuple(api.topics.values()), replace(api.observed, promises=promises), NOW_MS)
    writes = [action for each in plans for action in each.actions if isinstance(action, ReplaceSet)]
    return writes[0] if writes else None


def asked(api: ModelApi) -> set[int]:
    return {*questions(api.topics.values(), api.observed)}


LOGS = (log(0, 0, damage=LOST_DISK), log(1, 40), log(1, 30))


def test_should_ask_all_replicas_of_what_nobody_can_lead() -> None:
    api = offline()
    (state,) = api.sets["flights-0"].partitions
    found = questions(api.topics.values(), api.observed)
    assert found == {number: {KEY: Epochs(state.leader_epoch, state.partition_epoch)} for number in range(3)}


def test_should_let_the_greatest_log_lead_alone_and_say_what_is_lost() -> None:
    write = resorted(offline(), promised(*LOGS))
    assert write is not None
    (state,) = write.set.partitions
    assert (state.leader, state.isr, state.leader_epoch) == (seat(1, 2), (seat(1, 2),), 2)
    assert write.kinds == (ChangeKind.RESORTED,)
    (notice,) = write.notices
    assert (notice.reason, notice.warning) == ("RecordsMayBeLost", True)
    assert notice.message == (
        f"partition 0: no log of those in sync is intact (broker 0: {LOST_DISK}): broker 1 leads with the greatest log"
        " of all replicas, which holds records up to offset 40 (exclusive) and leader epoch 1; acknowledged records"
        " beyond that are lost"
    )


def test_should_prefer_the_later_epoch_and_then_who_was_in_sync() -> None:
    later = resorted(offline(), promised(log(0, 0, damage="x"), log(1, 40), log(2, 3)))
    assert later is not None
    assert later.set.partitions[0].leader == seat(2, 2)
    equal = resorted(offline(seat(2)), promised(log(1, 40), log(1, 40), log(1, 40, damage="x")))
    assert equal is not None
    assert equal.set.partitions[0].leader == seat(2, 2)


@pytest.mark.parametrize(("durability", "leader"), [("Fsync", 2), ("Replicated", 1)])
def test_should_count_what_is_on_disk_where_the_topic_asks_for_that(durability: str, leader: int) -> None:
    logs = promised(log(0, 0, damage="x"), log(1, 40, durable=10), log(1, 30))
    write = resorted(offline(durability=durability), logs)
    assert write is not None
    assert write.set.partitions[0].leader == seat(leader, 2)


def test_should_say_so_when_nothing_is_left() -> None:
    write = resorted(offline(), promised(log(-1, 0, damage="x"), log(-1, 0), log(-1, 0)))
    assert write is not None
    assert "which is empty" in write.notices[0].message


def test_should_wait_while_a_member_of_the_isr_can_renew_its_seat() -> None:
    assert resorted(offline(), promised(log(1, 50), *LOGS[1:])) is None


def test_should_wait_until_all_replicas_have_promised_in_their_present_life() -> None:
    assert resorted(offline(), {}) is None
    assert resorted(offline(), promised(LOGS[0], LOGS[1], None)) is None
    assert resorted(offline(), promised(*LOGS, incarnation=1)) is None


@pytest.mark.parametrize("state", [BrokerState.LOST, BrokerState.DRAINING, BrokerState.UNPROVEN])
def test_should_wait_for_every_replica_to_be_there(state: BrokerState) -> None:
    api = offline()
    api.brokers[BrokerId(2)] = broker(2, incarnation=2, state=state)
    assert asked(api) == set()
    assert resorted(api, promised(*LOGS)) is None


def allowing_unclean(*states: BrokerState, isr: tuple[Seat, ...] = (seat(0),)) -> ModelApi:
    """`states` are those of brokers 0, 1 and 2."""
    api = offline(*isr, uncleanLeaderElection=True)
    for number, state in enumerate(states):
        api.brokers[BrokerId(number)] = broker(number, incarnation=2, state=state)
    return api


READY, LOST, DRAINING = BrokerState.READY, BrokerState.LOST, BrokerState.DRAINING


def test_should_wait_for_nobody_who_is_lost_where_the_topic_allows_that() -> None:
    api = allowing_unclean(READY, READY, LOST)
    assert asked(api) == {0, 1}
    write = resorted(api, promised(LOGS[0], LOGS[1], None))
    assert write is not None
    assert write.set.partitions[0].leader == seat(1, 2)
    assert write.kinds == (ChangeKind.ELECTED_UNCLEANLY,)
    (notice,) = write.notices
    assert (notice.reason, notice.warning) == ("UncleanLeaderElection", True)
    assert "so are those that only brokers 2 had: spec.uncleanLeaderElection" in notice.message
    assert "the greatest log of those that are left" in notice.message


def test_should_wait_all_the_same_for_who_is_about_to_go_or_may_lead_in_a_moment() -> None:
    api = allowing_unclean(READY, READY, DRAINING)
    assert asked(api) == set()
    intact = promised(log(1, 10), LOGS[1], None)
    assert resorted(allowing_unclean(READY, READY, LOST), intact) is None
    assert resorted(allowing_unclean(READY, READY, LOST), promised(LOGS[0], None, None)) is None


def said(api: ModelApi, silent: dict[PartitionKey, list[BrokerId]] | None = None) -> str:
    """By the Topic's condition Ready."""
    for each in plan(tuple(api.topics.values()), replace(api.observed, silent=silent or {}), NOW_MS):
        for action in each.actions:
            if isinstance(action, PatchStatus):
                conditions = action.status["conditions"]
                return next(str(found["message"]) for found in conditions if found["type"] == "Ready")
    raise AssertionError("no status is written")


def test_should_name_who_is_waited_for_and_say_what_to_do_where_it_never_returns() -> None:
    api = offline()
    api.brokers[BrokerId(2)] = broker(2, incarnation=2, state=LOST)
    assert said(api) == (
        "partition 0: those in sync that run do not have their seats back, as their logs are not intact or they are"
        " starting: offline until all replicas have said what they hold; start brokers 2. Where one is gone for good,"
        " spec.uncleanLeaderElection: true has the best of the others lead, without what only that one had"
    )


def test_should_name_who_runs_and_says_nothing() -> None:
    assert "brokers 1 run and have not said it: their logs tell why" in said(offline(), {KEY: [BrokerId(1)]})


def test_should_ask_for_those_in_sync_alone_while_none_of_them_runs() -> None:
    api = offline()
    api.brokers[BrokerId(0)] = broker(0, incarnation=2, state=LOST)
    api.brokers[BrokerId(2)] = broker(2, incarnation=2, state=LOST)
    assert said(api) == "partition 0: no live leader; these brokers were in sync, start them: 0"


def test_should_not_meddle_where_somebody_leads_or_can() -> None:
    api = offline(seat(0), seat(1, 2))
    assert asked(api) == set()
    write = resorted(api, promised(*LOGS))
    assert write is not None
    assert write.kinds == (ChangeKind.ELECTED,)
    api.carry_out(write)
    assert asked(api) == set()


def test_should_leave_a_single_replica_to_its_broker() -> None:
    api = offline()
    (state,) = api.sets["flights-0"].partitions
    api.sets["flights-0"] = api.sets["flights-0"].with_partitions(replace(state, replicas=(BrokerId(0),)))
    assert asked(api) == set()


def test_should_leave_out_of_the_message_who_is_no_replica_any_more() -> None:
    write = resorted(offline(seat(0), seat(7)), promised(*LOGS))
    assert write is not None
    assert f"(broker 0: {LOST_DISK})" in write.notices[0].message


def test_should_ask_nothing_of_topics_that_it_does_not_tend() -> None:
    api = offline()
    api.regressed = frozenset({UID})
    assert asked(api) == set()
    api.regressed = frozenset()
    api.sets["flights-0"] = replace(api.sets["flights-0"], deleting=True)
    assert asked(api) == set()
    for metadata in ({"annotations": {"headrace.io/paused": "true"}}, {"deletion_timestamp": "2026-11-21T09:00:00Z"}):
        left_alone = offline()
        left_alone.change(UID, **metadata)
        assert asked(left_alone) == set()
    other = offline()
    other.topics[UID] = replace(other.topics[UID], spec=replace(other.topics[UID].spec, cluster="other"))
    assert asked(other) == set()


EPOCHS = Epochs(LeaderEpoch(1), PartitionEpoch(1))
LOG = PromisedLog(LeaderEpoch(1), Offset(3), Offset(3))


def key(number: int) -> PartitionKey:
    return PartitionKey(TopicUid("u"), PartitionId(number))


def wanted(replicas: dict[int, Iterable[int]]) -> Questions:
    """By partition: who is to be asked."""
    brokers = {broker for each in replicas.values() for broker in each}
    return {
        BrokerId(broker): {key(number): EPOCHS for number, each in replicas.items() if broker in each}
        for broker in brokers
    }


def partitions(asked: Questions) -> set[int]:
    return {each.partition for keys in asked.values() for each in keys}


def answer(broker: int, *numbers: int) -> dict[BrokerId, Promises]:
    return {BrokerId(broker): Promises(seat(broker), {key(number): LOG for number in numbers})}


def test_should_ask_of_everything_that_fits() -> None:
    asking, all_of_it = PromiseRequests(2), wanted({0: (1, 2), 1: (1, 3)})
    assert asking.turn(all_of_it) == all_of_it
    assert asking.turn(all_of_it) == all_of_it
    assert asking.turn({}) == {}


def test_should_come_round_to_those_that_wait_behind_others_that_never_answer() -> None:
    asking, all_of_it = PromiseRequests(2), wanted(dict.fromkeys(range(5), (1, 2)))
    turns = [partitions(asking.turn(all_of_it)) for _ in range(5)]
    assert turns == [{0, 1}, {2, 3}, {4, 0}, {1, 2}, {3, 4}]


def test_should_ask_all_replicas_of_a_partition_in_the_same_turn() -> None:
    asked = PromiseRequests(1).turn(wanted({0: (1, 2), 1: (2, 3), 2: (3, 4)}))
    assert asked == wanted({0: (1, 2)})


@given(
    replicas=st.dictionaries(st.integers(0, 30), st.sets(st.integers(0, 5), min_size=1), min_size=1),
    most=st.integers(1, 4),
)
def test_should_let_each_have_its_turn(replicas: dict[int, Collection[int]], most: int) -> None:
    asking, all_of_it = PromiseRequests(most), wanted({number: tuple(each) for number, each in replicas.items()})
    seen: set[int] = set()
    for _ in replicas:
        asked = asking.turn(all_of_it)
        assert asked
        assert all(len(keys) <= most for keys in asked.values())
        for number in partitions(asked):
            assert {broker for broker, keys in asked.items() if key(number) in keys} == {*replicas[number]}
        seen |= partitions(asked)
    assert seen == {*replicas}


@pytest.mark.parametrize("most", [1, 2])
def test_should_remember_who_was_silent_until_it_answers_or_nobody_wants_to_know(most: int) -> None:
    asking, all_of_it = PromiseRequests(most), wanted({0: (1, 2), 1: (1, 2)})
    for _ in range(2):
        silent = asking.answered(asking.turn(all_of_it), answer(1, 0, 1))
    assert silent == {key(0): [2], key(1): [2]}
    for _ in range(2):
        silent = asking.answered(asking.turn(all_of_it), answer(1, 0, 1) | answer(2, 1))
    assert silent == {key(0): [2], key(1): []}
    only = wanted({1: (1, 2)})
    assert asking.answered(asking.turn(only), {}) == {key(1): [1, 2]}
