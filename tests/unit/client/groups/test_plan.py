"""Step by step, with a session that ends between two of them: nothing of the dead is told twice, or read on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from headrace.client.consumer.cursor import Cursor
from headrace.client.consumer.options import Start
from headrace.client.consumer.read_ahead import ReadAhead
from headrace.client.groups.plan import AskOffsets, CommitPassed, Drop, Errand, LookUp, Plan, Say, Step, Tell
from headrace.client.record import TopicPartition
from headrace.client.transport.calls import Directory
from headrace.client.transport.discovery import Servers
from headrace.client.transport.retry import Trouble
from headrace.core.errors import HeadraceError, PartitionOfflineError, RemoteError, UnknownTopicError
from tests.unit.client.groups.test_member import P0, P1, SESSION_MS, Reader, Town

TOLD = dict[str, list[list[TopicPartition]]]


@dataclass
class Shell:
    """Carries steps out at once; something else may happen within each."""

    town: Town
    start: Start = "earliest"
    options: Mapping[str, Any] = field(default_factory=dict)
    before: dict[type[Step], Callable[[], Any]] = field(default_factory=dict)
    offline: set[TopicPartition] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.told: TOLD = {"assigned": [], "revoked": [], "lost": []}
        heard = {f"on_{name}": told.append for name, told in self.told.items()}
        self.reader = Reader(self.town, **{**heard, **self.options})
        self.member = self.reader.member
        directory = Directory(Servers(("http://a:1",)))
        self.reading = ReadAhead(directory, {}, Trouble(), growing=None, timeout_ms=1_000, prefetch_bytes=1 << 20)
        self.reading.handed = self.reader.handed
        self.reading.handed.is_waited_for = True
        self.plan = Plan(self.member, self.reading, directory, self.start, lambda: self.town.now_ms)

    @property
    def cursors(self) -> dict[TopicPartition, Cursor]:
        return self.reading.plan.cursors

    def carry_out(self, errand: Errand) -> None:
        go_on: Callable[[], Step] = partial(next, errand)
        while True:
            try:
                step = go_on()
            except StopIteration:
                return
            self.steps.append(step)
            try:
                self.before.pop(type(step), lambda: None)()
                go_on = partial(errand.send, self.do(step))
            except BaseException as error:
                go_on = partial(errand.throw, error)

    def do(self, step: Step) -> Any:
        match step:
            case Say(sendings):
                self.reader.says(sendings)
            case Drop(partitions):
                for partition in partitions:
                    self.reading.drop(partition)
            case Tell(callback, partitions) if callback is not None:
                callback(partitions)
            case AskOffsets():
                return {}
            case LookUp(partitions):
                return {place: self.found(place) for place in partitions}
        return None

    def found(self, place: TopicPartition) -> int | HeadraceError:
        return PartitionOfflineError("nobody leads it") if place in self.offline else 7

    def find(self) -> None:
        given = self.member.to_find(self.town.now_ms)
        assert given is not None
        self.carry_out(self.plan.find(given))

    def follow(self) -> None:
        self.carry_out(self.plan.follow())

    def be_cut_off(self) -> None:
        """For longer than its session is."""
        self.reader.connected = False
        self.town.pass_time(SESSION_MS + 5_000)


def shell(**options: Any) -> Shell:
    made = Shell(Town(), options=options)
    made.town.pass_time(1_000)
    return made


def reads_both(**options: Any) -> Shell:
    made = shell(**options)
    made.find()
    made.follow()
    assert sorted(made.cursors) == [P0, P1]
    made.steps.clear()
    return made


def asked_to_give_up(**options: Any) -> Shell:
    made = reads_both(**options)
    Reader(made.town)
    made.town.pass_time(1_000)
    assert made.member.revoked() is not None
    return made


def test_should_read_what_it_is_given_and_tell_its_user() -> None:
    made = shell()
    assert not made.plan.is_due(), "where it begins is looked up in the background"
    made.find()
    assert made.plan.is_due()
    made.follow()
    assert [sorted(each) for each in made.told["assigned"]] == [[P0, P1]]
    assert {place: cursor.position for place, cursor in made.cursors.items()} == {P0: 7, P1: 7}


def test_should_commit_tell_and_drop_what_it_gives_up() -> None:
    made = asked_to_give_up()
    made.follow()
    assert [type(step) for step in made.steps] == [Say, CommitPassed, Tell, Drop, Say]
    assert len(made.cursors) == 1
    assert [len(each) for each in made.told["revoked"]] == [1]


def test_should_tell_only_of_the_loss_where_the_session_ends_while_it_commits() -> None:
    made = asked_to_give_up()
    made.before[CommitPassed] = made.be_cut_off
    made.follow()
    assert made.told["revoked"] == []
    assert [sorted(each) for each in made.told["lost"]] == [[P0, P1]]
    assert made.cursors == {}, "nothing is read on"


def test_should_tell_each_once_where_the_session_ends_while_its_user_is_told() -> None:
    made = asked_to_give_up()
    made.before[Tell] = made.be_cut_off
    made.follow()
    (revoked,), (lost,) = made.told["revoked"], made.told["lost"]
    assert sorted(revoked + lost) == [P0, P1]
    assert made.cursors == {}


def test_should_begin_at_the_offset_of_the_group_whatever_was_left_of_an_earlier_time() -> None:
    made = reads_both()
    made.cursors[P0].move(99)
    made.be_cut_off()
    made.carry_out(dropping_nothing(made.plan.follow()))
    made.reader.connected = True
    made.town.pass_time(3_000)
    made.find()
    made.follow()
    assert made.cursors[P0].position == 7


def dropping_nothing(errand: Errand) -> Errand:
    """As one that went wrong."""
    for step in errand:
        if not isinstance(step, Drop):
            yield step


@pytest.mark.parametrize("error", [ZeroDivisionError(), KeyboardInterrupt()])
def test_should_give_up_what_its_user_was_told_of_whatever_he_raises(error: BaseException) -> None:
    made = asked_to_give_up()
    made.before[Tell] = partial(throw, error)
    with pytest.raises(type(error)):
        made.follow()
    is_given_up = isinstance(error, Exception)
    assert len(made.cursors) == (1 if is_given_up else 2), "whoever was interrupted is told again"
    made.follow()
    assert len(made.cursors) == 1
    assert len(made.told["revoked"]) == (0 if is_given_up else 1)


def throw(error: BaseException) -> None:
    raise error


def test_should_read_the_others_while_one_cannot_be_read() -> None:
    made = shell()
    made.offline = {P1}
    made.find()
    made.follow()
    assert sorted(made.cursors) == [P0]
    assert not made.plan.is_due()
    assert made.member.lacks()
    made.offline.clear()
    made.town.pass_time(1_000)
    made.find()
    made.follow()
    assert sorted(made.cursors) == [P0, P1]


def test_should_tell_what_cannot_be_read_for_the_whole_time_limit_and_go_on_trying() -> None:
    made = shell()
    made.offline = {P1}
    made.find()
    made.follow()
    for _ in range(61):
        assert not made.plan.is_due()
        made.town.pass_time(1_000)
        made.find()
    with pytest.raises(PartitionOfflineError, match=r"cannot begin to read flights/1 for its group: nobody leads it"):
        made.follow()
    made.town.pass_time(1_000)
    made.find()
    assert not made.plan.is_due()


@pytest.mark.parametrize(("error", "is_told"), [(UnknownTopicError("gone"), False), (RemoteError("refused"), True)])
def test_should_tell_at_once_what_is_final_and_leave_what_is_gone_to_its_group(
    error: HeadraceError, is_told: bool
) -> None:
    made = shell()
    made.before[AskOffsets] = partial(throw, error)
    made.find()
    assert made.plan.is_due() is is_told
    assert made.member.lacks() is is_told


def test_should_take_up_nothing_that_was_taken_away_while_it_was_looked_up() -> None:
    made = shell()
    made.before[LookUp] = made.be_cut_off
    made.find()
    made.follow()
    assert made.cursors == {}


def test_should_wait_for_the_ends_where_reading_has_ends() -> None:
    made = shell()
    made.find()
    made.reading.plan.end_at({})
    made.follow()
    assert made.cursors == {}
    assert made.member.lacks(), "it was looked up without"
    made.find()
    made.follow()
    assert [cursor.end for cursor in made.cursors.values()] == [7, 7]
    made.be_cut_off()
    made.follow()
    made.reader.connected = True
    made.town.pass_time(3_000)
    made.find()
    made.reading.plan.end_at(None)
    made.follow()
    assert [cursor.end for cursor in made.cursors.values()] == [None, None]


def test_should_begin_at_a_fixed_start_without_asking() -> None:
    made = Shell(Town(), start=3)
    made.town.pass_time(1_000)
    made.find()
    made.follow()
    assert {cursor.position for cursor in made.cursors.values()} == {3}
    assert not any(isinstance(step, LookUp) for step in made.steps)


def test_should_follow_nothing_more_once_reading_stops() -> None:
    made = asked_to_give_up()
    made.reading.handed.stops = True
    made.follow()
    assert made.steps == []


def test_should_do_nothing_more_once_it_has_left() -> None:
    made = asked_to_give_up()
    made.carry_out(made.plan.hand_back(made.town.now_ms + 1_000))
    assert [sorted(each) for each in made.told["revoked"]] == [[P0, P1]]
    made.member.leave(made.town.now_ms)
    assert not made.plan.is_due(), "a loop over it would never end"
    assert made.member.assigned.held == {}
    made.carry_out(made.plan.hand_back(made.town.now_ms + 1_000))
    assert len(made.told["revoked"]) == 1


def test_should_tell_of_the_loss_where_the_session_ends_while_it_hands_back() -> None:
    made = reads_both()
    made.before[CommitPassed] = made.be_cut_off
    made.carry_out(made.plan.hand_back(made.town.now_ms + 1_000))
    assert made.told["revoked"] == []
    assert [sorted(each) for each in made.told["lost"]] == [[P0, P1]]
