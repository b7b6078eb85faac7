"""`Consumer`: the blocking way to read records, with positions that the reader owns.

It owns its connections and what was read ahead, from construction to `close`. One thread at a time uses it, as a file;
any other thread, and signal handlers, may call `close` and `wakeup` at any time.
"""

import os
import sys
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from datetime import datetime
from inspect import GEN_CLOSED, getgeneratorstate
from time import monotonic_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headrace.client import consumed_records
from headrace.client.clock import now_ms
from headrace.client.consumer.cursor import Cursor
from headrace.client.consumer.fetcher import Between, Fetcher
from headrace.client.consumer.positions import Positions
from headrace.client.consumer.thread_guard import Closing, Inside, ThreadGuard
from headrace.client.record import GroupOffset, Place, Record, TopicPartition
from headrace.client.transport.brokers import Brokers
from headrace.client.transport.discovery import Servers
from headrace.core.errors import LocalError
from headrace.core.limits import CONSUMER_CLOSE_MS_DEFAULT, PRODUCE_TIMEOUT_MS_DEFAULT
from headrace.core.records.columns import DecodedBatch

if TYPE_CHECKING:
    from headrace.client.consumer.options import GroupOptions
    from headrace.client.groups.blocking_member import BlockingMember


class Consumer(Positions):
    __doc__ = Positions.__doc__

    def _connect(self, server: str | Servers | None, namespace: str | None, ca_file: str | None) -> None:
        self._pid = os.getpid()
        self._iterated: Generator[Record] | None = None
        """The generator that `iter` returned last; perhaps it is over."""
        self._guard = ThreadGuard()
        self._brokers = brokers = Brokers(
            server,
            namespace,
            ca_file=ca_file,
            timeout_ms=self._timeout_ms,
            request_timeout_ms=PRODUCE_TIMEOUT_MS_DEFAULT,
        )
        closing = weakref.finalize(self, Brokers.close, brokers)
        try:
            positions = brokers.run(self._start_positions())
        except BaseException:
            closing()
            raise
        reading = self._reading = self._read_from(positions)
        self._fetcher = Fetcher(brokers, reading)
        self._member = self._new_member(self._group)
        self._finalizer = weakref.finalize(self, _end, self._fetcher, self._member)
        closing.detach()
        if self._member is not None:
            try:
                self._member.join()
            except BaseException:
                self._finalizer()
                raise

    def _new_member(self, options: "GroupOptions | None") -> "BlockingMember | None":
        if options is None:
            return None
        # A consumer without a group does not load the modules of groups.
        from headrace.client.groups.blocking_member import BlockingMember

        return BlockingMember(self._brokers, self._fetcher, options, self._start, self._timeout_ms)

    @property
    def _errands(self) -> Brokers:
        return self._brokers

    # -- reading -----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record]:
        """Return records for ever, or until `wakeup`; it waits for new ones. A loop that was left goes on there."""
        self._check_open()
        self._guard.check()
        if self._iterated is None or getgeneratorstate(self._iterated) == GEN_CLOSED:
            self._iterated = self.records()
        return self._iterated

    def records(self, *, follow: bool = True) -> Generator[Record]:
        """Return records of all partitions, by offset within each. Without `follow`, up to the ends as they are now."""
        return self._records_of(self._begin(follow))

    def _records_of(self, batches: Iterator[tuple[Cursor, DecodedBatch]]) -> Generator[Record]:
        handed, member = self._handed, None if self._member is None else self._member.group_member
        try:
            for cursor, batch in batches:
                turn = cursor.turn
                for handed.last in consumed_records.records(cursor.partition, batch):
                    yield handed.last
                    if handed.stops or (
                        member is not None and (member.news or monotonic_ns() >= member.holds_until_ns)
                    ):
                        handed.came_back_between(cursor)
                        self._follow()
                        if self._is_stopped():
                            self._reading_now.settle()
                            return
                    if cursor.turn != turn:
                        break
                handed.given, handed.last = True, None
        except GeneratorExit:  # The user has left the loop, at the `yield`: no step was broken off.
            self._reading_now.settle()
            raise
        self._reading_now.settle()

    def batches(self, *, follow: bool = True) -> Iterator[Any]:
        """Return what `records` returns as pyarrow.RecordBatches, each of one partition and at least one row.

        Columns: key, value (binary), timestamp_ms (int64), headers (list of name and value), topic (dictionary),
        partition (int32), offset (int64). Keys and values are not copied on their way from the network.
        """
        return self._batches_of(self._begin(follow))

    def _batches_of(self, batches: Iterator[tuple[Cursor, DecodedBatch]]) -> Generator[Any]:
        handed = self._handed
        try:
            for cursor, batch in batches:
                columns = consumed_records.columns(cursor.partition, batch)
                handed.given = True
                yield columns
        except GeneratorExit:
            self._reading_now.settle()
            raise
        self._reading_now.settle()

    def _begin(self, follow: bool) -> Iterator[tuple[Cursor, DecodedBatch]]:
        self._check_reads()
        reading = self._reading_now
        with self._inside():
            self._iterated = None
            reading.begin()
            self._handed.came_back()
            if self._member is not None:
                self._member.run(self._member.resume())
            self._brokers.run(self._end_at(follow=follow))
        return self._read(self._fetcher.batches(self._member or Between()))

    def _read(self, batches: Iterator[tuple[Cursor, DecodedBatch]]) -> Iterator[tuple[Cursor, DecodedBatch]]:
        """Yield all of the batches, until reading is stopped."""
        while True:
            self._check_reads()
            with self._inside():
                found = next(batches, None)
            self._check_reads()
            if found is None:
                self._is_stopped()
                return
            yield found

    def _follow(self) -> None:
        """Do what the group wants by now, between two records."""
        if self._member is not None and not self._handed.stops:
            with self._inside():
                self._member.follow()

    def _is_stopped(self) -> bool:
        """Return whether `wakeup` has stopped the loop; a call counts once. Raises LocalError when it is closed."""
        self._check_reads()
        stops, self._handed.stops = self._handed.stops, False
        return stops

    def wakeup(self) -> None:
        """End the loop over this consumer, or the next one, before its next record.

        Any thread and any signal handler may call it. Nothing else changes: the consumer stays open and in its group,
        and iterating again goes on.
        """
        self._handed.stops = True
        self._fetcher.wake()

    # -- positions ---------------------------------------------------------------------------------------------------

    def seek(self, partition: Place, offset: int | str, *, topic: str | None = None) -> None:
        """Go on from `offset`, `earliest` or `latest`; works inside a loop over this consumer too."""
        cursor = self._cursor(partition, topic)
        with self._inside():
            self._brokers.run(self._seek_offset(cursor, offset))

    def seek_to_time(self, time: int | datetime, *, partitions: Iterable[Place] | None = None) -> None:
        """Go on from the first record at or after `time` (ms since 1970, or a datetime), else from the end."""
        chosen = self._select(partitions)
        with self._inside():
            self._brokers.run(self._seek_time(chosen, time))

    def pause(self, *partitions: Place) -> None:
        with self._inside():
            super().pause(*partitions)

    def resume(self, *partitions: Place) -> None:
        with self._inside():
            super().resume(*partitions)

    def end_offsets(self) -> dict[TopicPartition, int]:
        """The high watermarks as they are now: the offset that the next record of each partition will have."""
        with self._inside():
            return self._brokers.run(self._ends())

    # -- the group ---------------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, metadata: str = "") -> None:
        """Commit for the group: everything that was handed out, or `offsets` of the next records to read.

        It returns when the commit is written. Raises FencedMemberError, and commits nothing, where a partition is not
        this member's (any more).
        """
        member = self._checked_member()
        with self._inside():
            member.run(member.commit(offsets, metadata))

    def group_offsets(self) -> dict[TopicPartition, GroupOffset]:
        """Return the offsets that members of the group have committed."""
        member = self._checked_member()
        with self._inside():
            return member.run(member.group_offsets())

    def commit_below(self, first_undone: Callable[[TopicPartition], int | None]) -> None:
        """Bound automatic commits, for a program that hands records on and asks for more before they are done.

        Before each automatic commit, `first_undone` is asked for the offset of the first record that is not done; it
        returns None when all records that were handed out are done. Any thread calls it, often: it must not wait.
        """
        self._checked_member().group_member.assigned.first_undone = first_undone

    def _checked_member(self) -> "BlockingMember":
        if self._member is None:
            raise LocalError(self._no_group)
        self._check_open()
        return self._member

    def _check_open(self) -> None:
        if not self._finalizer.alive or self._pid != os.getpid():
            raise LocalError(self._not_started)

    def _check_reads(self) -> None:
        """Raise LocalError while it is being closed: callbacks may still commit then, but nothing is read any more."""
        self._check_open()
        if self._guard.is_closing:
            raise LocalError(self._not_started)

    # -- the end -----------------------------------------------------------------------------------------------------

    def close(self, timeout_ms: int = CONSUMER_CLOSE_MS_DEFAULT) -> None:
        """End the connections, and leave the group, in this time or a second more. Safe to call again.

        The records that were handed out last are committed only if the user came back for more, or leaves the `with`
        without an error. When another thread or a signal handler calls it, the loop over this consumer closes the
        consumer and raises LocalError.
        """
        if self._pid != os.getpid() or not self._finalizer.alive:
            self._finalizer()
            return
        by_ms = now_ms() + timeout_ms
        if self._member is not None and not self._guard.is_closing:
            self._member.hurry(by_ms)
        how = self._guard.ask(sys._getframe())
        self.wakeup()
        if how is Closing.NOW:
            self._close_now()
        elif how is Closing.WAIT and not self._guard.wait(timeout_ms):
            self._finalizer()

    def _close_now(self) -> None:
        try:
            if self._member is not None:
                self._member.hand_back()
        finally:
            _end(self._fetcher, self._member)
            self._finalizer.detach()  # Not before: a thread that was interrupted may close it again.
            self._guard.closed()

    def _inside(self) -> Inside:
        """Return the visit of this thread, which closes the consumer for others. Raises LocalError beside another."""
        return Inside(self._guard, self._close_now)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._member is not None and self._finalizer.alive:
            self._reading_now.begin()
            self._handed.came_back()
        self.close()


def _end(fetcher: Fetcher, member: "BlockingMember | None") -> None:
    """Leave the group, then end the fetcher. After an interrupt before the group has heard of it, the fetcher stays
    so that a second `close` can tell the group.
    """
    try:
        if member is not None:
            member.close()
    except Exception:
        fetcher.close()
        raise
    fetcher.close()
