from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from headrace.core.control.actions import Notice
from headrace.core.control.conditions import Restraint
from headrace.core.control.group_errands import (
    DONE,
    GROUP_ERRAND_RETRY_MS,
    Errand,
    ErrandVerdict,
    GroupAsking,
    Result,
    Wish,
    errand,
    wish_of,
)
from headrace.core.errors import (
    BrokerUnreachableError,
    GroupFullError,
    GroupNotEmptyError,
    HeadraceError,
    NotCoordinatorError,
    RemoteError,
)
from headrace.core.groups.identity import TopicShape
from headrace.core.groups.requests import GroupCall
from headrace.core.limits import RECONCILE_RESYNC_MS
from headrace.core.resources.consumer_group import ConsumerGroup, LastReset
from headrace.core.types import TopicUid
from tests.support.group_control import group, member, status

FINALIZERS = {"finalizers": ("headrace.io/group",)}
GOING = {**FINALIZERS, "deletion_timestamp": "2026-11-21T09:00:00Z"}
TOPICS = {
    "flights": TopicShape(TopicUid("u-f"), 2),
    "orders": TopicShape(TopicUid("u-o"), 1),
}
GROUP = "/v1/namespaces/default/groups/billing"


def resetting(group_type: str = "Consumer", **reset: Any) -> ConsumerGroup:
    return group(type=group_type, resetOffsets={"id": "replay-1", **reset}, metadata=FINALIZERS)


def offset(topic: str, uid: str, partition: int, number: int) -> dict[str, Any]:
    return {
        "topic": topic,
        "topicUid": uid,
        "partition": partition,
        "offset": number,
        "leaderEpoch": None,
        "metadata": "",
    }


class Brokers:
    """What they answer, by path; and what they were asked, in turns."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers
        self.turns: list[list[GroupCall]] = []

    def carry_out(self, found: ConsumerGroup) -> ErrandVerdict:
        wish = wish_of(found)
        assert wish is not None
        return self.drive(errand(found, wish, TOPICS))

    def drive(self, carried_out: Errand) -> ErrandVerdict:
        try:
            calls: Sequence[GroupCall] = next(carried_out)
            while True:
                self.turns.append([*calls])
                calls = carried_out.send([self.answers[call.path] for call in calls])
        except StopIteration as end:
            verdict: ErrandVerdict = end.value
            return verdict

    @property
    def reset(self) -> dict[str, Any]:
        (call,) = self.turns[-1]
        assert (call.method, call.path) == ("POST", f"{GROUP}/reset")
        assert call.body is not None
        return call.body


def at(topic: str, uid: str, partition: int, moment: str) -> str:
    return f"/v1/namespaces/default/topics/{topic}/partitions/{partition}/offsets?timestamp={moment}&topicUid={uid}"


def test_should_reset_all_topics_that_the_group_has_offsets_of() -> None:
    committed = [offset("flights", "u-f", 1, 7), offset("", "u-gone", 0, 3)]
    brokers = Brokers(
        {
            f"{GROUP}/offsets": {"offsets": committed},
            at("flights", "u-f", 0, "earliest"): {"partition": 0, "offset": 4},
            at("flights", "u-f", 1, "earliest"): {"partition": 1, "offset": 0},
            f"{GROUP}/reset": {},
        }
    )
    assert brokers.carry_out(resetting(to="Earliest")) == DONE
    assert brokers.reset == {
        "id": "replay-1",
        "offsets": [offset("flights", "u-f", 0, 4), offset("flights", "u-f", 1, 0)],
    }


@pytest.mark.parametrize("committed", [[], [offset("", "u-gone", 0, 3)]])
def test_should_keep_a_reset_for_a_group_that_has_no_offsets_yet(committed: list[Any]) -> None:
    brokers = Brokers({f"{GROUP}/offsets": {"offsets": committed}})
    verdict = brokers.carry_out(resetting(to="Latest"))
    assert (verdict.result, verdict.reason) == (Result.REFUSED, "NothingToReset")
    assert "name `topics`" in verdict.message
    assert len(brokers.turns) == 1, "its id is not spent"


def test_should_reset_to_the_end_what_has_nothing_as_late_as_the_time() -> None:
    moment = "1796083200000"
    brokers = Brokers(
        {
            at("flights", "u-f", 0, moment): {"partition": 0, "offset": 12},
            at("flights", "u-f", 1, moment): {"partition": 1, "offset": None},
            at("flights", "u-f", 1, "latest"): {"partition": 1, "offset": 30},
            f"{GROUP}/reset": {},
        }
    )
    found = resetting(to="Timestamp", timestamp="2026-12-01T00:00:00Z", topics=["flights", "flights"])
    assert brokers.carry_out(found) == DONE
    assert [each["offset"] for each in brokers.reset["offsets"]] == [12, 30]
    assert [len(turn) for turn in brokers.turns] == [2, 1, 1]


@pytest.mark.parametrize(("number", "is_there"), [(3, False), (4, True), (9, True), (10, False)])
def test_should_take_offsets_that_are_there(number: int, *, is_there: bool) -> None:
    brokers = Brokers(
        {
            at("orders", "u-o", 0, "earliest"): {"offset": 4},
            at("orders", "u-o", 0, "latest"): {"offset": 9},
            f"{GROUP}/reset": {},
        }
    )
    found = resetting(to="Offsets", offsets=[{"topic": "orders", "partition": 0, "offset": number}])
    verdict = brokers.carry_out(found)
    if is_there:
        assert verdict == DONE
        assert brokers.reset["offsets"] == [offset("orders", "u-o", 0, number)]
    else:
        assert (verdict.result, verdict.reason) == (Result.REFUSED, "OffsetOutOfRange")
        assert f"{number} of partition 0 of orders is not there, it has the offsets 4 to 9" in verdict.message
        assert [call.method for turn in brokers.turns for call in turn] == ["GET", "GET"], "nothing is applied"


@pytest.mark.parametrize(
    ("reset", "reason", "words"),
    [
        ({"to": "Earliest", "topics": ["flights", "trips"]}, "UnknownTopic", "there is no topic trips"),
        ({"to": "Offsets", "offsets": [{"topic": "x", "partition": 0, "offset": 1}]}, "UnknownTopic", "no topic x"),
        (
            {"to": "Offsets", "offsets": [{"topic": "flights", "partition": 2, "offset": 1}]},
            "UnknownPartition",
            "0 to 1, and not 2",
        ),
        (
            {"to": "Offsets", "offsets": [{"topic": "flights", "partition": 0, "offset": n} for n in (1, 2)]},
            "InvalidRequest",
            "twice",
        ),
    ],
)
def test_should_ask_nobody_for_what_cannot_be(reset: dict[str, Any], reason: str, words: str) -> None:
    brokers = Brokers({})
    verdict = brokers.carry_out(resetting(**reset))
    assert (verdict.result, verdict.reason) == (Result.REFUSED, reason)
    assert words in verdict.message
    assert brokers.turns == []


def test_should_not_take_an_answer_without_an_offset() -> None:
    answers: list[Any] = [{"offset": "7"}, {"partition": 0}, []]
    for answer in answers:
        verdict = Brokers({at("orders", "u-o", 0, "latest"): answer}).carry_out(
            resetting(to="Latest", topics=["orders"])
        )
        assert verdict.result is Result.UNANSWERED


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (GroupNotEmptyError("two are in it"), Result.NOT_EMPTY),
        (NotCoordinatorError("nobody"), Result.UNANSWERED),
        (BrokerUnreachableError("away"), Result.UNANSWERED),
        (GroupFullError("too many"), Result.REFUSED),
    ],
)
def test_should_say_what_came_of_it(error: HeadraceError, result: Result) -> None:
    latest = at("orders", "u-o", 0, "latest")
    brokers = Brokers({latest: {"offset": 9}, f"{GROUP}/reset": error, GROUP: error})
    assert brokers.carry_out(resetting(to="Latest", topics=["orders"])).result is result
    assert brokers.carry_out(group(metadata=GOING)).result is result


def test_should_say_what_lies_behind_it_where_that_does_not_pass_by_itself() -> None:
    passing = ErrandVerdict.of(BrokerUnreachableError("http://10.0.0.7:8080: refused"))
    assert "10.0.0.7" not in passing.message, "another broker, another try: the same words"
    assert passing.cause == "BrokerUnreachable: http://10.0.0.7:8080: refused"
    lasting = ErrandVerdict.of(RemoteError("its answer is longer than 16 bytes"))
    assert "RemoteError: its answer is longer than 16 bytes" in lasting.message


def test_should_delete_a_group_with_one_request() -> None:
    brokers = Brokers({GROUP: {}})
    assert brokers.carry_out(group(metadata=GOING)) == DONE
    assert brokers.turns == [[GroupCall("DELETE", GROUP, None)]]


def with_status(found: ConsumerGroup, **fields: Any) -> ConsumerGroup:
    return ConsumerGroup(found.metadata, found.spec, status(**fields))


@pytest.mark.parametrize(
    ("found", "is_wished"),
    [
        (group(metadata=FINALIZERS), False),
        (group(metadata=GOING), True),
        (group(metadata={"deletion_timestamp": "now", "finalizers": ("a",)}), False),
        (group(metadata=GOING, type="Spark"), True),
        (resetting(to="Earliest", group_type="Spark"), False),
        (resetting(to="Earliest"), True),
        (with_status(resetting(to="Earliest"), members=(member("m1"),)), False),
        (with_status(resetting(to="Earliest"), last_reset=LastReset("replay-1")), False),
        (with_status(resetting(to="Earliest"), last_reset=LastReset("replay-0")), True),
    ],
)
def test_should_ask_for_what_is_to_be_done_now(found: ConsumerGroup, *, is_wished: bool) -> None:
    assert (wish_of(found) is not None) is is_wished


# When


def going(count: int) -> list[ConsumerGroup]:
    return [group(f"g{number}", metadata={**GOING, "uid": f"u{number}"}) for number in range(count)]


def wishes(due: Sequence[tuple[ConsumerGroup, Wish]]) -> list[str]:
    return [wish.group for _, wish in due]


def test_should_ask_for_so_many_at_once_and_for_the_others_in_turn() -> None:
    asking, groups = GroupAsking(most=2), going(3)
    due = asking.due(groups, 0)
    assert wishes(due) == ["u0", "u1"]
    assert asking.due(groups, 0) == []
    assert asking.next_due_ms() is None
    asking.answered(due[0][1], ErrandVerdict(Result.NOT_EMPTY, "GroupNotEmpty"), 5)
    assert asking.next_due_ms() == 0
    assert wishes(asking.due(groups, 5)) == ["u2"]


@pytest.mark.parametrize(
    ("result", "pause_ms"),
    [
        (Result.NOT_EMPTY, GROUP_ERRAND_RETRY_MS),
        (Result.UNANSWERED, GROUP_ERRAND_RETRY_MS),
        (Result.REFUSED, RECONCILE_RESYNC_MS),
        (Result.DONE, RECONCILE_RESYNC_MS),
    ],
)
def test_should_ask_again_after_a_while(result: Result, pause_ms: int) -> None:
    asking, groups = GroupAsking(), going(1)
    ((_, wish),) = asking.due(groups, 0)
    assert asking.verdicts() == {}
    verdict = ErrandVerdict(result, "Whatever")
    asking.answered(wish, verdict, 7)
    assert asking.verdicts() == {wish: verdict}
    assert asking.next_due_ms() == 7 + pause_ms
    assert asking.due(groups, 6 + pause_ms) == []
    assert wishes(asking.due(groups, 7 + pause_ms)) == ["u0"]


def test_should_ask_about_a_group_with_members_seldom_and_at_once_when_they_are_gone() -> None:
    asking, (found,) = GroupAsking(), going(1)
    busy = with_status(found, members=(member("m1"),))
    ((_, wish),) = asking.due([busy], 0)
    assert asking.answered(wish, ErrandVerdict(Result.NOT_EMPTY, "GroupNotEmpty"), 0)
    assert asking.due([busy], GROUP_ERRAND_RETRY_MS) == []
    assert asking.next_due_ms() == GROUP_ERRAND_RETRY_MS + RECONCILE_RESYNC_MS
    assert wishes(asking.due([found], GROUP_ERRAND_RETRY_MS)) == ["u0"]
    assert not asking.answered(wish, ErrandVerdict(Result.NOT_EMPTY, "GroupNotEmpty"), 0), "it is nothing new"


def test_should_not_ask_twice_at_once_for_the_same_after_it_has_stood_by() -> None:
    asking, groups = GroupAsking(), going(1)
    ((_, wish),) = asking.due(groups, 0)
    asking.drop()
    assert asking.due(groups, 1) == [], "it is still under way"
    asking.answered(wish, DONE, 2)
    assert asking.verdicts() == {wish: DONE}


def test_should_forget_what_is_wished_no_more() -> None:
    asking, (first,) = GroupAsking(most=2), going(1)
    ((_, wish),) = asking.due([first], 0)
    assert asking.due([], 0) == []
    asking.answered(wish, DONE, 1)
    assert (asking.verdicts(), asking.next_due_ms()) == ({}, None)


def test_should_ask_at_once_for_another_reset_and_not_mix_their_answers() -> None:
    asking = GroupAsking()
    ((_, old),) = asking.due([resetting(to="Earliest")], 0)
    ((_, new),) = asking.due([resetting(to="Latest")], 1)
    asking.answered(old, DONE, 2)
    assert asking.verdicts() == {}
    asking.answered(new, DONE, 2)
    assert asking.verdicts() == {new: DONE}


def test_should_know_nothing_after_it_has_stood_by() -> None:
    asking, groups = GroupAsking(), going(1)
    ((_, wish),) = asking.due(groups, 0)
    asking.answered(wish, DONE, 0)
    asking.drop()
    assert (asking.verdicts(), asking.next_due_ms()) == ({}, None)
    assert wishes(asking.due(groups, 0)) == ["u0"]


# What people hear


def test_should_tell_of_the_same_kind_of_thing_once_in_a_while() -> None:
    restraint = Restraint(interval_ms=10)
    rebalanced, again = Notice("Rebalanced", "epoch 1"), Notice("Rebalanced", "epoch 2")
    waits = Notice("ResetWaits", "m1")
    other = Notice("ResetWaits", "m1", about="replay-2")
    assert restraint.allowed("a", [rebalanced], 0) == [rebalanced]
    assert restraint.allowed("a", [again, waits], 5) == [waits]
    assert restraint.allowed("a", [waits, other], 5) == [other], "it is about another reset"
    assert restraint.allowed("b", [again], 6) == [again]
    assert restraint.allowed("a", [again, waits], 10) == [again]
    assert restraint.allowed("a", [waits], 15) == [waits]
