"""Where the user of a consumer stands: what he has been given, and what he may pause, resume and move. No I/O.

`Positions` is the base of `Consumer` and `AsyncConsumer`, which read. A record counts as given when it is handed out,
so the position is right behind the record that was handed out last, although its whole batch has been taken.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from headrace.client.cursor import Cursor, Handed
from headrace.client.discovery import Servers
from headrace.client.read_ahead import ReadAhead
from headrace.client.record import Place, TopicPartition
from headrace.client.subscription import Partitions, Start, check_topics, wanted_partitions
from headrace.core.errors import LocalError
from headrace.core.limits import CONSUMER_PREFETCH_BYTES_DEFAULT, DELIVERY_TIMEOUT_MS_DEFAULT


class Positions(ABC):
    """Reads records of one or more topics; iterate it for `Record`s, or `batches()` for columns.

    `start` is where reading begins in every partition: `earliest`, `latest`, an offset, or a datetime (the first record
    at or after it); `latest` means the end as it is now, when the consumer is made (an `AsyncConsumer`: entered).
    `partitions` restricts it to some partitions of its topic (a mapping by topic where there are several); without it,
    partitions that are added to a topic later are read too, from their beginning. `server` and `ca_file` as for
    `Producer`. What cannot be read for `timeout_ms` raises the last error; iterating again goes on where it stopped.

    Raises UnknownTopicError, UnknownPartitionError, and LocalError with the remedy for anything else that is wrong.
    """

    _not_started: ClassVar[str] = "this consumer is closed (or was made before a fork): make a new one"

    def __init__(  # noqa: PLR0913 - the SDK's own signature: named options, each with its default
        self,
        *topics: str,
        group: str | None = None,
        start: Start = "earliest",
        partitions: Partitions = None,
        server: str | Servers | None = None,
        namespace: str | None = None,
        timeout_ms: int = DELIVERY_TIMEOUT_MS_DEFAULT,
        prefetch_bytes: int = CONSUMER_PREFETCH_BYTES_DEFAULT,
        ca_file: str | None = None,
    ) -> None:
        check_topics(topics, group)
        self._topics = topics
        self._wanted = wanted_partitions(topics, partitions)
        self._start = start
        self._timeout_ms, self._prefetch_bytes = timeout_ms, prefetch_bytes
        self._reading: ReadAhead | None = None
        """None before the start."""
        self._connect(server, namespace, ca_file)

    @abstractmethod
    def _connect(self, server: str | Servers | None, namespace: str | None, ca_file: str | None) -> None: ...

    # -- what users ask ----------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[TopicPartition]:
        """What this consumer reads."""
        return list(self._cursors)

    def position(self, partition: Place, *, topic: str | None = None) -> int:
        """The offset of the next record that will be handed out. A TopicPartition names its topic."""
        return self._handed.position(self._cursor(partition, topic))

    def pause(self, *partitions: Place) -> None:
        """Hand out nothing of these partitions (of all without any) until `resume`."""
        for cursor in self._select(partitions or None):
            cursor.paused = True
            self._move(cursor, self._handed.position(cursor))

    def resume(self, *partitions: Place) -> None:
        for cursor in self._select(partitions or None):
            cursor.paused = False

    # -- what the readers need ---------------------------------------------------------------------------------------

    @property
    def _cursors(self) -> dict[TopicPartition, Cursor]:
        if self._reading is None:
            raise LocalError(self._not_started)
        return self._reading.plan.cursors

    @property
    def _handed(self) -> Handed:
        if self._reading is None:
            raise LocalError(self._not_started)
        return self._reading.handed

    def _settle(self) -> None:
        """What was read ahead of the record handed out last must be read again."""
        handed = self._handed
        if handed.last is not None:
            cursor = self._cursors[TopicPartition(handed.last.topic, handed.last.partition)]
            self._move(cursor, handed.position(cursor))

    def _move(self, cursor: Cursor, offset: int) -> None:
        self._handed.drop_last(cursor)
        cursor.move(offset)

    def _seek(self, cursor: Cursor, offset: int) -> None:
        """As its user wants it: what comes before counts as passed."""
        self._move(cursor, offset)
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
        elif topic is None and len(self._topics) > 1:
            raise LocalError(
                f"this consumer reads {', '.join(self._topics)}: say which with topic=, or a TopicPartition"
            )
        else:
            wanted = TopicPartition(topic or self._topics[0], partition)
        if wanted not in self._cursors:
            raise LocalError(f"this consumer does not read {wanted}; it reads {', '.join(map(str, self._cursors))}")
        return self._cursors[wanted]

    def _select(self, partitions: Iterable[Place] | None) -> list[Cursor]:
        if partitions is None:
            return list(self._cursors.values())
        return [self._cursor(partition, None) for partition in partitions]

    @property
    def _growing(self) -> list[str]:
        """Topics whose new partitions are read too."""
        return [topic for topic, numbers in self._wanted.items() if numbers is None]
