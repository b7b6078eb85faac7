from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.control.actions import SetGroupFinalizers, WriteGroupStatus
from headrace.core.control.group_errands import DONE, ErrandVerdict, wish_of
from headrace.core.control.group_plan import askable, next_change_ms, plan_groups
from headrace.core.control.group_view import GroupResting
from headrace.core.control.observed import BrokerState
from headrace.core.errors import (
    CoordinatorLoadingError,
    GroupNotEmptyError,
    OffsetOutOfRangeError,
    RemoteError,
    UnknownTopicError,
)
from headrace.core.groups.identity import GroupState
from headrace.core.resources.consumer_group import ConsumerGroup, MemberStatus, TopicStatus
from headrace.core.types import TopicUid
from tests.support.control import NOW_MS, ModelApi, broker, brokers, topic
from tests.support.group_control import ModelGroups, group, member, share

FINALIZER = "headrace.io/group"
LATER = "2026-11-22T00:00:00Z"
LATER_MS = 1_795_305_600_000
NOT_EMPTY = ErrandVerdict.of(GroupNotEmptyError("it has members"))
AWAY = ErrandVerdict.of(CoordinatorLoadingError("a moment"))
EARLIEST = {"id": "replay-1", "to": "Earliest"}


def settled(*groups: ConsumerGroup, members: tuple[MemberStatus, ...] = ()) -> ModelGroups:
    """A cluster of three brokers with topics flights and orders; `members` share out what they read."""
    api = ModelApi.of([topic(), topic("orders", partitions=2)], brokers(3))
    model = ModelGroups.of(api, *(groups or (group(),)))
    model.settle()
    if members:
        model.rebalance(*members)
        model.settle()
        model.stabilize()
        model.settle()
    else:
        for each in groups or (group(),):
            model.report(each.metadata.name, state=GroupState.EMPTY)
        model.settle()
    model.told.clear()
    return model


def test_should_hold_a_group_before_anything_else() -> None:
    model = ModelGroups.of(ModelApi.of([], brokers(1)), group(metadata={"finalizers": ("a",)}))
    (planned,) = model.plan().groups
    assert isinstance(planned, SetGroupFinalizers)
    assert planned.finalizers == ("a", FINALIZER)


def test_should_publish_a_target_when_the_coordinator_waits_for_one() -> None:
    model = settled()
    model.rebalance(member("m1"), member("m2", "flights", "orders"))
    (planned,) = model.plan().groups
    assert isinstance(planned, WriteGroupStatus)
    assert planned.assigns
    model.carry_out(planned)
    status = model.found().status
    assert status.assignment_epoch == status.group_epoch == 1
    shares = [each for found in status.members for each in found.assignment]
    assert sorted(number for each in shares if each.topic == "flights" for number in each.partitions) == [*range(6)]
    assert model.condition("Ready")[:2] == ("False", "Rebalancing")
    assert model.actions() == [], "one write says all"


def test_should_look_after_those_first_who_wait_for_a_target() -> None:
    model = settled(group("a"), group("b"), group("other"))
    model.report("a", state=GroupState.RECONCILING)
    model.rebalance(member("m1"), name="b")
    assert [action.group.name.name for action in model.plan().groups] == ["b", "a"]
    model.report("other", state=GroupState.RECONCILING)
    left = replace(model.view, waited={"uid-other"})
    assert [action.group.name.name for action in plan_groups(left, {}, NOW_MS).groups] == ["b", "other", "a"]


def test_should_give_those_a_share_who_waited_while_others_need_targets() -> None:
    names = [f"g{number}" for number in range(20)]
    model = settled(*map(group, [*names, "late", "later"]))
    for name in names:
        model.rebalance(member("m1"), name=name)
    for name in ("late", "later"):
        model.report(name, state=GroupState.RECONCILING)
    view = replace(model.view, waited={"uid-late", "uid-later"})
    planned = [action.group.name.name for action in plan_groups(view, {}, NOW_MS).groups]
    assert (planned[7], planned[15]) == ("late", "later")
    assert sorted(planned) == sorted([*names, "late", "later"])


def test_should_write_nothing_on_what_the_coordinator_has_changed_meanwhile() -> None:
    model = settled()
    model.rebalance(member("m1"))
    (stale,) = model.plan().groups
    model.rebalance(member("m1"), member("m2"))
    model.carry_out(stale)
    assert model.conflicts == 1
    assert model.found().status.assignment_epoch < model.found().status.group_epoch
    model.settle()
    assert model.found().status.assignment_epoch == model.found().status.group_epoch == 2


def test_should_have_nothing_to_publish_where_the_coordinator_was_faster() -> None:
    model = settled(members=(member("m1"),))
    status = model.found().status
    model.report(group_epoch=status.group_epoch + 1, assignment_epoch=status.group_epoch + 1)
    assert not any(isinstance(action, WriteGroupStatus) and action.assigns for action in model.plan().groups)


def test_should_be_ready_when_everybody_has_what_is_assigned() -> None:
    model = settled(members=(member("m1"), member("m2")))
    assert model.condition("Ready") == ("True", "Stable", "2 members, 6 partitions of flights; epoch 1")
    assert model.found().status.observed_generation == 1


def test_should_say_how_many_topics_where_there_are_many() -> None:
    model = settled(members=(member("m1"),))
    many = tuple(share(f"t{number}", 0) for number in range(7))
    model.report(members=(member("m1", assignment=many),))
    model.settle()
    assert model.condition("Ready")[2] == "1 member, 7 partitions of t0, t1, t2, t3, t4 and 2 more topics; epoch 1"
    model.report(members=(member("m1"),))
    model.settle()
    assert model.condition("Ready")[2] == "1 member, 0 partitions; epoch 1"


def test_should_tell_of_each_rebalance_once() -> None:
    model = settled(members=(member("m1"),))
    model.rebalance(member("m1"), member("m2"))
    model.settle()
    assert model.told == []
    model.stabilize()
    model.settle()
    assert model.told == ["Rebalanced"]
    assert model.found().status.conditions[-1]["lastTransitionTime"] == "2026-11-21T09:00:00Z"


@pytest.mark.parametrize(
    ("state", "condition"),
    [
        (None, ("False", "Pending")),
        (GroupState.EMPTY, ("True", "Empty")),
        (GroupState.DEAD, ("True", "Empty")),
        (GroupState.ASSIGNING, ("False", "Rebalancing")),
        (GroupState.RECONCILING, ("False", "Rebalancing")),
    ],
)
def test_should_show_the_state_in_the_condition(state: GroupState | None, condition: tuple[str, str]) -> None:
    model = settled()
    model.report(state=state)
    model.settle()
    assert model.condition("Ready")[:2] == condition


def test_should_say_that_a_query_keeps_its_position_itself_when_a_group_shows_its_progress() -> None:
    model = settled(group(type="Spark"))
    model.configure(resetOffsets=EARLIEST, pausedUntil="2099-01-01T00:00:00Z")
    model.report(state=None)
    model.settle()
    assert model.condition("Ready")[:2] == ("False", "Pending"), "its coordinator has yet to tell"
    model.report(state=GroupState.EMPTY)
    model.settle()
    assert model.condition("Ready")[:2] == ("True", "ProgressOnly")
    assert "no Spark query has reported" in model.condition("Ready")[2]
    model.report(topics=(TopicStatus("flights", TopicUid("uid-flights"), 7),))
    model.settle()
    assert "in its checkpoint" in model.condition("Ready")[2]
    assert model.condition("Paused")[:2] == ("False", "ProgressOnly")
    status, reason, message = model.condition("OffsetsReset")
    assert (status, reason) == ("False", "ProgressOnly")
    assert message.startswith(f"{EARLIEST['id']}: ")
    assert "another checkpoint" in message
    assert model.told.count("ResetRefused") == 1
    assert "Paused" not in model.told


def test_should_delete_the_progress_of_a_query_as_any_group() -> None:
    model = settled(group(type="Spark"))
    assert model.found().metadata.finalizers == ("headrace.io/group",)
    model.delete()
    model.settle()
    assert model.condition("Ready")[1] == "Deleting"
    model.answer(DONE)
    model.settle()
    assert model.groups == {}


def test_should_leave_groups_of_other_clusters_alone() -> None:
    model = settled(group(cluster="other"))
    status = replace(group().status, state=GroupState.EMPTY)
    assert model.found() == replace(group(cluster="other", metadata={"resource_version": "2"}), status=status)


# Who coordinates


def test_should_say_whom_to_start_where_the_coordinator_is_gone() -> None:
    model = settled(members=(member("m1"),))
    model.api.brokers |= {each.id: replace(each, state=BrokerState.LOST) for each in brokers(3)}
    model.settled = False
    assert model.plan().groups == (), "perhaps somebody is elected in a moment"
    model.settled = True
    model.settle()
    status, reason, message = model.condition("Ready")
    assert (status, reason) == ("False", "CoordinatorOffline")
    assert "has no live leader: its replicas are on brokers" in message
    assert model.told == ["CoordinatorOffline"]


def test_should_not_tell_of_an_election_while_a_group_rebalances() -> None:
    model = settled()
    model.rebalance(member("m1"))
    model.settle()
    assert model.condition("Ready")[1] == "Rebalancing"
    model.api.brokers |= {each.id: replace(each, state=BrokerState.LOST) for each in brokers(3)}
    model.settled = False
    assert model.plan().groups == ()


def test_should_ask_nobody_about_a_group_that_has_no_coordinator() -> None:
    model = settled(group(resetOffsets=EARLIEST), group("other"))
    assert [each.metadata.name for each in askable(model.view)] == ["billing"]
    model.api.brokers |= {each.id: replace(each, state=BrokerState.LOST) for each in brokers(3)}
    assert askable(model.view) == []
    model.settle()
    assert model.condition("OffsetsReset")[1] == "Unanswered"
    assert "start them" in model.condition("OffsetsReset")[2]


@pytest.mark.parametrize("is_whole", [True, False])
def test_should_not_let_a_group_go_whose_offsets_somebody_may_have(*, is_whole: bool) -> None:
    model = settled()
    model.delete()
    assert model.topic is not None
    del model.api.topics[model.topic.uid]
    if not is_whole:
        model.api.sets.clear()
    (planned,) = plan_groups(replace(model.view, is_whole=is_whole), {}, NOW_MS).groups
    assert isinstance(planned, WriteGroupStatus)
    (ready,) = [each for each in planned.group.status.conditions if each["type"] == "Ready"]
    assert ready["reason"] == "DeletionWaits"
    assert "cannot be read or is being deleted" in ready["message"]


def test_should_say_when_the_topic_stands_nowhere_yet() -> None:
    model = settled()
    model.api.sets.clear()
    for action in model.plan().groups:
        model.carry_out(action)
    assert model.condition("Ready")[1] == "CoordinatorOffline"
    assert "stands on no broker yet" in model.condition("Ready")[2]


# Pauses


def test_should_pause_a_group_and_let_it_go_on_by_itself() -> None:
    model = settled(members=(member("m1"),))
    model.configure(pausedUntil=LATER)
    model.rebalance(*model.found().status.members)
    model.settle()
    assert model.found().status.members[0].assignment == ()
    assert model.condition("Paused") == ("True", "PausedUntil", f"nobody is given anything to read until {LATER}")
    assert model.condition("Ready")[:2] == ("False", "Paused")
    assert model.told == ["Paused"]
    assert next_change_ms(model.view, NOW_MS) == LATER_MS
    model.rebalance(*model.found().status.members)
    model.settle(LATER_MS)
    assert len(model.found().status.members[0].assignment) == 1
    assert model.condition("Paused")[0] == "False"
    assert model.told == ["Paused", "Resumed"]
    assert next_change_ms(model.view, LATER_MS) is None


# Resets


def test_should_show_what_becomes_of_a_reset() -> None:
    model = settled()
    model.configure(resetOffsets=EARLIEST)
    model.settle()
    assert model.condition("OffsetsReset") == ("False", "Pending", "replay-1: about to be carried out")
    model.answer(DONE)
    model.settle()
    assert model.condition("OffsetsReset") == ("False", "Pending", "replay-1: applied, and about to be told")
    model.reset("billing", "replay-1")
    model.settle()
    assert model.condition("OffsetsReset") == ("True", "Applied", "replay-1: Applied")
    assert model.told == ["OffsetsReset"]
    model.configure(resetOffsets=None)
    model.settle()
    assert not model.has("OffsetsReset")


def test_should_wait_with_a_reset_until_the_group_is_empty() -> None:
    members = [member(f"m{number}", client_address="::1") for number in range(7)]
    model = settled(members=(*members[:6], replace(members[6], member=members[6].member, instance="billing-6")))
    model.configure(resetOffsets=EARLIEST)
    model.settle()
    status, reason, message = model.condition("OffsetsReset")
    assert (status, reason) == ("False", "GroupNotEmpty")
    assert message.endswith("stop m0 (::1), m1 (::1), m2 (::1), m3 (::1), m4 (::1) and 2 more")
    assert model.condition("Ready")[1] == "Stable", "it goes on reading"
    assert model.told == ["ResetWaits"]


def test_should_believe_the_coordinator_when_it_knows_of_members_first() -> None:
    model = settled()
    model.configure(resetOffsets=EARLIEST)
    model.answer(NOT_EMPTY)
    model.settle()
    assert model.condition("OffsetsReset")[1:] == (
        "GroupNotEmpty",
        "replay-1 waits until the group is empty: stop its members",
    )


@pytest.mark.parametrize(
    ("verdict", "reason", "event"),
    [
        (ErrandVerdict.of(UnknownTopicError("there is no topic x")), "UnknownTopic", "ResetRefused"),
        (ErrandVerdict.of(OffsetOutOfRangeError("7 is not there")), "OffsetOutOfRange", "ResetRefused"),
        (AWAY, "Unanswered", "ResetWaits"),
        (ErrandVerdict.of(RemoteError("HTTP 404: who?")), "Unanswered", "ResetWaits"),
    ],
)
def test_should_say_why_a_reset_is_not_carried_out(verdict: ErrandVerdict, reason: str, event: str) -> None:
    model = settled()
    model.configure(resetOffsets=EARLIEST)
    model.answer(verdict)
    model.settle()
    assert model.condition("OffsetsReset") == ("False", reason, f"replay-1: {verdict.message}")
    assert model.told == [event]
    model.verdicts.clear()
    assert model.actions() == [], "a new operator tells nothing else before it has asked"
    model.configure(resetOffsets={"id": "replay-2", "to": "Latest"})
    model.settle()
    assert model.condition("OffsetsReset")[1] == "Pending"


def test_should_say_what_is_wrong_with_a_reset_and_serve_the_group_as_ever() -> None:
    model = settled()
    model.configure(resetOffsets={"id": "replay-1", "to": "Offsets", "offsets": []})
    assert wish_of(model.found()) is None
    model.rebalance(member("m1"))
    model.settle()
    status, reason, message = model.condition("OffsetsReset")
    assert (status, reason) == ("False", "InvalidRequest")
    assert "spec.resetOffsets: offsets belong to `to: Offsets`" in message
    assert model.told == ["ResetRefused"]
    assert model.found().status.members[0].assignment == (share("flights", *range(6)),)


def test_should_say_when_a_pause_cannot_be_read() -> None:
    model = settled()
    model.configure(pausedUntil="tomorrow")
    model.settle()
    assert model.condition("Ready") == (
        "False",
        "InvalidSpec",
        "spec.pausedUntil: 'tomorrow' is no point in time: write one as RFC 3339 does, for example"
        " 2026-12-01T00:00:00Z; until then the group is not paused",
    )
    assert model.told == ["InvalidSpec"]


# Deletion


def test_should_let_a_group_go_once_its_coordinator_has_deleted_it() -> None:
    model = settled()
    model.delete()
    model.settle()
    assert model.condition("Ready") == ("False", "Deleting", "its offsets are being deleted")
    model.answer(DONE)
    model.settle()
    assert model.groups == {}


def test_should_say_who_holds_a_group_that_is_to_go() -> None:
    model = settled(members=(member("m1", client_address="10.1.2.3"),))
    model.delete()
    model.answer(NOT_EMPTY)
    model.settle()
    assert model.condition("Ready") == (
        "False",
        "GroupNotEmpty",
        "it is deleted once it has no members: stop m1 (10.1.2.3)",
    )
    assert model.told == ["GroupNotEmpty"]


def test_should_wait_for_the_coordinator_of_a_group_that_is_to_go() -> None:
    model = settled()
    model.delete()
    model.answer(AWAY)
    model.settle()
    assert model.condition("Ready")[1] == "DeletionWaits"
    assert "CoordinatorLoading" in model.condition("Ready")[2]
    model.api.brokers |= {each.id: replace(each, state=BrokerState.LOST) for each in brokers(3)}
    model.settle()
    assert "start them" in model.condition("Ready")[2]
    assert model.told == ["DeletionWaits"]
    assert model.found().metadata.finalizers == (FINALIZER,)


def test_should_not_touch_finalizers_of_others() -> None:
    model = settled()
    model.change(finalizers=("a",))
    model.delete()
    model.settle()
    assert model.found().metadata.finalizers == ("a",)


# Whatever happens in between


happenings = st.lists(
    st.sampled_from(
        ["join", "leave", "stabilize", "plan", "part", "race", "operator", "pause", "reset", "delete", "lose"]
    ),
    max_size=25,
)


class Life:
    """Of group billing, beside another."""

    def __init__(self, cut: int) -> None:
        self.model = settled(group("billing"), group("other"))
        self.cut = cut
        self.joined = 0

    def take(self, step: str) -> None:
        happens = {
            "plan": self.model.settle,
            "part": self.part,
            "race": self.race,
            "operator": self.model.verdicts.clear,
            "lose": self.lose,
        }
        if step in happens:
            happens[step]()
        elif any(name.name == "billing" for name in self.model.groups):
            self.change(step)

    def part(self) -> None:
        """An operator that dies in the middle."""
        for action in self.model.actions()[: self.cut]:
            self.model.carry_out(action)

    def race(self) -> None:
        """The coordinator is faster than the operator's writes."""
        planned = self.model.actions()
        if any(name.name == "billing" for name in self.model.groups):
            self.change("join")
        for action in planned:
            self.model.carry_out(action)

    def lose(self) -> None:
        self.model.api.brokers[broker(0).id] = broker(0, state=BrokerState.LOST)

    def change(self, step: str) -> None:
        status = self.model.found().status
        match step:
            case "join":
                self.joined += 1
                self.model.rebalance(*status.members, member(f"m{self.joined}"))
            case "leave" if status.members:
                self.model.rebalance(*status.members[1:])
            case "stabilize" if status.members and status.assignment_epoch == status.group_epoch:
                self.model.stabilize()
            case "pause":
                self.model.configure(pausedUntil=LATER)
                self.model.rebalance(*status.members)  # as a coordinator does that hears of it
            case "reset":
                self.model.configure(resetOffsets=EARLIEST)
            case "delete":
                self.model.delete()


@given(happenings, st.integers(0, 3))
def test_should_come_to_the_same_end_after_any_prefix_of_its_actions(steps: list[str], cut: int) -> None:
    life = Life(cut)
    for step in steps:
        life.take(step)
    life.model.settle()
    assert life.model.actions() == []
    for found in life.model.groups.values():
        assert FINALIZER in found.metadata.finalizers
        if found.status.members:
            assert found.status.assignment_epoch == found.status.group_epoch
            given_out = [(s.topic, p) for m in found.status.members for s in m.assignment for p in s.partitions]
            assert sorted(given_out) == ([] if found.is_paused(NOW_MS) else [("flights", p) for p in range(6)])


# Whom to look at


def test_should_look_only_at_groups_that_have_changed() -> None:
    model, resting = settled(group("a"), group("b"), group("c", pausedUntil=LATER)), GroupResting()
    view = model.view
    assert resting.among(view, {}) == frozenset()
    resting.settle(view, {}, planned={"uid-b"})
    assert resting.among(view, {}) == {"uid-a"}, "a pause ends by itself"
    model.rebalance(member("m1"), name="a")
    model.rebalance(member("m1"), name="b")
    changed = replace(view, groups=model.view.groups)
    assert resting.among(changed, {}) == frozenset()
    lazy = replace(changed, resting={"uid-a"})
    assert [action.group.name.name for action in plan_groups(lazy, {}, NOW_MS).groups] == ["b"]


def test_should_look_at_all_groups_when_anything_else_has_changed() -> None:
    model, resting = settled(group("a")), GroupResting()
    model.configure("a", resetOffsets=EARLIEST)
    model.settle()
    view = model.view
    resting.among(view, {})
    resting.settle(view, {}, planned=())
    assert resting.among(view, {}) == {"uid-a"}
    wish = wish_of(model.found("a"))
    assert wish is not None
    assert resting.among(view, {wish: DONE}) == frozenset()
    alone = replace(view, observed=replace(view.observed, brokers={}))
    assert resting.among(alone, {}) == frozenset(), "nobody coordinates it"
    assert resting.among(view, {}) == frozenset(), "what it knew is forgotten"


def test_should_not_look_at_all_groups_with_every_picture_that_is_taken() -> None:
    model, resting = settled(group("a")), GroupResting()
    view = model.view
    resting.among(view, {})
    resting.settle(view, {}, planned=())
    same = replace(model.view, groups=view.groups)
    assert resting.among(same, {}) == {"uid-a"}, "it shows the same"
    assert resting.among(replace(same, settled=False), {}) == {"uid-a"}, "everybody has a coordinator"
    more = replace(same, topics=(*same.topics, topic("trips")))
    assert resting.among(more, {}) == frozenset()
