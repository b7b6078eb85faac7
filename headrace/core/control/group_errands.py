"""The operator's errands for consumer groups: brokers delete a group that is to go, or set its offsets anew. No I/O.

An errand is a generator: it yields requests to be sent together, is sent their answers in the same order, and returns
the verdict. Every errand may be repeated: a group that is gone is deleted already, and the coordinator carries a reset
out once for each id, whatever became of the answers.

    reset   what the group has offsets of (unless topics are named) ──> ends and times of their partitions
            ──> all of them in one request, with the id: all or nothing
    delete  one request

    wished ── a place is free ──> asked ── answered ──> a verdict, shown in conditions
       └───────── its time has come, and it is wished as before ─────────┘

A wish that is withdrawn is forgotten; a new one is asked for at once. A finished errand is repeated only if the
resource does not show it after a while. A new process knows nothing and asks again. A group that has members is asked
about seldom: until they are gone. Invariant: at most one errand for a wish, GROUP_ERRANDS_MAX for all. `GroupAsking` is
one per operator process.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from headrace.core.errors import (
    GroupNotEmptyError,
    HeadraceError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    RemoteError,
    UnknownPartitionError,
    UnknownTopicError,
)
from headrace.core.groups.assignment import Topics, names_in, partitions_of
from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.events import DeletionReceived, OffsetsAsked, ResetResolved
from headrace.core.groups.identity import GroupType
from headrace.core.groups.requests import GroupCall, call_of, parse_offsets
from headrace.core.limits import RECONCILE_RESYNC_MS
from headrace.core.resources.consumer_group import GROUP_FINALIZER, ConsumerGroup, ResetOffsets, ResetTo
from headrace.core.types import Offset, PartitionKey, TopicUid

GROUP_ERRANDS_MAX = 16
"""Deletions and resets that the operator has on their way at once."""
GROUP_ERRAND_RETRY_MS = 2_000
"""The time after which the operator asks again for what could not be done: a group that has members, a broker that is
away."""


_CAUSE_LENGTH_MAX = 300
Answer: TypeAlias = Any | HeadraceError
"""A JSON body, or the reason why there is none."""
_NUMBER = 0
"""The number of requests: the broker that takes one gives it its own."""


class Result(Enum):
    DONE = "done"
    NOT_EMPTY = "the group has members"
    REFUSED = "it cannot be done as it stands: somebody must change the manifest, or a topic"
    UNANSWERED = "nobody could do it just now"


@dataclass(frozen=True, slots=True)
class ErrandVerdict:
    result: Result
    reason: str
    """The reason in CamelCase, for conditions."""
    message: str = ""
    cause: str = field(default="", compare=False)
    """The full cause, for the log: the broker, and its answer."""

    @classmethod
    def of(cls, error: HeadraceError) -> "ErrandVerdict":
        if isinstance(error, GroupNotEmptyError):
            return cls(Result.NOT_EMPTY, error.code, error.message)
        if error.retriable or error.status >= 500:
            # The words are the same for every try and every broker, so that the status does not change with each.
            # Failures that may not pass by themselves are named.
            why = error.code if error.retriable else f"{error.code}: {error.message[:_CAUSE_LENGTH_MAX]}"
            message = f"the brokers cannot do it now ({why}), it is tried again"
            return cls(Result.UNANSWERED, "Unanswered", message, cause=f"{error.code}: {error.message}")
        return cls(Result.REFUSED, error.code, error.message, cause=f"{error.code}: {error.message}")


DONE = ErrandVerdict(Result.DONE, "Done")


Errand: TypeAlias = Generator[Sequence[GroupCall], Sequence[Answer], ErrandVerdict]
_NOTHING = ErrandVerdict(
    Result.REFUSED,
    "NothingToReset",
    "the group has no offsets of any topic that is there: name `topics`, from which it is to begin there; else the"
    " reset waits until it has some, and is empty",
)


class Wish(NamedTuple):
    """The request of one group; equal wishes are the same wish."""

    group: str
    """The uid of the group's resource."""
    reset: ResetOffsets | None
    """The reset; None: delete the group."""


def wish_of(group: ConsumerGroup) -> Wish | None:
    """Return the wish; None where there is nothing to ask for now: a reset waits until the group has no members, and
    where only progress is shown there is none."""
    uid = group.metadata.uid
    if group.deleting:
        return Wish(uid, None) if GROUP_FINALIZER in group.metadata.finalizers else None
    reset, last = group.spec.reset_offsets, group.status.last_reset
    if (
        reset is None
        or group.spec.type is not GroupType.CONSUMER
        or group.status.members
        or (last is not None and last.id == reset.id)
    ):
        return None
    return Wish(uid, reset)


def errand(group: ConsumerGroup, wish: Wish, topics: Topics) -> Errand:
    """Return the errand; `topics` are those of the group's namespace."""
    try:
        if wish.reset is not None:
            return (yield from _reset(group, wish.reset, topics))
        yield from _asked([call_of(group.name, DeletionReceived(_NUMBER), {})])
    except HeadraceError as error:
        return ErrandVerdict.of(error)
    return DONE


def _reset(group: ConsumerGroup, reset: ResetOffsets, topics: Topics) -> Generator[Any, Any, ErrandVerdict]:
    if reset.to is ResetTo.OFFSETS:
        offsets = _given(reset, topics)
        yield from _check(group, offsets, topics)
    else:
        names = reset.topics or (yield from _topics_of(group, topics))
        if not names:
            return _NOTHING
        keys = [key for name in sorted({*names}) for key in partitions_of(topics[_known(name, topics)])]
        offsets = yield from _found(group, reset, keys, topics)
    values = {key: OffsetValue(offset) for key, offset in offsets.items()}
    yield from _asked([call_of(group.name, ResetResolved(_NUMBER, reset.id, values), names_in(topics))])
    return DONE


def _topics_of(group: ConsumerGroup, topics: Topics) -> Generator[Any, Any, list[str]]:
    """Return the topics that the group has offsets of; deleted ones need no reset."""
    (answer,) = yield from _asked([call_of(group.name, OffsetsAsked(_NUMBER), {})])
    uids = {each.partition.uid for each in parse_offsets(answer)}
    return [name for name, shape in topics.items() if shape.uid in uids]


def _given(reset: ResetOffsets, topics: Topics) -> dict[PartitionKey, Offset]:
    """Return the given offsets. Raises UnknownTopicError, UnknownPartitionError, InvalidRequestError."""
    found: dict[PartitionKey, Offset] = {}
    for each in reset.offsets:
        shape = topics[_known(each.topic, topics)]
        if not 0 <= each.partition < shape.partitions:
            raise UnknownPartitionError(
                f"resetOffsets.offsets: topic {each.topic} has the partitions 0 to {shape.partitions - 1}, and not"
                f" {each.partition}"
            )
        key = PartitionKey(shape.uid, each.partition)
        if key in found:
            raise InvalidRequestError(
                f"resetOffsets.offsets: partition {each.partition} of {each.topic} is there twice: give it one offset"
            )
        found[key] = each.offset
    return found


def _known(name: str, topics: Topics) -> str:
    if name not in topics:
        raise UnknownTopicError(f"resetOffsets: there is no topic {name} in this namespace: create it, or name another")
    return name


def _check(group: ConsumerGroup, offsets: Mapping[PartitionKey, Offset], topics: Topics) -> Generator[Any, Any, None]:
    names = names_in(topics)
    first = yield from _looked_up(group, offsets, names, "earliest")
    last = yield from _looked_up(group, offsets, names, "latest")
    for key, offset in offsets.items():
        if not (first[key] or 0) <= offset <= (last[key] or 0):
            raise OffsetOutOfRangeError(
                f"resetOffsets.offsets: {offset} of partition {key.partition} of {names[key.uid]} is not there, it has"
                f" the offsets {first[key]} to {last[key]}"
            )


def _found(
    group: ConsumerGroup, reset: ResetOffsets, keys: Sequence[PartitionKey], topics: Topics
) -> Generator[Any, Any, dict[PartitionKey, Offset]]:
    names = names_in(topics)
    moment = {ResetTo.EARLIEST: "earliest", ResetTo.LATEST: "latest"}.get(reset.to, str(reset.timestamp_ms))
    found = yield from _looked_up(group, keys, names, moment)
    # Where no record is as late as the time, the next one to be written is taken.
    later = [key for key, offset in found.items() if offset is None]
    ends = yield from _looked_up(group, later, names, "latest")
    return {key: offset if offset is not None else ends[key] or Offset(0) for key, offset in found.items()}


def _looked_up(
    group: ConsumerGroup, keys: Iterable[PartitionKey], names: Mapping[TopicUid, str], moment: str
) -> Generator[Any, Any, dict[PartitionKey, Offset | None]]:
    asked = list(keys)
    namespace = quote(group.metadata.namespace, safe="")
    calls = [
        GroupCall(
            "GET",
            f"/v1/namespaces/{namespace}/topics/{quote(names[key.uid], safe='')}/partitions/{key.partition}/offsets"
            f"?timestamp={moment}&topicUid={quote(key.uid, safe='')}",
            None,
        )
        for key in asked
    ]
    answers = (yield from _asked(calls)) if calls else ()
    return {key: _offset(answer) for key, answer in zip(asked, answers, strict=True)}


def _offset(answer: Any) -> Offset | None:
    """Return the offset; None: there is no record of that time, or later. Raises RemoteError."""
    offset = answer.get("offset", "") if isinstance(answer, dict) else ""
    if offset is not None and not isinstance(offset, int):
        raise RemoteError(f"a broker's answer has no offset: {str(answer)[:100]}")
    return None if offset is None else Offset(offset)


def _asked(calls: Sequence[GroupCall]) -> Generator[Sequence[GroupCall], Sequence[Answer], Sequence[Any]]:
    """Ask, and raise the first error among the answers."""
    answers = yield calls
    for answer in answers:
        if isinstance(answer, HeadraceError):
            raise answer
    return answers


@dataclass(slots=True)
class _Asked:
    wish: Wish
    due_ms: int
    verdict: ErrandVerdict | None = None
    is_held: bool = False
    """True where it is held by members, as far as is known; then it is due later."""

    def takes_note_of(self, group: ConsumerGroup) -> None:
        refused = self.verdict is not None and self.verdict.result is Result.NOT_EMPTY
        self.is_held = refused and bool(group.status.members)

    @property
    def next_ms(self) -> int:
        return self.due_ms + (RECONCILE_RESYNC_MS if self.is_held else 0)


class GroupAsking:
    def __init__(self, most: int = GROUP_ERRANDS_MAX) -> None:
        self._most = most
        self._asked: dict[str, _Asked] = {}
        """The wishes by the uid of the group."""
        self._running: set[Wish] = set()

    def due(self, groups: Iterable[ConsumerGroup], now_ms: int) -> list[tuple[ConsumerGroup, Wish]]:
        """Return the groups to ask for, of all groups as they are now; each is to be `answered`, or `failed`."""
        wished = {group.metadata.uid: (group, wish) for group in groups if (wish := wish_of(group)) is not None}
        self._asked = {
            uid: known if (known := self._asked.get(uid)) is not None and known.wish == wish else _Asked(wish, now_ms)
            for uid, (_, wish) in wished.items()
        }
        for uid, asked in self._asked.items():
            asked.takes_note_of(wished[uid][0])
        waiting = [asked for asked in self._waiting() if asked.next_ms <= now_ms]
        chosen = sorted(waiting, key=lambda asked: asked.next_ms)[: self._most - len(self._running)]
        self._running |= {asked.wish for asked in chosen}
        return [wished[asked.wish.group] for asked in chosen]

    def answered(self, wish: Wish, verdict: ErrandVerdict, now_ms: int) -> bool:
        """Note a verdict, and return whether it is new."""
        self._running.discard(wish)
        asked = self._asked.get(wish.group)
        if asked is None or asked.wish != wish:
            return False
        is_new = asked.verdict != verdict
        pause_ms = RECONCILE_RESYNC_MS if verdict.result in (Result.DONE, Result.REFUSED) else GROUP_ERRAND_RETRY_MS
        asked.verdict, asked.due_ms = verdict, now_ms + pause_ms
        return is_new

    def verdicts(self) -> dict[Wish, ErrandVerdict]:
        """Return the last verdicts of what is wished for."""
        return {asked.wish: asked.verdict for asked in self._asked.values() if asked.verdict is not None}

    def next_due_ms(self) -> int | None:
        due = (asked.next_ms for asked in self._waiting())
        return min(due, default=None) if len(self._running) < self._most else None

    def _waiting(self) -> list[_Asked]:
        return [asked for asked in self._asked.values() if asked.wish not in self._running]

    def drop(self) -> None:
        """Drop everything: this operator does not act any more, and no answer that it has counts. Requests under way
        come to their end."""
        self._asked = {}
