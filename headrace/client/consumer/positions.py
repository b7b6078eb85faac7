"""The positions of a consumer's user: what has been handed out, and what may be paused, resumed and moved. No I/O.

`Positions` is the base of `Consumer` and `AsyncConsumer`, which read. A record counts as given when it is handed out:
the position lies right behind the record that was handed out last, although its whole batch has been taken.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import update_wrapper
from typing import Any, ClassVar, Self

from headrace.client.clock import now_ms
from headrace.client.consumer.cursor import Cursor, Handed
from headrace.client.consumer.options import (
    RAISE,
    Callback,
    GroupArguments,
    Partitions,
    Start,
    as_ms,
    check_out_of_range,
    check_shared,
    check_topics,
    check_unreadable,
    check_within,
    fixed_offset,
    group_options,
    places,
    timestamp_of,
    wanted_partitions,
)
from headrace.client.consumer.read_ahead import Added, ReadAhead
from headrace.client.record import Place, TopicPartition, check_options
from headrace.client.transport.discovery import Servers
from headrace.client.transport.errands import BrokerErrands, Errand
from headrace.core.errors import LocalError
from headrace.core.limits import (
    AUTO_COMMIT_INTERVAL_MS_DEFAULT,
    DELIVERY_TIMEOUT_MS_DEFAULT,
    MAX_POLL_INTERVAL_MS_DEFAULT,
)

CONSUMER_PREFETCH_BYTES_DEFAULT = 64 << 20
"""The bytes that a consumer asks for ahead of its reader, over all its partitions together."""


class Positions(ABC):
    """Reads records of one or more topics; iterate it for `Record`s, or `batches()` for columns.

    `start` is where reading begins in every partition: `earliest`, `latest`, an offset, or a datetime (the first record
    at or after it); `latest` means the end as it is now, when the consumer is made (an `AsyncConsumer`: entered).
    With a `group`, its members share the partitions, and reading begins where the group has committed; `start` is for
    partitions in which it has committed nothing. docs/sdk.md says what the options of groups do.
    `partitions` restricts it to some partitions of its topic (a mapping by topic where there are several); without it,
    partitions that are added to a topic later are read too, from their beginning. Where the records that are next are
    gone, `on_out_of_range` says whether to `raise`, or to go on at the `earliest` or `latest`; `jumps` counts them. If
    a batch of records was written so that nobody can decode it, `on_unreadable` says whether to `raise`
    UnreadableBatchError, which names its offsets and where to `seek`, or to `skip` it; `skips` counts them. `server`
    and `ca_file` are those of `Producer`. A partition that cannot be read for `timeout_ms` raises the last error;
    iterating again goes on where it stopped.

    Raises UnknownTopicError, UnknownPartitionError, and LocalError with the remedy for anything else that is wrong.
    """

    _no_group: ClassVar[str] = "this consumer is in no group, and commits nothing: make it with group='billing'"
    _not_started: ClassVar[str] = "this consumer is closed (or was made before a fork): make a new one"

    def __new__(cls, *_: Any, **options: Any) -> Self:
        check_options(cls.__name__, vars(Positions)["__init__"], options)
        return super().__new__(cls)

    def __init__(  # noqa: PLR0913 - the SDK's own signature: named options, each with its default
        self,
        *topics: str,
        group: str | None = None,
        pattern: str | None = None,
        instance_id: str | None = None,
        auto_commit: bool = True,
        auto_commit_interval_ms: int = AUTO_COMMIT_INTERVAL_MS_DEFAULT,
        max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS_DEFAULT,
        on_assigned: Callback = None,
        on_revoked: Callback = None,
        on_lost: Callback = None,
        on_out_of_range: str = RAISE,
        on_unreadable: str = RAISE,
        start: Start = "earliest",
        partitions: Partitions = None,
        server: str | Servers | None = None,
        namespace: str | None = None,
        timeout_ms: int = DELIVERY_TIMEOUT_MS_DEFAULT,
        prefetch_bytes: int = CONSUMER_PREFETCH_BYTES_DEFAULT,
        ca_file: str | None = None,
    ) -> None:
        group_arguments = GroupArguments(
            pattern,
            instance_id,
            auto_commit,
            auto_commit_interval_ms,
            max_poll_interval_ms,
            on_assigned,
            on_revoked,
            on_lost,
        )
        self._group = group_options(topics, group, group_arguments)
        self._topics = topics
        if self._group is None:
            check_topics(topics)
            self._wanted = wanted_partitions(topics, partitions)
        else:
            check_shared(partitions)
            self._wanted = {}
        self._start, self._on_out_of_range = start, check_out_of_range(on_out_of_range)
        self._on_unreadable = check_unreadable(on_unreadable)
        fixed_offset(start)
        self._timeout_ms, self._prefetch_bytes = timeout_ms, prefetch_bytes
        self._reading: ReadAhead | None = None
        """The reading; None before the start."""
        self._connect(server, namespace, ca_file)

    @property
    @abstractmethod
    def _errands(self) -> BrokerErrands:
        """The requests to brokers."""

    @abstractmethod
    def _connect(self, server: str | Servers | None, namespace: str | None, ca_file: str | None) -> None: ...

    # -- what users ask ----------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that this consumer reads."""
        return list(self._cursors)

    @property
    def jumps(self) -> int:
        """The number of times that reading went on elsewhere by `on_out_of_range`: the log says where."""
        return 0 if self._reading is None else self._reading.jumps

    @property
    def skips(self) -> int:
        """The number of batches that were left out by `on_unreadable`: the log says which."""
        return 0 if self._reading is None else self._reading.skips

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that this consumer reads now; with a group, its share of them."""
        return self.partitions

    def position(self, partition: Place, *, topic: str | None = None) -> int:
        """Return the offset of the next record that will be handed out. A TopicPartition names its topic."""
        return self._handed.position(self._cursor(partition, topic))

    def pause(self, *partitions: Place) -> None:
        """Hand out nothing of these partitions (all, when none is named) until `resume`."""
        for cursor in self._select(partitions or None):
            self._handed.stay(cursor)
            cursor.paused = True

    def resume(self, *partitions: Place) -> None:
        for cursor in self._select(partitions or None):
            cursor.paused = False

    # -- what the readers need ---------------------------------------------------------------------------------------

    @property
    def _cursors(self) -> dict[TopicPartition, Cursor]:
        return self._reading_now.plan.cursors

    @property
    def _handed(self) -> Handed:
        return self._reading_now.handed

    @property
    def _reading_now(self) -> ReadAhead:
        if self._reading is None:
            raise LocalError(self._not_started)
        return self._reading

    def _start_positions(self) -> Errand[dict[TopicPartition, int]]:
        """Find the first offset to read in each partition; a group says it later."""
        assigned: list[TopicPartition] = []
        for topic, numbers in self._wanted.items():
            layout = yield from self._errands.layout(topic)
            assigned += places(self._errands.directory.pin(layout), numbers)
        return (yield from self._offsets_at(assigned, self._start))

    def _read_from(self, positions: Mapping[TopicPartition, int]) -> ReadAhead:
        reading = ReadAhead(
            self._errands.directory,
            positions,
            self._errands.trouble,
            growing=None if self._group is not None else self._growing,
            timeout_ms=self._timeout_ms,
            prefetch_bytes=self._prefetch_bytes,
        )
        reading.on_out_of_range = self._on_out_of_range
        reading.on_unreadable = self._on_unreadable
        return reading

    def _offsets_at(
        self, partitions: list[TopicPartition], start: Start, name: str = "start"
    ) -> Errand[dict[TopicPartition, int]]:
        offset = fixed_offset(start, name)
        if offset is not None:
            return dict.fromkeys(partitions, offset)
        return (yield from self._errands.offsets(partitions, timestamp_of(start)))

    def _end_at(self, *, follow: bool) -> Errand[None]:
        """Let reading go on for ever, or end it at the ends as they are now, those of new partitions too.

        Raises OffsetOutOfRangeError where a position is beyond an end.
        """
        reading, ends = self._reading_now, None
        if not follow:
            for topic in self._growing:
                yield from self._errands.layout(topic)
            with reading.adding() as new:
                for partition in new:
                    begin = yield from self._errands.offset(partition, "earliest")
                    reading.take(Added(partition, begin), now_ms())
            ends = yield from self._ends()
            check_within({place: cursor.position for place, cursor in self._cursors.items()}, ends)
        reading.plan.end_at(ends)

    def _ends(self) -> Errand[dict[TopicPartition, int]]:
        """Ask for the high watermarks as they are now."""
        return self._errands.offsets(list(self._cursors), "latest")

    def _seek_offset(self, cursor: Cursor, offset: Start) -> Errand[None]:
        found = yield from self._offsets_at([cursor.partition], offset, "offset")
        self._seek(cursor, found[cursor.partition])

    def _seek_time(self, chosen: list[Cursor], time: int | datetime) -> Errand[None]:
        offsets = yield from self._errands.offsets([cursor.partition for cursor in chosen], as_ms(time))
        for cursor in chosen:
            self._seek(cursor, offsets[cursor.partition])

    def _seek(self, cursor: Cursor, offset: int) -> None:
        """Move the cursor as the user wants it: records before `offset` count as passed."""
        self._handed.move(cursor, offset)
        cursor.passed = offset

    def _cursor(self, partition: Place, topic: str | None) -> Cursor:
        if isinstance(partition, TopicPartition):
            if topic not in (None, partition.topic):
                raise LocalError(
                    f"{partition} is no partition of {topic}: leave out topic=, a TopicPartition has its own"
                )
            wanted = partition
        elif not hasattr(partition, "__index__"):
            raise TypeError(f"partition is {type(partition).__name__}: give its number, or a TopicPartition")
        elif topic is None and not self._has_one_topic:
            read = ", ".join(self._topics) or "what its pattern finds"
            raise LocalError(f"this consumer reads {read}: say which with topic=, or a TopicPartition")
        else:
            wanted = TopicPartition(topic or self._topics[0], partition)
        if wanted not in self._cursors:
            read = ", ".join(map(str, self._cursors)) or "nothing"
            raise LocalError(f"this consumer does not read {wanted}; it reads {read}{self._for_now}")
        return self._cursors[wanted]

    def _select(self, partitions: Iterable[Place] | None) -> list[Cursor]:
        if partitions is None:
            return list(self._cursors.values())
        return [self._cursor(partition, None) for partition in partitions]

    @property
    def _has_one_topic(self) -> bool:
        return len(self._topics) == 1 and not (self._group is not None and self._group.subscription.pattern)

    @property
    def _for_now(self) -> str:
        return "" if self._group is None else " just now: partitions come and go with its group"

    @property
    def _growing(self) -> list[str]:
        """The topics whose new partitions are read too."""
        return [topic for topic, numbers in self._wanted.items() if numbers is None]


# `help` and editors that ask for the signature find the options.
update_wrapper(Positions.__new__, Positions.__init__, assigned=(), updated=())
