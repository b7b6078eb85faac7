"""The coordinator: the one mechanism by which a state machine lives on one partition of an internal topic.

    idle ── elected ──> loading ── the log was read to its end ──> active ── deposed ──> idle

`Coordinator` drives a `StateMachine`: `groups.group_machine` for consumer groups, `staging.writer_machine` for staged
writers. The machine decides; the coordinator numbers what the machine wants to be written, and holds back what it wants
to be told. The shell in the broker appends each `Append` in order, reports `Committed` when the high watermark has
passed it, and reports `Deposed` as soon as one cannot be appended or the broker leads no more.

Invariants: nothing is told before everything that was decided earlier is committed, refusals included, so no answer has
to be taken back; only an `Immediate` goes ahead of what waits. After `Deposed` everything that was decided and not
committed is thrown away, and the next leader knows from the log what was committed. Each request gets one `Answer` or
one `Refuse`. Owned by one partition's task; the machine bounds what may wait, by `Backlog`.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from headrace.core.errors import CoordinatorLoadingError, HeadraceError, NotCoordinatorError

EntryT = TypeVar("EntryT")
"""A record of the log."""
EventT = TypeVar("EventT")
"""Something that happens to the machine beside its log: requests, and news of topics, settings and stages."""
EventT_contra = TypeVar("EventT_contra", contravariant=True)
ReplyT = TypeVar("ReplyT")
"""The content of an answer."""
NoticeT = TypeVar("NoticeT")
"""Something that the shell is to do or to tell beside answers."""


class UnreadableRecordError(Exception):
    """A record of an internal topic that this version of Headrace cannot read, or that is damaged."""


class CoordinatorState(StrEnum):
    IDLE = "idle"
    LOADING = "loading"
    ACTIVE = "active"


# -- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker leads the partition: its log is about to be read, up to where it ended then."""


@dataclass(frozen=True, slots=True)
class Read(Generic[EntryT]):
    """The next records of the log, in order, all of them committed."""

    entries: tuple[EntryT, ...]


@dataclass(frozen=True, slots=True)
class ReadToEnd:
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Deposed:
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything up to the `Append` of this number is committed."""

    number: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """The time went on."""

    wall_ms: int
    """The time in milliseconds since 1970, for what outlives this coordinator."""


LogEvent: TypeAlias = Elected | Read[EntryT] | ReadToEnd | Deposed | Committed | Ticked


# -- effects of a machine, and what the shell is to do ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Persist(Generic[EntryT]):
    """Append these as one batch, and commit it; what follows must wait for that."""

    entries: tuple[EntryT, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Answer(Generic[ReplyT]):
    request: int
    reply: ReplyT
    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse the request: it gets this in place of an answer."""

    request: int
    error: HeadraceError
    reason: str


@dataclass(frozen=True, slots=True)
class Immediate(Generic[NoticeT]):
    """Tell it at once, ahead of everything that waits: it says nothing of what was decided."""

    told: Refuse | NoticeT


@dataclass(frozen=True, slots=True)
class Append(Generic[EntryT]):
    """Append these as one batch, after those of lower numbers."""

    number: int
    entries: tuple[EntryT, ...]
    reason: str
    size_bytes: int
    """The bytes of its records, at most."""


Told: TypeAlias = Answer[ReplyT] | Refuse | NoticeT
Order: TypeAlias = Append[EntryT] | Answer[ReplyT] | Refuse | NoticeT
MachineEffect: TypeAlias = Persist[EntryT] | Answer[ReplyT] | Refuse | Immediate[NoticeT] | NoticeT


class Backlog(NamedTuple):
    """How far a coordinator is behind its decisions: the machine takes no more than it may."""

    state: CoordinatorState
    untold: int
    """The number of answers and notices that wait for records to be committed."""
    uncommitted_bytes: int

    def problem(self, label: str) -> HeadraceError | None:
        """Return why nothing can be decided about `label` just now; None where it can."""
        if self.state is CoordinatorState.IDLE:
            return NotCoordinatorError(f"this broker does not coordinate {label}: ask for its coordinator again")
        if self.state is CoordinatorState.LOADING:
            return CoordinatorLoadingError(f"this broker has just become the coordinator of {label}: try again")
        return None


class StateMachine(Protocol[EntryT, EventT_contra, ReplyT, NoticeT]):
    """The part of a coordinator that decides. It is built up again whenever the log is read."""

    @property
    def count(self) -> int:
        """The number of groups or writers that it has: while there are none, time changes nothing."""

    def load(self, entries: Sequence[EntryT]) -> None:
        """Take these records of the log."""

    def begin(self, wall_ms: int, now_ms: int) -> Sequence[MachineEffect[EntryT, ReplyT, NoticeT]]:
        """Decide what follows from the log, which is read."""

    def act(
        self, event: EventT_contra, now_ms: int, backlog: Backlog
    ) -> Sequence[MachineEffect[EntryT, ReplyT, NoticeT]]:
        """Decide what follows from `event`, which may come in any state; requests are refused where it is not active,
        or is behind by too much."""

    def tick(self, wall_ms: int, now_ms: int) -> Sequence[MachineEffect[EntryT, ReplyT, NoticeT]]:
        """Decide what follows from the time alone; called while it is active."""

    def size_bytes(self, entries: Sequence[EntryT]) -> int:
        """Return the most bytes that these can have as records."""

    def told(self, notice: NoticeT) -> None:
        """Note that all that `notice` waited for is committed."""

    def reset(self) -> Iterable[int]:
        """Forget everything that was read and decided. Return the requests that it was to answer later."""


class Coordinator(Generic[EntryT, EventT, ReplyT, NoticeT]):
    def __init__(self, machine: StateMachine[EntryT, EventT, ReplyT, NoticeT]) -> None:
        self.state = CoordinatorState.IDLE
        self._machine = machine
        self._appended = 0
        self._committed = 0
        self._uncommitted: deque[tuple[int, int]] = deque()
        """The numbers of appends, with their bytes."""
        self._uncommitted_bytes = 0
        self._untold: deque[tuple[int, Told[ReplyT, NoticeT]]] = deque()
        """Each answer or notice waits until so many appends are committed; they are told in order."""

    def step(self, event: LogEvent[EntryT] | EventT, now_ms: int) -> list[Order[EntryT, ReplyT, NoticeT]]:
        match event:
            case Elected():
                assert self.state is CoordinatorState.IDLE, "deposed first"
                self.state = CoordinatorState.LOADING
                return []
            case Read(entries):
                self._machine.load(entries)
                return []
            case ReadToEnd(wall_ms):
                assert self.state is CoordinatorState.LOADING, "elected first"
                self.state = CoordinatorState.ACTIVE
                return self._carried_out(self._machine.begin(wall_ms, now_ms))
            case Committed(number):
                return self._commit(number)
            case Deposed(reason):
                return self._depose(reason)
            case Ticked(wall_ms):
                is_active = self.state is CoordinatorState.ACTIVE
                return self._carried_out(self._machine.tick(wall_ms, now_ms)) if is_active else []
            case _:
                backlog = Backlog(self.state, len(self._untold), self._uncommitted_bytes)
                return self._carried_out(self._machine.act(event, now_ms, backlog))

    def _carried_out(
        self, effects: Iterable[MachineEffect[EntryT, ReplyT, NoticeT]]
    ) -> list[Order[EntryT, ReplyT, NoticeT]]:
        at_once: list[Order[EntryT, ReplyT, NoticeT]] = []
        for effect in effects:
            match effect:
                case Persist(entries, reason):
                    at_once.append(self._append(entries, reason))
                case Immediate(told):
                    at_once.append(told)
                case _:
                    self._untold.append((self._appended, effect))
        return [*at_once, *self._released()]

    def _append(self, entries: tuple[EntryT, ...], reason: str) -> Append[EntryT]:
        self._appended += 1
        size_bytes = self._machine.size_bytes(entries)
        self._uncommitted.append((self._appended, size_bytes))
        self._uncommitted_bytes += size_bytes
        return Append(self._appended, entries, reason, size_bytes)

    def _commit(self, number: int) -> list[Order[EntryT, ReplyT, NoticeT]]:
        self._committed = max(self._committed, number)
        while self._uncommitted and self._uncommitted[0][0] <= self._committed:
            self._uncommitted_bytes -= self._uncommitted.popleft()[1]
        return [*self._released()]

    def _released(self) -> list[Told[ReplyT, NoticeT]]:
        released: list[Told[ReplyT, NoticeT]] = []
        while self._untold and self._untold[0][0] <= self._committed:
            told = self._untold.popleft()[1]
            released.append(told)
            if not isinstance(told, Answer | Refuse):
                self._machine.told(told)
        return released

    def _depose(self, reason: str) -> list[Order[EntryT, ReplyT, NoticeT]]:
        """Refuse all requests: whether what is not committed yet will be is not known, so whoever asked must ask the
        next coordinator."""
        requests = [told.request for _, told in self._untold if isinstance(told, Answer | Refuse)]
        requests += self._machine.reset()
        self.state = CoordinatorState.IDLE
        self._untold.clear()
        self._uncommitted.clear()
        self._uncommitted_bytes = 0
        self._committed = self._appended
        error = NotCoordinatorError(f"this broker coordinates it no more ({reason}): ask for its coordinator again")
        return [Refuse(request, error, reason) for request in requests]
