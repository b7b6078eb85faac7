"""The arguments of a consumer: topics, partitions, where to start, and how it takes part in a group. Pure.

The arguments of seeks are checked here too. Each mistake raises TypeError or LocalError with the remedy. A consumer
without a group loads this module, so the words of `headrace.core.groups` are imported where a group is given.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from headrace.client.record import OFFSET_MAX, Place, TopicPartition, as_group, as_topic, as_utf8, datetime_ms
from headrace.client.transport.metadata import TopicLayout
from headrace.core.errors import InvalidRequestError, LocalError, OffsetOutOfRangeError, UnknownPartitionError
from headrace.core.limits import (
    AUTO_COMMIT_INTERVAL_MS_DEFAULT,
    INSTANCE_ID_LENGTH_MAX,
    MAX_POLL_INTERVAL_MS_DEFAULT,
    REBALANCE_TIMEOUT_MS_MAX,
    REBALANCE_TIMEOUT_MS_MIN,
)

if TYPE_CHECKING:
    from headrace.core.groups.assignment import Subscription
    from headrace.core.groups.identity import MemberId


Start: TypeAlias = str | int | datetime
"""`earliest`, `latest`, an offset, or a time."""
RAISE, EARLIEST, LATEST = "raise", "earliest", "latest"
"""The values of `on_out_of_range`."""
SKIP = "skip"
"""The other value of `on_unreadable`, beside RAISE."""
Partitions: TypeAlias = Iterable[Place] | Mapping[str, Iterable[int]] | None
Callback: TypeAlias = Callable[[list[TopicPartition]], Any] | None
"""A callback of a consumer; that of an `AsyncConsumer` may be a coroutine function."""


def check_topics(topics: Sequence[str]) -> None:
    if not topics:
        raise LocalError("no topic is given: Consumer('flights')")
    for topic in topics:
        as_topic(topic)


def check_out_of_range(choice: str) -> str:
    if choice not in (RAISE, EARLIEST, LATEST):
        raise LocalError(
            f"on_out_of_range is {choice!r}: give 'earliest' or 'latest' to go on there when the records that are next"
            " are gone, or 'raise' to hear of it"
        )
    return choice


def check_unreadable(choice: str) -> str:
    if choice not in (RAISE, SKIP):
        raise LocalError(
            f"on_unreadable is {choice!r}: give 'skip' to leave out records that nobody can decode, or 'raise' to hear"
            " of them"
        )
    return choice


def check_shared(partitions: Partitions) -> None:
    if partitions is not None:
        raise LocalError("partitions and group are both given: a group shares the partitions out itself; leave out one")


def wanted_partitions(topics: Sequence[str], partitions: Partitions) -> Mapping[str, list[int] | None]:
    """Return the partitions of each topic; None: all, those that it gets later too. Raises TypeError or LocalError."""
    if isinstance(partitions, TopicPartition):
        raise TypeError(f"partitions is one TopicPartition: give a list of them, for example [{partitions!r}]")
    if isinstance(partitions, int):
        raise TypeError(f"partitions is one number: give a list of them, for example [{partitions}]")
    if partitions is None:
        return dict.fromkeys(topics)
    if isinstance(partitions, Mapping):
        return {topic: _listed(partitions.get(topic)) for topic in topics}
    chosen = list(partitions)
    if not chosen:
        raise LocalError("partitions is empty: name at least one, or leave it out to read all")
    numbers: dict[str, set[int]] = {topic: set() for topic in topics}
    for place in chosen:
        topic, number = _place(topics, place)
        numbers[topic].add(number)
    for topic, some in numbers.items():
        if not some:
            raise LocalError(f"partitions has none of {topic}: name at least one, or leave out the topic")
    return {topic: sorted(some) for topic, some in numbers.items()}


def _place(topics: Sequence[str], partition: Place) -> tuple[str, int]:
    if not isinstance(partition, TopicPartition):
        if len(topics) > 1:
            raise LocalError(
                "partitions of several topics are given as a mapping, {'flights': [0, 1], ...}, or as TopicPartitions"
            )
        return topics[0], partition
    if partition.topic not in topics:
        raise LocalError(f"{partition} is no partition of {', '.join(topics)}: name its topic too, or leave it out")
    return partition


def _listed(numbers: Iterable[int] | None) -> list[int] | None:
    return None if numbers is None else sorted(set(numbers))


def places(layout: TopicLayout, numbers: Sequence[int] | None) -> list[TopicPartition]:
    """Return the partitions with these numbers (None: all). Raises UnknownPartitionError."""
    count = len(layout.partitions)
    chosen = range(count) if numbers is None else numbers
    for number in chosen:
        if not 0 <= number < count:
            raise UnknownPartitionError(
                f"partition {number} of {layout.topic} does not exist: it has {count}, numbered from 0",
                partitions=count,
            )
    return [TopicPartition(layout.topic, number) for number in chosen]


def fixed_offset(start: Start, name: str = "start") -> int | None:
    """Return the offset that `start` names. None: ask brokers for `timestamp_of(start)`. Raises LocalError."""
    if isinstance(start, datetime) or start in ("earliest", "latest"):
        return None
    if isinstance(start, int) and not isinstance(start, bool) and 0 <= start <= OFFSET_MAX:
        return start
    raise LocalError(f"{name} is {start!r}: it must be earliest, latest, an offset from 0, or a datetime")


def timestamp_of(start: Start) -> str | int:
    """Return `start` as brokers look it up: `earliest`, `latest`, or milliseconds since 1970 (0 for times before)."""
    if isinstance(start, datetime):
        return max(0, datetime_ms(start))
    return start


def as_ms(time: int | datetime) -> int:
    """Return the milliseconds since 1970. Raises LocalError for a number below 0."""
    if isinstance(time, datetime):
        return max(0, datetime_ms(time))
    if isinstance(time, bool) or not isinstance(time, int):
        raise TypeError(
            f"time is {type(time).__name__}: give a datetime, or milliseconds since 1970-01-01 UTC (a date does not say"
            " where on Earth that day is: datetime.fromisoformat('2024-01-01T00:00:00+00:00'))"
        )
    if not 0 <= time <= OFFSET_MAX:
        raise LocalError(f"time is {time}: it must be a datetime, or milliseconds since 1970-01-01 UTC from 0")
    return time


def check_within(positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    """Raise OffsetOutOfRangeError where the position of a reader is beyond an end."""
    for place, end in ends.items():
        if positions[place] > end:
            raise OffsetOutOfRangeError(
                f"offset {positions[place]} of {place} is not there yet: its next record will have {end}; read from"
                " there, or from 'earliest' or 'latest'"
            )


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The callbacks of a member. The loop that reads calls them: before the first records of partitions that come, and
    after the last records of partitions that go.
    """

    assigned: Callback = None
    revoked: Callback = None
    lost: Callback = None

    def of_lost(self) -> Callback:
        """Return the callback for lost partitions, else that for revoked ones: the user's state of them must go too."""
        return self.lost or self.revoked


@dataclass(frozen=True, slots=True)
class GroupOptions:
    group: str
    subscription: "Subscription"
    instance_id: str = ""
    """The name of a static member; an empty one: the member is not static."""
    auto_commit_interval_ms: int | None = AUTO_COMMIT_INTERVAL_MS_DEFAULT
    """The time between automatic commits. None: only the user commits."""
    max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS_DEFAULT
    """The time for which the user may keep a batch, and so the time that a user has to give partitions up."""
    callbacks: Callbacks = Callbacks()


@dataclass(frozen=True, slots=True)
class GroupArguments:
    """The arguments as they were given; those for groups mean nothing without a group."""

    pattern: str | None = None
    instance_id: str | None = None
    auto_commit: bool = True
    auto_commit_interval_ms: int = AUTO_COMMIT_INTERVAL_MS_DEFAULT
    max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS_DEFAULT
    on_assigned: Callback = None
    on_revoked: Callback = None
    on_lost: Callback = None


def new_member_id() -> "MemberId":
    """Return the id of one life of a member. The member makes it, so that a join without an answer is known again."""
    from headrace.core.groups.identity import MemberId

    return MemberId(str(uuid4()))


def group_options(topics: Sequence[str], group: str | None, given: GroupArguments) -> GroupOptions | None:
    """Return the options of the group. None: no group. Raises TypeError and LocalError, each with the remedy."""
    if group is None:
        _check_without(given)
        return None
    _check_times(given)
    interval_ms = given.auto_commit_interval_ms if given.auto_commit else None
    callbacks = Callbacks(given.on_assigned, given.on_revoked, given.on_lost)
    return GroupOptions(
        as_group(group),
        _subscription(topics, given.pattern or ""),
        _instance_id(given.instance_id),
        interval_ms,
        given.max_poll_interval_ms,
        callbacks,
    )


def _check_without(given: GroupArguments) -> None:
    """Raise LocalError for an argument that only members of groups have."""
    for name, value in (
        ("pattern", given.pattern),
        ("instance_id", given.instance_id),
        ("on_assigned", given.on_assigned),
        ("on_revoked", given.on_revoked),
        ("on_lost", given.on_lost),
    ):
        if value is not None:
            raise LocalError(f"{name} is given without a group: add group='billing', or leave it out")


def _check_times(given: GroupArguments) -> None:
    if given.auto_commit_interval_ms < 1:
        raise LocalError(
            f"auto_commit_interval_ms is {given.auto_commit_interval_ms}: it must be 1 or more; auto_commit=False"
            " leaves committing to you"
        )
    if not REBALANCE_TIMEOUT_MS_MIN <= given.max_poll_interval_ms <= REBALANCE_TIMEOUT_MS_MAX:
        raise LocalError(
            f"max_poll_interval_ms is {given.max_poll_interval_ms}: it must be from {REBALANCE_TIMEOUT_MS_MIN} to"
            f" {REBALANCE_TIMEOUT_MS_MAX}"
        )


def _subscription(topics: Sequence[str], pattern: str) -> "Subscription":
    from headrace.core.groups.assignment import Subscription  # every consumer loads this module, members this

    for topic in topics:
        as_topic(topic)
    as_utf8("pattern", pattern)
    if not topics and not pattern:
        raise LocalError("no topic is given: Consumer('flights', group='billing'), or pattern='flights-.*'")
    try:
        return Subscription.parse(topics, pattern)
    except InvalidRequestError as error:
        raise LocalError(error.message) from None


def _instance_id(instance_id: str | None) -> str:
    if instance_id is None:
        return ""
    if not instance_id or len(instance_id) > INSTANCE_ID_LENGTH_MAX:
        raise LocalError(
            f"instance_id has {len(instance_id)} characters: give 1 to {INSTANCE_ID_LENGTH_MAX}, for example the"
            " name of the Pod, or leave it out"
        )
    as_utf8("instance_id", instance_id)
    return instance_id
