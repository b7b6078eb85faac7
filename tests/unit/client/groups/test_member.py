"""A consumer's place in its group, against the coordinator itself: nothing goes to two, nothing of the dead counts."""

import re
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest

from headrace.client.consumer.cursor import FetchPlan, Handed
from headrace.client.consumer.options import GroupArguments, group_options
from headrace.client.groups import assigned_partitions
from headrace.client.groups.assigned_partitions import Commit
from headrace.client.groups.member import GroupMember, Sending
from headrace.client.record import Record, TopicPartition
from headrace.client.transport.retry import RetryPolicy, Trouble
from headrace.core.coordinator import (
    Append,
    Committed,
    Coordinator,
    CoordinatorAnswer,
    Elected,
    ReadToEnd,
    Refuse,
    Ticked,
)
from headrace.core.errors import (
    BrokerUnreachableError,
    FencedInstanceError,
    FencedMemberError,
    HeadraceError,
    LocalError,
    NotCoordinatorError,
    PollIntervalExceededError,
    StalledError,
    UnknownTopicError,
)
from headrace.core.groups.assignment import names_in
from headrace.core.groups.events import (
    AbsenceReceived,
    HeartbeatReceived,
    JoinReceived,
    LeaveReceived,
    Membership,
    Offsets,
    OffsetsAsked,
    Reply,
    Request,
)
from headrace.core.groups.group_machine import ForGroup, GroupMachine, TopicsListed
from headrace.core.groups.identity import GroupName, MemberId, TopicShape
from headrace.core.groups.status import GroupReport, report_of, with_silences
from headrace.core.types import BrokerId, PartitionKey, TopicUid
from tests.support.group_world import GroupCoordination, GroupOrder

GROUP = GroupName("default", "billing")
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
SESSION_MS, STEP_MS = 45_000, 100


@dataclass
class Town:
    """One coordinator whose records are committed at once, its clock, and the consumers that talk to it."""

    now_ms: int = 0
    topics: dict[str, TopicShape] = field(default_factory=lambda: {"flights": TopicShape(TopicUid("uid-flights"), 2)})
    machine: GroupMachine = field(default_factory=GroupMachine)
    readers: list["Reader"] = field(default_factory=list)
    asked: dict[int, tuple["Reader", Sending]] = field(default_factory=dict)
    answers: dict[int, Reply | HeadraceError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = count(1)
        self.coordinator: GroupCoordination = Coordinator(self.machine)
        for event in (Elected(), ReadToEnd(0), TopicsListed("default", self.topics)):
            self.carry_out(self.coordinator.step(event, 0))

    def ask(self, request: Request) -> Reply | HeadraceError:
        """What is answered at once."""
        self.carry_out(self.coordinator.step(ForGroup(GROUP, request), self.now_ms))
        return self.answers.pop(request.request)

    def carry_out(self, orders: list[GroupOrder]) -> None:
        for order in orders:
            match order:
                case Append(number, _, _):
                    self.carry_out(self.coordinator.step(Committed(number), self.now_ms))
                case CoordinatorAnswer(request, reply, _):
                    self.answers[request] = reply
                case Refuse(request, error, _):
                    self.answers[request] = error
                case _:
                    pass

    def see(self, **topics: TopicShape) -> None:
        self.topics = topics
        self.carry_out(self.coordinator.step(TopicsListed("default", topics), self.now_ms))

    def pass_time(self, ms: int) -> None:
        """In steps; who is connected is heard and answered meanwhile."""
        for _ in range(0, ms, STEP_MS):
            self.now_ms += STEP_MS
            self.carry_out(self.coordinator.step(Ticked(self.now_ms), self.now_ms))
            for reader in self.readers:
                reader.says(reader.member.look(self.now_ms))
            self.deliver()

    def deliver(self) -> None:
        while ready := [number for number in self.asked if number in self.answers]:
            reader, sending = self.asked.pop(ready[0])
            reader.hears(sending, self.answers.pop(ready[0]))

    def offsets(self) -> dict[int, int]:
        found = self.ask(OffsetsAsked(next(self.numbers)))
        assert isinstance(found, Offsets)
        return {key.partition: int(value.offset) for key, value in found.offsets.items()}


class Reader:
    """What a shell does, without network, threads and records."""

    def __init__(self, town: Town, timeout_ms: int = 60_000, **options: Any) -> None:
        given = group_options(["flights"], "billing", GroupArguments(**options))
        assert given is not None
        self.town, self.connected, self.sent = town, True, list[Sending]()
        self.handed, self.plan = Handed(), FetchPlan(RetryPolicy(1_000), {}, is_shared=True)
        members = count(len(town.readers) * 100)
        self.member = GroupMember(given, self.handed, lambda: MemberId(f"m{next(members)}"), Trouble(), timeout_ms)
        town.readers.append(self)
        self.join()

    def has_news(self) -> bool:
        return self.member.news

    def join(self) -> None:
        self.says(self.member.begin(self.town.now_ms))

    def says(self, sendings: list[Sending]) -> None:
        for sending in sendings:
            self.sent.append(sending)
            if self.connected:
                request = replaced(sending.send.request, next(self.town.numbers))
                self.town.asked[request.request] = (self, sending)
                self.town.carry_out(self.town.coordinator.step(ForGroup(GROUP, request), self.town.now_ms))
        self.town.deliver()

    def hears(self, sending: Sending, said: Reply | HeadraceError) -> None:
        if not self.connected:
            return
        if isinstance(said, HeadraceError):
            self.says(self.member.refused(sending, said, self.town.now_ms))
        else:
            joined = (said, names_in(self.town.topics)) if isinstance(said, Membership) else None
            self.says(self.member.answered(sending, joined, self.town.now_ms))

    def take_up(self, positions: int = 0) -> list[TopicPartition]:
        self.find(positions)
        taken = assigned_partitions.begin(self.plan, self.member.found())
        self.member.take_up(taken, self.town.now_ms)
        return sorted(share.partition for share in taken)

    def find(self, positions: int = 0) -> None:
        given = self.member.to_find(self.town.now_ms)
        if given is not None:
            self.member.tell_found(given, self.beginnings(given, positions), self.town.now_ms)

    def beginnings(self, given: assigned_partitions.Given, positions: int = 0) -> dict[PartitionKey, Any]:
        offsets = self.town.offsets()
        return {
            key: assigned_partitions.Beginning(
                key, place, offsets.get(place.partition, positions), offsets.get(place.partition), None
            )
            for key, place in given.places.items()
        }

    def give_up(self) -> list[TopicPartition]:
        found = self.member.revoked()
        assert found is not None
        revoke, partitions = found
        self.commits(self.member.passed(partitions))
        for partition in partitions:
            self.plan.remove(partition)
        self.says(self.member.gave_up(revoke, partitions, self.town.now_ms))
        return sorted(partitions)

    def reads(self, partition: TopicPartition, position: int) -> None:
        """And comes back for more."""
        self.plan.cursors[partition].passed = self.plan.cursors[partition].position = position
        self.handed.batches += 1

    def commits(self, commit: Commit) -> HeadraceError | None:
        request, _ = self.member.commit_request(commit)
        said = self.town.ask(replaced(request, next(self.town.numbers)))
        error = said if isinstance(said, HeadraceError) else None
        self.says(self.member.committed(commit, error, self.town.now_ms))
        return error


def replaced(request: Any, number: int) -> Any:
    """The coordinator numbers requests itself."""
    return replace(request, request=number)


def alone(**options: Any) -> tuple[Town, Reader]:
    """A member that has both partitions."""
    town = Town()
    reader = Reader(town, **options)
    town.pass_time(1_000)
    assert reader.take_up() == [P0, P1]
    return town, reader


def test_should_take_up_what_it_is_given() -> None:
    town = Town()
    reader = Reader(town)
    assert reader.member.is_in
    assert not reader.has_news()
    town.pass_time(1_000)
    assert reader.member.lacks()
    reader.find()
    assert reader.has_news()
    assert reader.take_up() == [P0, P1]
    assert not reader.has_news()
    assert not reader.member.lacks()
    assert reader.member.holds(town.now_ms)


def test_should_hand_over_half_with_what_was_read_of_it() -> None:
    town, first = alone()
    first.reads(P0, 5)
    first.reads(P1, 7)
    second = Reader(town)
    town.pass_time(1_000)
    assert second.member.to_find(town.now_ms) is None
    assert first.has_news()
    (gone,) = first.give_up()
    assert not first.has_news()
    town.pass_time(1_000)
    assert second.take_up() == [gone]
    assert second.plan.cursors[gone].position == {P0: 5, P1: 7}[gone]
    assert [*first.member.assigned.held] == [place for place in (P0, P1) if place != gone]


def test_should_commit_what_was_passed_in_time() -> None:
    town, reader = alone(auto_commit_interval_ms=5_000)
    at_once = reader.member.commit_due(town.now_ms)
    assert at_once is not None, "whoever comes next begins there too"
    assert reader.commits(at_once) is None
    assert town.offsets() == {0: 0, 1: 0}
    reader.reads(P0, 5)
    assert reader.member.commit_due(town.now_ms) is None
    town.pass_time(5_000)
    due = reader.member.commit_due(town.now_ms)
    assert due is not None
    assert [(share.partition, offset) for share, offset in due.offsets] == [(P0, 5)]
    assert reader.commits(due) is None
    town.pass_time(5_000)
    assert reader.member.commit_due(town.now_ms) is None


def test_should_commit_soon_again_what_its_coordinator_could_not_take() -> None:
    town, reader = alone(auto_commit_interval_ms=60_000)
    commit = reader.member.commit_due(town.now_ms)
    assert commit is not None
    reader.member.committed(commit, NotCoordinatorError("another does"), town.now_ms)
    town.pass_time(1_000)
    assert reader.member.commit_due(town.now_ms) == commit


def test_should_commit_nothing_by_itself_where_its_user_does() -> None:
    town, reader = alone(auto_commit=False)
    reader.reads(P0, 5)
    town.pass_time(10_000)
    assert reader.member.commit_due(town.now_ms) is None
    assert reader.member.passed().offsets == ()
    assert reader.commits(reader.member.commit_of(None, "mine")) is None
    assert reader.commits(reader.member.commit_of({P1: 3}, "")) is None
    assert town.offsets() == {0: 5, 1: 3}


def test_should_lose_everything_with_its_session_and_commit_nothing_more() -> None:
    town, reader = alone()
    reader.reads(P0, 5)
    late = reader.member.passed()
    reader.connected = False
    town.pass_time(SESSION_MS + 5_000)
    assert reader.has_news()
    with pytest.raises(FencedMemberError, match=r"this member has lost its partitions .*; nothing that it read since"):
        reader.member.commit_of(None, "")
    with pytest.raises(FencedMemberError, match=r"offsets of flights/\d are not committed"):
        reader.member.commit_request(late)
    assert sorted(reader.member.take_lost()[0]) == [P0, P1]
    assert reader.member.take_lost() == ([], "")
    assert not reader.has_news()
    reader.connected = True
    town.pass_time(3_000)
    for place in (P0, P1):
        reader.plan.remove(place)
    assert reader.take_up() == [P0, P1]
    with pytest.raises(FencedMemberError):
        reader.member.commit_request(late)
    assert town.offsets() == {}


def test_should_know_that_it_holds_nothing_any_more_before_anybody_looks() -> None:
    town, reader = alone()
    assert reader.member.holds(town.now_ms + 30_000)
    assert not reader.member.holds(town.now_ms + SESSION_MS)


def test_should_not_take_up_what_was_lost_while_it_was_looked_up() -> None:
    town, reader = alone()
    second = Reader(town)
    town.pass_time(1_000)
    reader.give_up()
    town.pass_time(1_000)
    given = second.member.to_find(town.now_ms)
    assert given is not None
    assert len(given.places) == 1
    assert second.member.to_find(town.now_ms) is None, "it is asked already"
    second.connected = False
    town.pass_time(SESSION_MS + 1_000)
    second.member.tell_found(given, second.beginnings(given), town.now_ms)
    assert second.member.found() == []


def test_should_wait_for_the_partitions_of_a_member_that_may_be_gone() -> None:
    town, killed = alone()
    killed.connected = False
    town.pass_time(2_000)
    reader = Reader(town)
    town.pass_time(1_000)

    def report() -> GroupReport:
        group = town.machine.groups[GROUP]
        known = report_of(group.image, group.state, BrokerId(0), town.topics, {})
        return with_silences(known, group.silences(town.now_ms))

    is_silent, said = reader.member.silent(report(), town.now_ms)
    assert is_silent
    assert len(said) == 1
    assert re.match(
        r"group billing: m0 has flights/0, flights/1 and was heard of \d\.\d s ago, before this one came; if it is"
        r" gone it loses them in 4\d\.\d s: waiting for that$",
        said[0],
    )
    assert reader.member.silent(report(), town.now_ms) == (True, []), "it is told once"
    town.pass_time(SESSION_MS)
    assert reader.member.silent(report(), town.now_ms) == (False, [])
    assert reader.take_up() == [P0, P1]


def test_should_not_wait_for_a_member_that_is_there() -> None:
    town, first = alone()
    second = Reader(town)
    town.pass_time(4_000)
    group = town.machine.groups[GROUP]
    known = report_of(group.image, group.state, BrokerId(0), town.topics, {})
    heard = with_silences(known, group.silences(town.now_ms))
    assert second.member.silent(heard, town.now_ms) == (False, [])
    assert second.member.silent(known, town.now_ms) == (False, []), "an older broker does not tell"
    first.member.leave(town.now_ms)
    assert first.member.silent(heard, town.now_ms) == (False, []), "who is in no group waits for nobody"


def test_should_stay_for_a_user_who_gets_on_with_what_he_has_in_hand() -> None:
    town, slow = alone(max_poll_interval_ms=20_000)
    done = {P0: 0, P1: 0}
    slow.member.assigned.first_undone = done.get
    for _ in range(4):
        town.pass_time(12_000)
        done[P0] += 1
        assert slow.member.commit_due(town.now_ms) is not None
        town.pass_time(5_000)
    assert not slow.member.has_failed


def test_should_leave_for_a_user_who_does_not_come_back() -> None:
    town, stalled = alone(max_poll_interval_ms=20_000)
    other = Reader(town)
    town.pass_time(1_000)
    stalled.give_up()
    other.handed.is_waited_for = True
    town.pass_time(1_000)
    assert len(other.take_up()) == 1
    town.pass_time(15_000)
    stalled.handed.last = Record("flights", 0, 7, 0, None, b"", ())
    town.pass_time(19_000)
    assert not stalled.member.has_failed, "another record was in hand meanwhile"
    town.pass_time(5_000)
    assert len(other.take_up()) == 1, "the other goes on"
    assert len(stalled.member.take_lost()[0]) == 1
    with pytest.raises(PollIntervalExceededError, match=r"group billing: .* longer than max_poll_interval_ms, 20000"):
        stalled.member.raise_error()
    stalled.member.raise_error()
    assert not stalled.has_news()
    stalled.join()
    town.pass_time(1_000)
    assert len({sending.send.request.member for sending in stalled.sent}) == 2
    assert other.member.revoked() is not None


def test_should_raise_what_is_final_and_join_again_as_somebody_else() -> None:
    town, reader = alone(instance_id="pod-0")
    heartbeat = reader.sent[-1]
    reader.says(reader.member.refused(heartbeat, FencedInstanceError("pod-0 is m9 now"), town.now_ms))
    assert sorted(reader.member.take_lost()[0]) == [P0, P1]
    with pytest.raises(FencedInstanceError, match="pod-0 is m9 now"):
        reader.member.raise_error()
    with pytest.raises(LocalError, match="this consumer is no member just now; iterate it to join again"):
        reader.member.commit_request(Commit(()))
    assert reader.member.look(town.now_ms) == []
    reader.join()
    assert reader.sent[-1].send.request.member != heartbeat.send.request.member
    assert reader.member.answered(heartbeat, None, town.now_ms) == [], "that was somebody else"
    assert reader.member.refused(heartbeat, FencedInstanceError("again"), town.now_ms) == []


def test_should_give_up_joining_when_the_time_is_over_and_yet_go_on_trying() -> None:
    town = Town()
    reader = Reader(town, timeout_ms=1_000)
    reader.connected = False
    town.pass_time(SESSION_MS)
    reader.member.take_lost()
    tried = len(reader.sent)
    gone = BrokerUnreachableError("nobody answers")
    for _ in range(2):
        reader.member.refused(reader.sent[-1], gone, town.now_ms)
        town.pass_time(2_000)
    with pytest.raises(BrokerUnreachableError, match=r"gave up on the place in group billing after 2.0 s: nobody"):
        reader.member.raise_error()
    assert len(reader.sent) > tried


def test_should_not_raise_while_its_session_is_not_over() -> None:
    town, reader = alone(timeout_ms=1_000)
    reader.connected = False
    for _ in range(5):
        reader.member.refused(reader.sent[-1], BrokerUnreachableError("nobody answers"), town.now_ms)
        town.pass_time(1_000)
    assert not reader.has_news()


def test_should_leave_a_topic_alone_that_cannot_be_read_just_now() -> None:
    town = Town()
    reader = Reader(town)
    town.pass_time(1_000)
    given = reader.member.to_find(town.now_ms)
    assert given is not None
    reader.member.tell_found(given, dict.fromkeys(given.places, UnknownTopicError("gone")), town.now_ms)
    assert not reader.has_news()
    assert not reader.member.lacks(), "its group is about to take it away"
    assert reader.member.to_find(town.now_ms) is None
    assert 0 < reader.member.look_ms(town.now_ms) <= 500
    town.pass_time(600)
    assert reader.take_up() == [P0, P1]


def test_should_take_up_a_topic_that_was_created_again_once_the_old_one_is_given_up() -> None:
    town, reader = alone()
    town.see(flights=TopicShape(TopicUid("uid-again"), 1))
    town.pass_time(2_000)
    found = reader.member.revoked()
    assert found is not None
    reader.handed.is_waited_for = True
    for partition in found[1]:
        reader.plan.remove(partition)
    reader.says(reader.member.gave_up(*found, town.now_ms))
    town.pass_time(2_000)
    assert reader.take_up() == [P0]
    (share,) = reader.member.assigned.held.values()
    assert share.key.uid == "uid-again"


@pytest.mark.parametrize(("instance", "request_type"), [(None, LeaveReceived), ("pod-0", AbsenceReceived)])
def test_should_leave_for_good_or_for_a_while(instance: str | None, request_type: type[object]) -> None:
    town, reader = alone(instance_id=instance)
    (leaving,) = reader.member.leave(town.now_ms)
    assert isinstance(leaving.send.request, request_type)
    assert not leaving.is_answered
    assert not reader.member.is_in
    assert reader.member.leave(town.now_ms) == []


def test_should_raise_when_nobody_looks_after_it_any_more() -> None:
    _, reader = alone()
    reader.member.die(RuntimeError("no memory"))
    with pytest.raises(StalledError, match=r"what keeps the place in group billing ended by RuntimeError"):
        reader.member.raise_error()


def test_should_ask_at_once_how_things_are_when_a_commit_was_late() -> None:
    town, reader = alone()
    commit = reader.member.passed()
    (doubt,) = reader.member.committed(commit, FencedMemberError("late"), town.now_ms)
    assert isinstance(doubt.send.request, HeartbeatReceived)
    assert reader.member.not_committed(FencedMemberError("late")) == (
        "the offsets of group billing were not committed, and some records will be read again: late"
    )


def test_should_join_once_for_several_readings() -> None:
    _, reader = alone()
    reader.join()
    assert sum(isinstance(sending.send.request, JoinReceived) for sending in reader.sent) == 1
