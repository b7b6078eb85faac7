"""Users of the blocking clients who are interrupted again and again, and know what they must find all the same.

Each owns one client at a time, calls its methods in a random order, and interrupts most calls at a random point. What
a record's value, or its offset, says is compared with what he was told: nothing is skipped, nothing comes twice beyond
what at-least-once allows, every client can be closed afterwards. Nobody here looks at a clock: whoever calls `step`
sees what hangs. Used in the main thread only.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pyarrow as pa

from headrace import Consumer, Producer
from headrace.core.records.columns import RECORD_SCHEMA
from tests.support.interrupts import Points
from tests.support.patience import patient

PARTITIONS: Final = 2
RECORDS: Final = 60
"""In each partition of the topic that is read; the value of each is its offset."""
BATCH: Final = 6
_POINTS_FIRST: Final = 400
_POINTS_MIN: Final = 40
READ_MAX: Final = 40


class Interrupting:
    """Calls that are interrupted at random points, and how many were."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.struck: Counter[str] = Counter()
        self._usual: dict[str, int] = {}
        """How many points a call passes that is not interrupted."""

    def call(self, what: str, work: Callable[[], object]) -> bool:
        """False: it was interrupted."""
        points = Points(after=self.random.randint(1, self._usual.get(what, _POINTS_FIRST) * 5 // 4))
        try:
            with points:
                work()
        except KeyboardInterrupt:
            assert points.has_struck, "another interrupt than this test's"
            self.struck[what] += 1
            self._usual[what] = self._usual.get(what, _POINTS_FIRST) * 21 // 20  # It must be done now and then.
            return False
        if points.has_struck:  # While Python threw a generator away: it tells nobody.
            self.struck[what] += 1
        else:
            self._usual[what] = max(_POINTS_MIN, points.count)
        return True


@dataclass(slots=True)
class Written:
    """What a producer's user has tried to write: numbers, in order."""

    tried: int = 0
    sent: set[int] = field(default_factory=set)
    """Those that must be there."""
    at: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Partition and offset, of those whose futures told."""
    seen: list[tuple[int, int, int]] = field(default_factory=list)
    """Number, partition and offset of what is there."""

    def next(self, count: int) -> list[int]:
        first = self.tried + 1
        self.tried += count
        return list(range(first, self.tried + 1))

    def judge(self) -> None:
        numbers = [number for number, _, _ in self.seen]
        twice = [number for number, times in Counter(numbers).items() if times > 1]
        assert not twice, f"written twice: {twice[:5]}"
        lost = sorted(self.sent.difference(numbers))
        assert not lost, f"lost: {lost[:5]} of {len(lost)}"
        for partition in range(PARTITIONS):
            there = [number for number, number_partition, _ in self.seen if number_partition == partition]
            assert there == sorted(there), f"partition {partition} is out of order"
        for number, partition, offset in self.seen:
            told = self.at.get(number, (partition, offset))
            assert told == (partition, offset), f"{number} is at {partition, offset}, and was told to be at {told}"


@dataclass(slots=True)
class Progress:
    """Where a consumer's user stands in each partition: the offset of the record that he must be handed next.

    In a group he knows only after the first record: between `low`, what was committed as far as he knows, and `high`,
    what he was ever handed.
    """

    is_shared: bool
    next: dict[int, int] = field(default_factory=dict)
    low: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    high: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))

    def begin(self) -> None:
        """A new consumer."""
        self.next = {} if self.is_shared else dict.fromkeys(range(PARTITIONS), 0)

    def handed(self, partition: int, offsets: list[int]) -> None:
        first = offsets[0]
        wanted = self.next.get(partition)
        if wanted is None:
            assert self.low[partition] <= first <= self.high[partition], (
                f"partition {partition} begins at {first}: {self.low[partition]} is committed, and what lies below"
                f" {self.high[partition]} was handed out"
            )
        else:
            assert first == wanted, f"partition {partition} goes on at {first}: {wanted} is next"
        assert offsets == list(range(first, first + len(offsets))), f"partition {partition}: {offsets}"
        self.next[partition] = first + len(offsets)
        self.high[partition] = max(self.high[partition], self.next[partition])

    def committed(self, offsets: dict[int, int]) -> None:
        """As the group tells."""
        for partition, offset in offsets.items():
            low, high = self.low[partition], self.high[partition]
            assert low <= offset <= high, f"partition {partition} is committed up to {offset}: {low} to {high} is right"
            self.low[partition] = offset

    def all_committed(self) -> None:
        """The user has committed what he was handed."""
        for partition, offset in self.next.items():
            self.low[partition] = max(self.low[partition], offset)

    def has_ended(self, *, but: set[int]) -> bool:
        """A loop has come to its end. A new member is handed nothing where the group has committed the end before."""
        for partition in range(PARTITIONS):
            if self.is_shared and partition not in but:
                self.next.setdefault(partition, self.high[partition])
        return self.is_at_end(but=but)

    def is_at_end(self, *, but: set[int]) -> bool:
        return all(self.next.get(partition, -1) == RECORDS for partition in range(PARTITIONS) if partition not in but)

    def may_be_at_end(self, *, but: set[int]) -> bool:
        """No record may be left: a group may have committed the end of a partition of which this member was handed
        nothing. A loop that waits for records would wait for ever."""
        partitions = set(range(PARTITIONS)) - but
        return all(self.next.get(partition, self.high[partition]) == RECORDS for partition in partitions)


class User(ABC):
    """One who is interrupted."""

    name: str

    def __init__(self, server: str, topic: str, random: Random) -> None:
        self.server, self.topic, self.random = server, topic, random
        self.interrupting = Interrupting(random)

    @property
    def struck(self) -> Counter[str]:
        """By method."""
        return self.interrupting.struck

    @abstractmethod
    def step(self) -> None:
        """Call one method."""

    @abstractmethod
    def end(self) -> None:
        """In peace: close what is open, and look whether all is right."""


class ProducerUser(User):
    name = "Producer"

    def __init__(self, server: str, topic: str, random: Random) -> None:
        super().__init__(server, topic, random)
        self.written = Written()
        self._producer: Producer | None = None
        self._last: tuple[int, Any] | None = None

    def step(self) -> None:
        producer = self._producer
        if producer is None:
            self._open()
            return
        how = [self._send] * 6 + [self._send_batch, self._send_pieces, self._send_records, self._flush, self._result]
        self.random.choice([*how, self.random.choice([self._close, self._leave, self._flush])])(producer)

    def _open(self) -> None:
        linger_ms = self.random.choice([0, 5])
        acks: Any = self.random.choice(["all", "all", "1"])

        def make() -> None:
            self._producer = Producer(self.server, acks=acks, linger_ms=linger_ms)

        self.interrupting.call("constructor", make)

    def _send(self, producer: Producer) -> None:
        (number,) = self.written.next(1)
        how: dict[str, Any] = self.random.choice(
            [{"key": str(number)}, {"partition": number % PARTITIONS}, {"headers": {"a": "b"}}]
        )

        def send() -> None:
            self._last = number, producer.send(self.topic, str(number), **how)
            self.written.sent.add(number)

        self.interrupting.call("send", send)

    def _send_batch(self, producer: Producer) -> None:
        numbers = self.written.next(self.random.randint(1, 20))
        partition = self.random.choice([None, 0])

        def send() -> None:
            producer.send_batch(self.topic, values=[*map(str, numbers)], partition=partition)
            self.written.sent.update(numbers)

        self.interrupting.call("send_batch", send)

    def _send_pieces(self, producer: Producer) -> None:
        numbers = self.written.next(self.random.randint(1, 20))

        def send() -> None:
            producer.send_batch(self.topic, values=map(str, numbers))
            self.written.sent.update(numbers)

        self.interrupting.call("send_batch of an iterator", send)

    def _send_records(self, producer: Producer) -> None:
        numbers = self.written.next(self.random.randint(1, 20))
        rows = [{"value": str(number).encode(), "timestamp_ms": 1, "headers": []} for number in numbers]
        records = pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)

        def send() -> None:
            producer.send_records(self.topic, records)
            self.written.sent.update(numbers)

        self.interrupting.call("send_records", send)

    def _flush(self, producer: Producer) -> None:
        self.interrupting.call("flush", producer.flush)

    def _result(self, _: Producer) -> None:
        if self._last is None:
            return
        number, future = self._last

        def result() -> None:
            told = future.result(patient(60))
            self.written.at[number] = (told.partition, told.offset)

        self.interrupting.call("result", result)

    def _close(self, producer: Producer) -> None:
        self.interrupting.call("close", producer.close)
        self._closed(producer)

    def _leave(self, producer: Producer) -> None:
        (number,) = self.written.next(1)

        def leave() -> None:
            with producer:
                producer.send(self.topic, str(number))
                self.written.sent.add(number)

        self.interrupting.call("with", leave)
        self._closed(producer)

    def _closed(self, producer: Producer) -> None:
        producer.close()
        self._producer = self._last = None

    def end(self) -> None:
        if self._producer is not None:
            self._closed(self._producer)
        self.written.seen = written_in(self.server, self.topic)
        self.written.judge()


class ConsumerUser(User):
    """A reader of a topic that is filled, alone or (again and again as another member) in a group."""

    name = "Consumer"

    def __init__(self, server: str, topic: str, random: Random, *, is_shared: bool = False) -> None:
        super().__init__(server, topic, random)
        self._is_shared = is_shared
        self.name = "Consumer in a group" if is_shared else "Consumer"
        self._groups = 0
        self._progress = Progress(is_shared)
        self._consumer: Consumer | None = None
        self._paused: set[int] = set()
        self._is_woken = False
        self._new_group()

    def _new_group(self) -> None:
        self._groups += 1
        self._options: dict[str, Any] = {}
        self._progress = Progress(self._is_shared)
        if self._is_shared:
            is_auto = self.random.choice([True, False])
            self._options = {"group": f"{self.topic}-{self._groups}", "auto_commit": is_auto}
            if is_auto:
                self._options["auto_commit_interval_ms"] = self.random.choice([1, 20, 5000])

    def step(self) -> None:
        consumer = self._consumer
        if consumer is None:
            self._open()
            return
        self.random.choice([*[self._read] * 6, *self._others])(consumer)
        if self._consumer is not None:
            self._check_positions(consumer)

    @property
    def _others(self) -> Sequence[Callable[[Consumer], None]]:
        both = [self._pause, self._resume, self._end_offsets, self._wakeup, self._end_some]
        return both + ([self._commit, self._group_offsets] * 2 if self._is_shared else [self._seek, self._seek_to_time])

    def _open(self) -> None:
        def make() -> None:
            self._consumer = Consumer(self.topic, server=self.server, **self._options)

        self.interrupting.call("constructor", make)
        self._progress.begin()
        self._paused, self._is_woken = set(), False

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, consumer: Consumer) -> None:
        if self._progress.is_at_end(but=self._paused):
            self._go_back(consumer)
            return
        waiting = [] if self._progress.may_be_at_end(but=self._paused) else [self._endless]
        how = self.random.choice([self._records, self._batches, *waiting])
        wanted = self.random.randint(1, READ_MAX)

        def read() -> None:
            left = wanted
            for partition, offsets in how(consumer):
                assert partition not in self._paused, f"partition {partition} is paused"
                self._progress.handed(partition, offsets)
                left -= len(offsets)
                if left <= 0 or (how == self._endless and self._progress.may_be_at_end(but=self._paused)):
                    return
            if self._is_woken:
                self._is_woken = False
            else:
                assert self._progress.has_ended(but=self._paused), f"ended early: {self._progress.next}"

        self.interrupting.call(how.__name__.strip("_"), read)

    def _records(self, consumer: Consumer) -> Iterator[tuple[int, list[int]]]:
        for record in consumer.records(follow=False):
            yield record.partition, [record.offset]

    def _endless(self, consumer: Consumer) -> Iterator[tuple[int, list[int]]]:
        for record in consumer:
            yield record.partition, [record.offset]

    def _batches(self, consumer: Consumer) -> Iterator[tuple[int, list[int]]]:
        for batch in consumer.batches(follow=False):
            yield batch.column("partition")[0].as_py(), batch.column("offset").to_pylist()

    def _go_back(self, consumer: Consumer) -> None:
        """All is read: everything again, or nothing is left but what is paused."""
        if self._paused:
            self._resume(consumer)
        elif self._is_shared:
            self._closed(consumer)
            self._new_group()
        else:
            for partition in range(PARTITIONS):
                consumer.seek(partition, 0)
                self._progress.next[partition] = 0

    # -- all else ----------------------------------------------------------------------------------------------------

    def _check_positions(self, consumer: Consumer) -> None:
        for place in consumer.assignment():
            wanted = self._progress.next.get(place.partition)
            if wanted is not None:
                found = consumer.position(place)
                assert found == wanted, f"the position of {place} is {found}, {wanted} is next"

    def _moved(self, consumer: Consumer, partition: int, to: int) -> None:
        found, before = consumer.position(partition), self._progress.next[partition]
        assert found in (before, to), f"partition {partition} is at {found}: neither at {before} nor at {to}"
        self._progress.next[partition] = found

    def _seek(self, consumer: Consumer) -> None:
        partition, to = self.random.randrange(PARTITIONS), self.random.randint(0, RECORDS)
        where: int | str = {0: "earliest", RECORDS: "latest"}.get(to, to)
        is_done = self.interrupting.call("seek", lambda: consumer.seek(partition, where))
        self._moved(consumer, partition, to)
        assert not is_done or self._progress.next[partition] == to, "a seek has moved nothing"

    def _seek_to_time(self, consumer: Consumer) -> None:
        self.interrupting.call("seek_to_time", lambda: consumer.seek_to_time(0))
        for partition in range(PARTITIONS):
            self._moved(consumer, partition, 0)

    def _pause(self, consumer: Consumer) -> None:
        chosen = [place for place in consumer.assignment() if self.random.random() < 0.5]
        if chosen:
            self.interrupting.call("pause", lambda: consumer.pause(*chosen))
            consumer.pause(*chosen)
            self._paused.update(place.partition for place in chosen)

    def _resume(self, consumer: Consumer) -> None:
        self.interrupting.call("resume", consumer.resume)
        consumer.resume()
        self._paused.clear()

    def _end_offsets(self, consumer: Consumer) -> None:
        def ends() -> None:
            assert set(consumer.end_offsets().values()) <= {RECORDS}

        self.interrupting.call("end_offsets", ends)

    def _wakeup(self, consumer: Consumer) -> None:
        self.interrupting.call("wakeup", consumer.wakeup)
        consumer.wakeup()
        self._is_woken = True

    def _commit(self, consumer: Consumer) -> None:
        held = {place: self._progress.next.get(place.partition) for place in consumer.assignment()}
        named = {place: offset for place, offset in held.items() if offset is not None}
        offsets = self.random.choice([None, named]) if named else None
        if self.interrupting.call("commit", lambda: consumer.commit(offsets)):
            self._progress.all_committed()
        self._group_offsets(consumer)

    def _group_offsets(self, consumer: Consumer) -> None:
        self.interrupting.call("group_offsets", consumer.group_offsets)
        self._progress.committed({place.partition: offset.offset for place, offset in consumer.group_offsets().items()})

    def _end_some(self, consumer: Consumer) -> None:
        """Not often: a new one costs as much as many calls."""
        if self.random.random() < 0.3:
            how = self.random.choice([self._close, self._leave])
            self.interrupting.call(how.__name__.strip("_"), lambda: how(consumer))
            self._closed(consumer)

    def _close(self, consumer: Consumer) -> None:
        consumer.close()

    def _leave(self, consumer: Consumer) -> None:
        with consumer:
            consumer.assignment()

    def _closed(self, consumer: Consumer) -> None:
        consumer.close()
        self._consumer = None

    def end(self) -> None:
        """A last one reads the rest, in peace."""
        consumer = self._consumer
        if consumer is None:
            consumer = Consumer(self.topic, server=self.server, **self._options)
            self._progress.begin()
            self._paused = set()
        with consumer:
            consumer.resume()
            self._paused = set()
            for _ in range(2):  # Whoever was woken ends once before his first record.
                for partition, offsets in self._records(consumer):
                    self._progress.handed(partition, offsets)
            assert self._progress.has_ended(but=set()), f"ends at {self._progress.next}"


def written_in(server: str, topic: str) -> list[tuple[int, int, int]]:
    """Number, partition and offset of all that is there."""
    with Consumer(topic, server=server) as consumer:
        return [(int(each.value or b""), each.partition, each.offset) for each in consumer.records(follow=False)]


def fill(server: str, topic: str) -> None:
    """The topic that is read: several batches in each partition."""
    with Producer(server) as producer:
        for begin in range(0, RECORDS, BATCH):
            for partition in range(PARTITIONS):
                values = [str(offset) for offset in range(begin, begin + BATCH)]
                producer.send_batch(topic, values=values, partition=partition).result(patient(30))
