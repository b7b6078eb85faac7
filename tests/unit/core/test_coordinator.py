"""The mechanism of all coordinators, with a state machine that only counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from headrace.core.coordinator import (
    Answer,
    Append,
    Backlog,
    Committed,
    Coordinator,
    CoordinatorState,
    Deposed,
    Elected,
    Immediate,
    MachineEffect,
    Order,
    Persist,
    Read,
    ReadToEnd,
    Refuse,
    Ticked,
)
from headrace.core.errors import CoordinatorLoadingError, HeadraceError, NotCoordinatorError, ThrottledError

Effect: TypeAlias = MachineEffect[str, int, str]
Count: TypeAlias = Coordinator[str, "Added | Asked | Waited", int, str]
FULL = ThrottledError("it has enough")


@dataclass(frozen=True, slots=True)
class Added:
    """A letter that is to be written, and announced."""

    letter: str


@dataclass(frozen=True, slots=True)
class Asked:
    """How many letters there are."""

    request: int


@dataclass(frozen=True, slots=True)
class Waited:
    """The same, and to be answered at the next tick."""

    request: int


class Letters:
    def __init__(self) -> None:
        self.letters: list[str] = []
        self.announced: list[str] = []
        self.backlogs: list[Backlog] = []
        self._waiting: list[int] = []

    @property
    def count(self) -> int:
        return len(self.letters)

    def load(self, entries: Sequence[str]) -> None:
        self.letters += entries

    def begin(self, wall_ms: int, now_ms: int) -> list[Effect]:
        return [f"{self.count} letters at {wall_ms}"]

    def act(self, event: Added | Asked | Waited, now_ms: int, backlog: Backlog) -> list[Effect]:
        self.backlogs.append(backlog)
        match event:
            case Added(letter):
                self.letters.append(letter)
                return [Persist((letter,), "added"), letter]
            case Asked(request):
                problem = backlog.problem("letters") or (FULL if backlog.untold > 2 else None)
                return [Immediate(Refuse(request, problem, "")) if problem else Answer(request, self.count, "asked")]
            case Waited(request):
                self._waiting.append(request)
                return [Immediate("somebody waits")]

    def tick(self, wall_ms: int, now_ms: int) -> list[Effect]:
        waiting, self._waiting = self._waiting, []
        return [Answer(request, self.count, "in time") for request in waiting]

    def size_bytes(self, entries: Sequence[str]) -> int:
        return sum(map(len, entries))

    def told(self, notice: str) -> None:
        self.announced.append(notice)

    def reset(self) -> list[int]:
        self.letters = []
        waiting, self._waiting = self._waiting, []
        return waiting


@pytest.fixture
def letters() -> Letters:
    return Letters()


@pytest.fixture
def coordinator(letters: Letters) -> Count:
    """One that is active, and has read two letters."""
    made: Count = Coordinator(letters)
    for event in (Elected(), Read(("a",)), Read(("b",))):
        assert made.step(event, 0) == []
    assert made.step(ReadToEnd(9), 0) == ["2 letters at 9"]
    return made


def refused(orders: Sequence[Order[str, int, str]]) -> list[tuple[int, type[HeadraceError]]]:
    return [(order.request, type(order.error)) for order in orders if isinstance(order, Refuse)]


def test_should_tell_in_order_once_everything_before_is_committed(coordinator: Count, letters: Letters) -> None:
    assert coordinator.step(Added("c"), 0) == [Append(1, ("c",), "added", 1)]
    assert coordinator.step(Asked(1), 0) == []
    assert coordinator.step(Added("d"), 0) == [Append(2, ("d",), "added", 1)]
    assert letters.announced == ["2 letters at 9"]
    assert coordinator.step(Committed(1), 0) == ["c", Answer(1, 3, "asked")]
    assert coordinator.step(Committed(2), 0) == ["d"]
    assert coordinator.step(Committed(1), 0) == [], "it is known"
    assert letters.announced == ["2 letters at 9", "c", "d"]
    assert coordinator.step(Asked(2), 0) == [Answer(2, 4, "asked")]


def test_should_say_how_far_it_is_behind(coordinator: Count, letters: Letters) -> None:
    for letter in ("ccc", "dd", "e"):
        coordinator.step(Added(letter), 0)
    assert letters.backlogs[-1] == Backlog(CoordinatorState.ACTIVE, 2, 5)
    assert coordinator.step(Asked(1), 0) == [Refuse(1, FULL, "")], "at once"
    coordinator.step(Committed(2), 0)
    coordinator.step(Asked(2), 0)
    assert letters.backlogs[-1] == Backlog(CoordinatorState.ACTIVE, 1, 1)


def test_should_tell_at_once_what_says_nothing_of_decisions(coordinator: Count, letters: Letters) -> None:
    coordinator.step(Added("c"), 0)
    assert coordinator.step(Waited(1), 0) == ["somebody waits"]
    assert "somebody waits" not in letters.announced, "it waited for nothing"


def test_should_tick_only_while_it_is_active(coordinator: Count) -> None:
    coordinator.step(Waited(1), 0)
    assert coordinator.step(Ticked(10), 1) == [Answer(1, 2, "in time")]
    coordinator.step(Deposed("another leads"), 1)
    coordinator.step(Waited(2), 1)
    assert coordinator.step(Ticked(11), 2) == []


def test_should_refuse_everybody_and_forget_everything_when_it_is_deposed(coordinator: Count, letters: Letters) -> None:
    coordinator.step(Waited(1), 0)
    coordinator.step(Added("c"), 0)
    coordinator.step(Asked(2), 0)
    deposed = coordinator.step(Deposed("its disk is full"), 0)
    assert refused(deposed) == [(2, NotCoordinatorError), (1, NotCoordinatorError)]
    assert letters.letters == []
    assert refused(coordinator.step(Asked(3), 0)) == [(3, NotCoordinatorError)]
    coordinator.step(Elected(), 0)
    assert refused(coordinator.step(Asked(4), 0)) == [(4, CoordinatorLoadingError)]
    coordinator.step(ReadToEnd(9), 0)
    assert coordinator.step(Asked(5), 0) == [Answer(5, 0, "asked")], "it waits for nothing of the term before"
    assert letters.backlogs[-1] == Backlog(CoordinatorState.ACTIVE, 0, 0)
    assert coordinator.step(Added("d"), 0) == [Append(2, ("d",), "added", 1)], "numbers go on"
