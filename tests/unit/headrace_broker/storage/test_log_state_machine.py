"""A log against a list of batches: appends, rolls, deletions, cuts, reads, stops, crashes, damage, in any order."""

import asyncio
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.core.errors import CorruptLogError
from headrace.core.limits import PRODUCER_BATCHES_REMEMBERED
from headrace.core.log.segments import LogConfig
from headrace.core.records.header import NO_PRODUCER, NOT_IDEMPOTENT, BatchHeader, ProducerNumbers
from headrace.core.records.raw import RawBatch, split_replicated
from headrace.core.replication.producers import Remembered
from headrace.core.resources.topic import Durability
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.threads import StorageThreads
from tests.support.examples import examples
from tests.support.logs import NOW_MS, content_of, log_bytes, log_files, new_log_directory, open_log, raw_batch
from tests.support.patience import patient

CONFIG = LogConfig(segment_bytes=16_000, segment_ms=1 << 40, durability=Durability.FSYNC)
SIZES = st.sampled_from([1, 300, 2_000, 9_000])
PRODUCERS = st.sampled_from([NO_PRODUCER, 1, 2])


class LogMachine(RuleBasedStateMachine):
    """`batches` is what the disk must hold, byte for byte; the first `durable` of them survive whatever happens.

    What lies below `start` is deleted, though it may be on the disk still; `base` is where the first segment begins.
    A sync may be heard of long after it was done.
    `written` has all batches of idempotent producers that the log has held and not lost, deleted or not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.threads = StorageThreads()
        self.directory = new_log_directory(self.root)
        self.log: PartitionLog
        self.batches: list[bytes] = []
        self.durable = 0
        self.syncing: asyncio.Task[None] | None = None
        self.epoch = LeaderEpoch(1)
        self.high_watermark = Offset(0)
        self.start = self.base = Offset(0)
        self.written: dict[int, list[Remembered]] = {1: [], 2: []}
        self.remembers = {1: 0, 2: 0}
        """How many of the last ones at least: one that is cut off does not bring back an older one."""
        self.cut_deep = {1: -1, 2: -1}
        """How many batches were left when more was cut than is remembered; a sequence is not certain while no more are.
        """

    @initialize()
    def begin(self) -> None:
        self.log = open_log(self.directory, self.threads, CONFIG)

    def teardown(self) -> None:
        self._finish_sync()
        self.threads.close()
        self.runner.close()
        shutil.rmtree(self.root)

    @property
    def end(self) -> Offset:
        return BatchHeader.unpack(self.batches[-1]).next_offset if self.batches else self.base

    @rule(
        sizes=st.lists(st.tuples(st.integers(1, 3), SIZES, PRODUCERS), min_size=1, max_size=4), new_epoch=st.booleans()
    )
    def append(self, sizes: list[tuple[int, int, int]], new_epoch: bool) -> None:
        self.epoch = LeaderEpoch(self.epoch + new_epoch)
        first, batches = self.end, self._made(sizes)

        appended = self.log.append(batches, self.epoch, NOW_MS)

        self.batches.extend(content_of(batch) for batch in batches)
        assert (appended.first_offset, appended.last_offset) == (first, self.end - 1)
        assert appended.base_offsets == tuple(batch.header.base_offset for batch in batches)

    @rule(
        sizes=st.lists(st.tuples(st.integers(1, 3), SIZES, PRODUCERS), min_size=1, max_size=4),
        jumps=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    )
    def replicate(self, sizes: list[tuple[int, int, int]], jumps: list[int]) -> None:
        """In whatever epochs the leader has it: after a cut they may be lower than what was here."""
        end, epoch, batches = self.end, LeaderEpoch(max(self.log.last_epoch, 0)), self._made(sizes)
        for batch, jump in zip(batches, jumps, strict=False):
            epoch = LeaderEpoch(epoch + jump)
            end = batch.stamp(end, epoch).header.next_offset

        self.log.append_replicated(split_replicated([content_of(batch) for batch in batches]), NOW_MS)

        self.batches.extend(content_of(batch) for batch in batches)
        self.epoch = epoch

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        asked = Offset(data.draw(st.integers(self.start, self.end), label="asked"))
        kept = [batch for batch in self.batches if BatchHeader.unpack(batch).next_offset <= asked]
        end = BatchHeader.unpack(kept[-1]).next_offset if kept else self.base
        committed = min(self.high_watermark, self.end)
        if end < committed:
            with pytest.raises(CorruptLogError, match="committed"):
                self.runner.run(self.log.truncate(asked))

        assert self.runner.run(self.log.truncate(asked, allow_below_high_watermark=end < committed)) == end

        self.batches, self.durable = kept, len(kept)
        self.start, self.high_watermark = min(self.start, end), min(self.high_watermark, end)
        self.epoch = LeaderEpoch(max(self.log.last_epoch, 1))
        assert self.log.durable_end == end
        self._lose_written()

    @rule()
    def sync(self) -> None:
        assert self.runner.run(self.log.sync()) == self.end
        self.durable = len(self.batches)

    @rule()
    def begin_sync(self) -> None:
        """The thread does its work now, so that each run is like the other; the loop hears of it later."""
        self._finish_sync()
        done, sync = threading.Event(), self.log._syncer.sync

        def telling() -> Offset:
            try:
                return sync()
            finally:
                done.set()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.log._syncer, "sync", telling)
            self.syncing = self.runner.get_loop().create_task(self._sync())
            self.runner.run(asyncio.sleep(0))
            assert done.wait(patient(10))
        self.durable = len(self.batches)

    @rule()
    def _finish_sync(self) -> None:
        if self.syncing is not None:
            syncing, self.syncing = self.syncing, None
            self.runner.run(asyncio.wait_for(syncing, patient(10)))

    @rule()
    def checkpoint_high_watermark(self) -> None:
        self.high_watermark = self.log.durable_end
        self.runner.run(self.log.checkpoint_high_watermark(self.high_watermark))

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        before = Offset(data.draw(st.integers(self.start, self.end), label="before"))

        bases = self._bases()

        self.runner.run(self.log.delete_before(before))

        self.start = before
        if before > self._offset_of(self.durable):
            self.durable = len(self.batches)
        if before == self.end > bases[-1]:
            bases.append(before)  # the segment that was written to goes too
            self.durable = len(self.batches)
        self._drop(bases)

    @rule(jump=st.integers(0, 2_000))
    def start_anew(self, jump: int) -> None:
        offset = Offset(self.end + jump)
        self.runner.run(self.log.start_at(offset))
        self.start, self.base, self.batches = offset, offset, []
        self.durable = 0

    @rule(data=st.data(), max_bytes=st.sampled_from([0, 700, 5_000, 40_000]))
    def read(self, data: st.DataObject, max_bytes: int) -> None:
        offset = data.draw(st.integers(self.start, self.end), label="offset")
        up_to = Offset(data.draw(st.integers(offset, self.end + 2), label="up to"))

        found = b"".join(self.runner.run(self.log.read(Offset(offset), max_bytes=max_bytes, up_to=up_to)))

        assert found == self._expected(offset, max_bytes, up_to)

    @rule(data=st.data())
    def find_timestamp(self, data: st.DataObject) -> None:
        wanted = data.draw(st.integers(NOW_MS - 1, NOW_MS + len(self.batches) + 1), label="time")
        up_to = Offset(data.draw(st.integers(self.start, self.end), label="up to"))

        found = self.runner.run(self.log.find_timestamp(wanted, up_to))

        headers = [BatchHeader.unpack(batch) for batch in self.batches]
        seen = [header for header in headers if header.next_offset <= up_to and header.max_timestamp_ms >= wanted]
        seen = [header for header in seen if header.next_offset > self.start]
        first = max(seen[0].base_offset, self.start) if seen else None
        assert found == ((first, seen[0].max_timestamp_ms) if seen else None)

    @rule()
    def stop_cleanly_and_open(self) -> None:
        self._finish_sync()
        self.log.close()
        self._open()
        assert self.log.recovery.scanned_bytes == 0
        assert self.log.recovery.cut_bytes == 0

    @rule()
    def kill_and_open(self) -> None:
        self._finish_sync()
        self._open()
        assert self.log.recovery.cut_bytes == 0

    @rule(data=st.data(), kind=st.sampled_from(["truncate", "lose files", "flip", "zero", "garbage"]))
    @precondition(lambda self: len(self.batches) > self.durable)
    def crash_with_a_damaged_tail(self, data: st.DataObject, kind: str) -> None:
        self._finish_sync()
        durable_bytes = sum(map(len, self.batches[: self.durable]))
        assume(durable_bytes < sum(map(len, self.batches)))
        at = data.draw(st.integers(durable_bytes, sum(map(len, self.batches)) - 1), label="at byte")
        self._damage(kind, at)
        self._open_damaged()
        assert not self.log.recovery.cut_below_recovery_point

    @rule(data=st.data())
    @precondition(lambda self: self.batches)
    def damage_an_index_and_open(self, data: st.DataObject) -> None:
        self._finish_sync()
        if data.draw(st.booleans(), label="clean stop"):
            self.log.close()
        indexes = sorted(path for path in self.directory.iterdir() if path.suffix in {".index", ".timeindex"})
        path = data.draw(st.sampled_from(indexes))
        content = path.read_bytes()
        at = data.draw(st.integers(0, len(content)), label="at byte")
        path.write_bytes(content[:at] + data.draw(st.sampled_from([b"", b"\0" * 24, content[at + 1 :]]), label="rest"))
        self._open()

    @invariant()
    def holds_what_was_appended(self) -> None:
        if hasattr(self, "log"):
            assert log_bytes(self.directory) == b"".join(self.batches)
            assert self.log.size_bytes == sum(map(len, self.batches))
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)

    @invariant()
    def vouches_for_no_more_than_it_has(self) -> None:
        if hasattr(self, "log"):
            assert self._offset_of(self.durable) <= self.log.durable_end <= self.log.log_end_offset

    @invariant()
    def knows_its_epochs(self) -> None:
        starts = self.log.epochs.starts if hasattr(self, "log") else ()
        headers = [BatchHeader.unpack(batch) for batch in self.batches]
        shown = [header for header in headers if header.next_offset > self.start]
        for header in shown:
            assert header.leader_epoch == [each.epoch for each in starts if each.offset <= header.base_offset][-1]
        if shown:
            assert starts[-1].epoch == shown[-1].leader_epoch

    @invariant()
    def knows_its_producers(self) -> None:
        """Their last batches; after a loss, those that are left of them."""
        states = self.log.producers.states() if hasattr(self, "log") else {}
        for producer, state in states.items():
            written = self.written[producer]
            assert list(state.batches) == written[len(written) - len(state.batches) :]
            after = written[-1].next_sequence if written else 0
            assert state.next_sequence >= after, "nothing that the log has is taken again"
            assert state.next_sequence == after or len(written) <= self.cut_deep[producer]

    def _made(self, sizes: list[tuple[int, int, int]]) -> list[RawBatch]:
        """To be appended at the end, in this order."""
        end, batches = self.end, []
        for records, size, producer in sizes:
            numbers = self._written(producer, end, records)
            batches.append(raw_batch(records, size, NOW_MS + len(self.batches), numbers))
            end = Offset(end + records)
        return batches

    def _written(self, producer: int, offset: Offset, records: int) -> ProducerNumbers:
        if producer == NO_PRODUCER:
            return NOT_IDEMPOTENT
        before = self.written[producer]
        sequence = before[-1].next_sequence if before else 0
        before.append(Remembered(0, sequence, offset, Offset(offset + records - 1)))
        self.remembers[producer] = min(self.remembers[producer] + 1, PRODUCER_BATCHES_REMEMBERED)
        return ProducerNumbers(producer, 0, sequence)

    def _lose_written(self) -> None:
        for producer, written in self.written.items():
            kept = [batch for batch in written if batch.last_offset < self.end]
            remembered = self.log.producers.states().get(producer)
            self.written[producer] = kept
            held = len(remembered.batches) if remembered is not None else 0
            lost = len(written) - len(kept)
            if lost > self.remembers[producer]:
                self.cut_deep[producer] = len(kept)
            self.remembers[producer] = max(0, self.remembers[producer] - lost)
            assert held >= self.remembers[producer], "what may come again"

    async def _sync(self) -> None:
        """Whenever it comes back, it says no more than is so then."""
        assert await self.log.sync() <= self.log.durable_end

    def _offset_of(self, index: int) -> Offset:
        """Where the batch with this index begins, or would."""
        return BatchHeader.unpack(self.batches[index]).base_offset if index < len(self.batches) else self.end

    def _expected(self, offset: int, max_bytes: int, up_to: Offset) -> bytes:
        found = b""
        for batch in self.batches:
            header = BatchHeader.unpack(batch)
            if header.next_offset <= offset:
                continue
            if header.next_offset > up_to or (found and len(found) + len(batch) > max_bytes):
                break
            found += batch
        return found

    def _bases(self) -> list[Offset]:
        return [Offset(int(path.stem)) for path in log_files(self.directory)]

    def _drop(self, bases: list[Offset]) -> int:
        """Of the segments at `bases`, all are gone that hold nothing from the start on, but never the last one.

        Returns how many bytes that are.
        """
        self.base = bases[sum(following <= self.start for following in bases[1:])]
        dropped = [batch for batch in self.batches if BatchHeader.unpack(batch).base_offset < self.base]
        self.batches = self.batches[len(dropped) :]
        self.durable = max(0, self.durable - len(dropped))
        return sum(map(len, dropped))

    def _open(self) -> None:
        bases = self._bases()
        self.log = open_log(self.directory, self.threads, CONFIG)
        self._drop(bases)
        self.durable = len(self.batches)
        assert self.log.durable_end == self.log.log_end_offset
        assert self.log.high_watermark_checkpoint == min(max(self.high_watermark, self.start), self.end)
        self._lose_written()

    def _damage(self, kind: str, at: int) -> None:
        files = log_files(self.directory)
        while at >= files[0].stat().st_size:
            at -= files.pop(0).stat().st_size
        content = bytearray(files[0].read_bytes())
        match kind:
            case "flip":
                content[at] ^= 1 + at % 255
            case "zero":
                content[at:] = bytes(len(content) - at)
            case "garbage":
                content[at:] = b"\xa5" * 777
            case _:
                del content[at:]
        files[0].write_bytes(content)
        if kind == "lose files":
            for later in files[1:]:
                later.unlink()

    def _open_damaged(self) -> None:
        bases, left = self._bases(), log_bytes(self.directory)
        left = left[self._drop(bases) :]
        kept = b""
        while self.batches and left[len(kept) : len(kept) + len(self.batches[0])] == self.batches[0]:
            kept += self.batches.pop(0)
        lost = bool(self.batches)
        self.batches = _split(kept)
        self.high_watermark, before = min(self.high_watermark, self.end), self.high_watermark
        self.start = min(self.start, self.end)
        self.log = open_log(self.directory, self.threads, CONFIG)
        self._lose_written()
        report = self.log.recovery
        self.durable = len(self.batches)
        assert report.cut_bytes == len(left) - len(kept)
        assert report.cut_below_high_watermark == (self.end < before)
        assert bool(report.cut_reason) == bool(report.cut_bytes)
        assert lost or not report.cut_bytes


def _split(log: bytes) -> list[bytes]:
    batches = []
    while log:
        size = BatchHeader.unpack(log).batch_bytes
        batches.append(log[:size])
        log = log[size:]
    return batches


LogMachine.TestCase.settings = settings(
    examples(0.4),
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLogMachine = LogMachine.TestCase
