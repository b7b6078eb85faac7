"""A compacted log against a list of records: appends, passes step by step, deletions, stops and kills in any order."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.core.log.compaction import CompactionRules
from headrace.core.log.segments import LogConfig
from headrace.core.resources.topic import Durability
from headrace.core.types import LeaderEpoch, Offset, RecordContent
from headrace_broker.storage.compaction_files import Cleaned, Job, PassDone
from headrace_broker.storage.compaction_worker import compact
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.threads import StorageThreads
from tests.support.compaction import Rows, append, keyed, rows_from
from tests.support.examples import examples
from tests.support.logs import END, NOW_MS, new_log_directory, open_log

CONFIG = LogConfig(segment_bytes=4_000, segment_ms=1 << 40, durability=Durability.FSYNC)
RULES = CompactionRules(min_lag_ms=0, delete_retention_ms=100, segment_bytes=12_000)
RECORDS = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.sampled_from(["", "x", "y" * 900])), min_size=1)


class CompactedLog(RuleBasedStateMachine):
    """`rows` is all that was ever appended; `start` is where the log begins."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.threads = StorageThreads()
        self.directory = new_log_directory(self.root)
        self.log: PartitionLog
        self.rows: Rows = []
        self.start = Offset(0)
        self.epoch = LeaderEpoch(1)
        self.now_ms = NOW_MS
        self.compacting: Iterator[Cleaned | PassDone] | None = None

    @initialize()
    def begin(self) -> None:
        self.log = open_log(self.directory, self.threads, CONFIG)

    def teardown(self) -> None:
        self.threads.close()
        self.runner.close()
        shutil.rmtree(self.root)

    @rule(batches=st.lists(RECORDS, min_size=1, max_size=8), new_epoch=st.booleans())
    def append(self, batches: list[list[tuple[str, str | None]]], new_epoch: bool) -> None:
        self.epoch = LeaderEpoch(self.epoch + new_epoch)
        for records in batches:
            batch = keyed(*records, time_ms=self.now_ms)
            first = self.log.log_end_offset
            append(self.log, batch, epoch=self.epoch)
            self.rows += [(first + i, row) for i, row in enumerate(rows_in(records, self.now_ms))]

    @rule(passed_ms=st.sampled_from([0, 60, 200]))
    @precondition(lambda self: self.compacting is None)
    def begin_pass(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.runner.run(self.log.sync())
        job = self.runner.run(self.log.compaction.plan(self.log.log_end_offset, RULES, self.now_ms))
        self.compacting = compact(job._replace(keys_max=3), lambda size: None) if isinstance(job, Job) else None

    @rule()
    @precondition(lambda self: self.compacting is not None)
    def go_on(self) -> None:
        assert self.compacting is not None
        try:
            made = next(self.compacting)
        except FileNotFoundError:  # What was to be compacted is deleted.
            self.compacting = None
            return
        if isinstance(made, PassDone):
            self.runner.run(self.log.compaction.finish(made))
            self.compacting = None
        else:
            self.runner.run(self.log.compaction.swap_in(made))

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = Offset(data.draw(st.integers(self.start, self.log.log_end_offset), label="before"))
        self.runner.run(self.log.delete_before(self.start))

    @rule(clean=st.booleans())
    def end_and_open(self, clean: bool) -> None:
        if clean:
            self.log.close()
        self.compacting = None
        self.log = open_log(self.directory, self.threads, CONFIG)
        assert self.log.recovery.cut_bytes == 0
        assert not self.log.recovery.damaged_files

    @rule(data=st.data())
    def read_and_find(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.log.log_end_offset), label="offset")
        found = self._read(Offset(offset))
        assert found == [row for row in self._read(self.start) if row[0] >= offset]
        time_ms = data.draw(st.integers(NOW_MS, self.now_ms + 1), label="time")
        young = [(each, row.timestamp_ms) for each, row in self._read(self.start) if row.timestamp_ms >= time_ms]
        assert self.runner.run(self.log.find_timestamp(time_ms, END)) == (young[0] if young else None)

    @invariant()
    def holds_the_last_record_of_each_key_and_nothing_else_than_what_was_written(self) -> None:
        if not hasattr(self, "log"):
            return
        found = self._read(self.start)
        written = dict(self.rows)
        assert all(written[offset] == row for offset, row in found)
        assert [row for row in found if row[0] >= self.log.active_segment] == [
            row for row in self.rows if row[0] >= max(self.start, self.log.active_segment)
        ]
        kept = {row.key: row for _, row in found}
        last = {row.key: row for offset, row in self.rows if offset >= self.start}
        for key, row in last.items():
            # A tombstone may go with its time, but what it has deleted never comes back.
            assert kept.get(key, row if row.value is None else None) == row

    def _read(self, offset: Offset) -> Rows:
        return self.runner.run(rows_from(self.log, offset, max_bytes=5_000))


def rows_in(records: list[tuple[str, str | None]], time_ms: int) -> list[RecordContent]:
    return [RecordContent(key.encode(), None if value is None else value.encode(), time_ms) for key, value in records]


CompactedLog.TestCase.settings = settings(
    examples(0.25), stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
TestCompactedLog = CompactedLog.TestCase
