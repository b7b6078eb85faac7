"""Compaction of the partitions that a broker holds: which log is looked at when, one pass after the other, in a
process.

A log is looked at when it was opened, configured or rolled since the last time, and when its last look said so
(`Later.at_ms`); that costs next to nothing for all others. Passes run one at a time in a process of its own; between
two of them every log that is due has its look, in turn. Followers compact what they hold as leaders do: the records
below the high watermark are the same everywhere.

A log that holds a damaged batch is left as it is until it is opened anew, which is logged as an error; one whose pass
failed for another reason is tried again later, and ever later (`retry_ms`), whatever is appended to it meanwhile.
Batches that were written so that nobody can decode them stay as they are, which is told once. `Compaction` runs from
the first partition's opening to the drain.

`CompactionProcess` is the broker's handle on the process (`storage.compaction_worker`): started for the first job,
ended when there is none for long. One per broker, used by one task. A process that dies (out of memory, killed) or
cannot be started fails the job that it had; the next job starts another one. `close` ends it at once: segments that it
had written and that were not swapped in are removed by the broker, or by the next opening of the log.
"""

import asyncio
import logging
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Container, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary, WeakSet

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from headrace.core.errors import HeadraceError
from headrace.core.log.compaction import CompactionRules, Later, keys_max, retry_ms
from headrace.core.types import Offset, PartitionKey
from headrace_broker.clock import monotonic_ms, wall_ms
from headrace_broker.partition.partition import Partition
from headrace_broker.storage.compaction_files import (
    GO_ON,
    Cleaned,
    CompactorMessage,
    FailureCause,
    Job,
    PassDone,
    PassFailed,
    UnreadableBatches,
    format_job,
    parse_message,
)

COMPACTION_INTERVAL_MS = 2_000
"""How often a broker looks whether a log is to be compacted."""
COMPACTION_FAILURES_MAX = 3
"""After so many failures in a row it is an error and no warning."""
COMPACTOR_IDLE_MS = 30_000
"""The process that compacts ends after so long without work."""


_PASS_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_log = logging.getLogger(__name__)
_LINE_BYTES_MAX = 1 << 20


class CompactionMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.passes = Counter(
            "headrace_broker_compaction_passes",
            "Passes over a log, by outcome: done, damaged (a batch is not what was written), and what is tried again:"
            " changed (records were deleted meanwhile), disk, memory, ended (the process that compacts was killed).",
            ("outcome",),
            registry=registry,
        )
        self.seconds = Histogram(
            "headrace_broker_compaction_seconds", "Time of one pass.", buckets=_PASS_SECONDS, registry=registry
        )
        self.bytes_read, self.bytes_written, self.records_read, self.records_written = (
            Counter(f"headrace_broker_compaction_{name}", text, registry=registry)
            for name, text in (
                ("bytes_read", "Bytes of segments that were replaced by their compacted form."),
                ("bytes_written", "Bytes of the segments that replaced them."),
                ("records_read", "Records that passes looked at."),
                ("records_written", "Records that they left."),
            )
        )
        self.unreadable = Gauge(
            "headrace_broker_compaction_unreadable_batches",
            "Batches that were written so that nobody can decode them, and stay as they are.",
            registry=registry,
        )
        self.damaged, self.failing = (
            Gauge(f"headrace_broker_compaction_{name}_partitions", text, registry=registry)
            for name, text in (
                ("damaged", "Partitions that are not compacted because a batch in them is damaged."),
                ("failing", "Partitions whose last pass has failed, and will be tried again."),
            )
        )


class CompactionProcess:
    def __init__(self, idle_ms: int = COMPACTOR_IDLE_MS) -> None:
        self._idle_ms = idle_ms
        self._process: Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._leaving: asyncio.Task[int] | None = None
        """Waits for the last process whose input has ended."""

    async def run(self, job: Job) -> AsyncGenerator[CompactorMessage, None]:
        """Yield the messages of the process, Done or Failed last; it goes on when the caller asks for more."""
        try:
            process = await self._started()
        except OSError as error:
            yield PassFailed(FailureCause.ENDED, f"the process that compacts cannot be started: {error.strerror}")
            return
        try:
            told = await self._ask(process, format_job(job))
            while not isinstance(told, PassDone | PassFailed):
                yield told
                told = await self._ask(process, GO_ON)
            if isinstance(told, PassDone):
                assert process.stdin is not None
                process.stdin.write(GO_ON)
        except (OSError, ValueError) as error:
            await self.close()
            told = PassFailed(
                FailureCause.ENDED, f"the process that compacts {_how_ended(process.returncode)}: {error}"
            )
        except BaseException:
            await self.close()  # It would wait for an answer that never comes.
            raise
        # Before the last word: whoever has heard that does not come back for more.
        self._idle = asyncio.get_running_loop().call_later(self._idle_ms / 1000, self._end)
        yield told

    async def close(self) -> None:
        """End the process now."""
        process, self._process = self._process, None
        if process is not None:
            self._cancel_idle()
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._leaving is not None:
            await self._leaving

    async def _started(self) -> Process:
        self._cancel_idle()
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headrace_broker.storage.compaction_worker"),
                stdin=PIPE,
                stdout=PIPE,
                limit=_LINE_BYTES_MAX,
            )
            _log.info("the process that compacts is %d", self._process.pid)
        return self._process

    async def _ask(self, process: Process, line: bytes) -> CompactorMessage:
        """Raises ConnectionError where the process has ended."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line)
        await process.stdin.drain()
        answer = await process.stdout.readline()
        if not answer:
            await process.wait()
            raise ConnectionResetError("it has said nothing more")
        return parse_message(answer)

    def _end(self) -> None:
        """Its input ends, and with it the process; a job that comes now has another one."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            self._leaving = asyncio.create_task(process.wait())

    def _cancel_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()


def _how_ended(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "was killed (signal 9), as the kernel does where memory runs out"
    return f"ended with code {code}"


class Held(Protocol):
    """The partitions that are open on this broker: `Holdings`."""

    def open_partitions(self) -> Sequence[Partition]: ...

    def find(self, key: PartitionKey) -> Partition | None: ...


class Passes(Protocol):
    """The side that carries out a pass: `CompactionProcess`."""

    def run(self, job: Job) -> AsyncGenerator[CompactorMessage, None]: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Look:
    """The state of a log at the last look at it, and the time when the next look is due."""

    rules: CompactionRules | None
    active_segment: Offset
    was_committed: bool
    """Whether all closed segments were."""
    at_ms: int | None = None
    """None: when something has changed."""

    @classmethod
    def at(cls, partition: Partition) -> "_Look":
        active = partition.log.active_segment
        return cls(partition.compaction_rules, active, partition.high_watermark >= active)

    def is_over(self, partition: Partition, now_ms: int) -> bool:
        return (self.at_ms is not None and self.at_ms <= now_ms) or _Look.at(partition) != replace(self, at_ms=None)


class _Failures(NamedTuple):
    """The failures of the passes over one log."""

    in_a_row: int
    until_ms: int
    """The time, by the monotonic clock, until which the log is left alone."""


class Compaction:
    def __init__(
        self, holdings: Held, passes: Passes, registry: CollectorRegistry, *, interval_ms: int, memory_bytes: int
    ) -> None:
        """Looks for what is due each `COMPACTION_INTERVAL_MS`, or each `interval_ms` where that is shorter.

        `memory_bytes` is what broker and compactor may use together.
        """
        self._holdings = holdings
        self._memory_bytes = memory_bytes
        self._interval_ms = min(COMPACTION_INTERVAL_MS, interval_ms)
        self._metrics = CompactionMetrics(registry)
        self._passes = passes
        self._looks: WeakKeyDictionary[Partition, _Look] = WeakKeyDictionary()
        self._failures: WeakKeyDictionary[Partition, _Failures] = WeakKeyDictionary()
        self._damaged: WeakSet[Partition] = WeakSet()
        self._unreadable: WeakKeyDictionary[Partition, UnreadableBatches] = WeakKeyDictionary()
        """The batches that cannot be read, as the last passes have found them."""
        self._metrics.damaged.set_function(lambda: self._count(self._damaged))
        self._metrics.failing.set_function(lambda: self._count(self._failures))
        self._metrics.unreadable.set_function(self._count_unreadable)

    async def run(self) -> None:
        """Visit the logs that are due, for ever."""
        try:
            while True:
                await asyncio.sleep(self._interval_ms / 1000)
                await self._visit_all()
        finally:
            await self._passes.close()

    async def _visit_all(self) -> None:
        """Visit each partition that is due, in a frame of its own: one that waits for long would keep the last one
        and its files alive."""
        for partition in self._due(wall_ms()):
            await self._visit(partition)

    def _due(self, now_ms: int) -> list[Partition]:
        return [each for each in self._holdings.open_partitions() if self._is_due(each, now_ms)]

    def _is_due(self, partition: Partition, now_ms: int) -> bool:
        if partition.compaction_rules is None or partition in self._damaged:
            return False
        failures, look = self._failures.get(partition), self._looks.get(partition)
        if failures is not None and monotonic_ms() < failures.until_ms:
            return False
        return look is None or look.is_over(partition, now_ms)

    async def _visit(self, partition: Partition) -> None:
        look = _Look.at(partition)
        try:
            outcome = await self._maybe_compact(partition)
        except HeadraceError as error:
            outcome = PassFailed(FailureCause.DISK, error.message)
        except Exception as error:  # a mistake of our own with one log must not end the broker
            _log.exception("%s: not compacted", partition.place)
            outcome = PassFailed(FailureCause.ENDED, repr(error))
        if isinstance(outcome, Later):
            self._looks[partition] = replace(look, at_ms=outcome.at_ms)
            return
        self._looks.pop(partition, None)
        if isinstance(outcome, PassFailed):
            await self._failed(partition, outcome)
        else:
            self._failures.pop(partition, None)

    async def _failed(self, partition: Partition, failed: PassFailed) -> None:
        self._metrics.passes.labels(failed.why).inc()
        if failed.why is FailureCause.DAMAGED:
            self._damaged.add(partition)
            partition.log.verification.is_suspect = True
            _log.error("%s cannot be compacted, and grows until it is mended: %s", partition.place, failed.message)
        else:
            self._put_off(partition, failed)
        if self._is_open(partition):
            try:
                await partition.cleaner.change(partition.log.compaction.abandon())
            except HeadraceError as error:
                _log.warning("%s: %s", partition.place, error)

    def _put_off(self, partition: Partition, failed: PassFailed) -> None:
        """Deleted records are no failure, but may come again and again."""
        count = self._failures.get(partition, _Failures(0, 0)).in_a_row + 1
        wait_ms = 0 if failed.why is FailureCause.CHANGED and count == 1 else retry_ms(count)
        self._failures[partition] = _Failures(count, monotonic_ms() + wait_ms)
        level = logging.ERROR if count >= COMPACTION_FAILURES_MAX else logging.WARNING
        told = "%s: not compacted, %d times in a row, tried again in %d s: %s"
        _log.log(level, told, partition.place, count, wait_ms // 1000, failed.message)

    async def _maybe_compact(self, partition: Partition) -> Later | PassDone | PassFailed:
        """Raises StorageFailedError, DiskFullError, ThrottledError."""
        rules = partition.compaction_rules
        if rules is None or not self._is_open(partition):
            return Later(None)
        compaction = partition.log.compaction
        planned = await partition.cleaner.change(compaction.plan(partition.high_watermark, rules, wall_ms()))
        if isinstance(planned, Later):
            return planned
        _log.info("%s: compacting %d segments: %s", partition.place, len(planned.segments), planned.reason)
        with self._metrics.seconds.time():
            async with aclosing(self._passes.run(planned._replace(keys_max=self._keys_for(partition)))) as story:
                async for told in story:
                    if not self._is_open(partition):
                        return Later(None)
                    if isinstance(told, PassFailed):
                        return told
                    if isinstance(told, PassDone):
                        await partition.cleaner.change(compaction.finish(told))
                        self._tell_done(partition, told)
                        return told
                    if not await self._swap_in(partition, told):
                        # What the pass says at its end would not be so: this segment is not compacted.
                        return PassFailed(FailureCause.CHANGED, f"segment {told.base_offset} was deleted meanwhile")
        raise AssertionError("a pass ends with Done or Failed")

    async def _swap_in(self, partition: Partition, cleaned: Cleaned) -> bool:
        if not await partition.cleaner.change(partition.log.compaction.swap_in(cleaned)):
            return False
        self._metrics.bytes_read.inc(cleaned.bytes_before)
        self._metrics.bytes_written.inc(cleaned.size_bytes)
        partition.cleaner.compacted(cleaned.bytes_before - cleaned.size_bytes)
        return True

    def _tell_done(self, partition: Partition, done: PassDone) -> None:
        self._metrics.passes.labels("done").inc()
        self._metrics.records_read.inc(done.records_before)
        self._metrics.records_written.inc(done.records_after)
        _log.info("%s: compacted, %d of %d records stay", partition.place, done.records_after, done.records_before)
        if done.without_key:
            _log.warning("%s: %d records without a key were dropped", partition.place, done.without_key)
        self._tell_unreadable(partition, done.unreadable)

    def _tell_unreadable(self, partition: Partition, found: UnreadableBatches | None) -> None:
        """Warn of batches that cannot be read, once until there are others."""
        if found is None:
            self._unreadable.pop(partition, None)
        elif self._unreadable.get(partition) != found:
            self._unreadable[partition] = found
            told = "%s: %d batches cannot be decoded by anybody, from offset %d on; they stay as they are"
            _log.warning(told, partition.place, *found)

    def _keys_for(self, partition: Partition) -> int:
        failures = self._failures.get(partition)
        return keys_max(self._memory_bytes, 0 if failures is None else failures.in_a_row)

    def _count(self, some: Container[Partition]) -> int:
        """Count the open partitions that are among `some`."""
        return sum(partition in some for partition in self._holdings.open_partitions())

    def _count_unreadable(self) -> int:
        found = (self._unreadable.get(each) for each in self._holdings.open_partitions())
        return sum(each.batches for each in found if each is not None)

    def _is_open(self, partition: Partition) -> bool:
        return self._holdings.find(partition.key) is partition
