"""Spark's part of the comparison with Kafka: cases, what is reached, tables, and what passes between processes."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructType, TimestampType

from bench.peers.parts import Parts
from bench.peers.spark.cases import (
    BULK,
    DEFAULT,
    FULL,
    SHORT,
    VALUE_ALONE,
    Case,
    Side,
    Size,
    Work,
    cases,
    quick_cases,
)
from bench.peers.spark.costs import Tree
from bench.peers.spark.figures import Rounds
from bench.peers.spark.job import Measured, SparkJob
from bench.peers.spark.report import SparkResults
from bench.peers.spark.sources import MemorySource, NothingSource
from bench.peers.spark.targets import Outcome, outcomes

KINDS: dict[str, DataType] = {
    "BINARY": BinaryType(),
    "STRING": StringType(),
    "INT": IntegerType(),
    "LONG": LongType(),
    "TIMESTAMP": TimestampType(),
}
ALL_CASES = [case for group in cases() for case in group]


def schema_of(ddl: str) -> StructType:
    """Of plain columns; Spark itself asks its JVM."""
    schema = StructType()
    for column in ddl.split(", "):
        name, kind = column.split(" ")
        schema.add(name, KINDS[kind])
    return schema


def measured(case: Case, number: int = 1, *, seconds: float = 1.0) -> Measured:
    times = (1000 * seconds,) * 3 if case.work in (Work.TRIGGER, Work.STREAM) else ()
    return Measured(case.key, number, 1_000_000, seconds, times, spark_cpu_s=2.0, broker_cpu_s=0.5)


def rounds_of(**seconds: float) -> Rounds:
    """One in which headrace takes one second for everything, and each other side so many, else one too."""
    return Rounds([measured(case, seconds=seconds.get(case.side.name, 1.0)) for case in ALL_CASES])


def outcome(rounds: Rounds, label: str, beside: str = "") -> Outcome:
    return next(each for each in outcomes(rounds) if each.label == label and each.beside.startswith(beside))


def page(size: Size, rounds: Rounds) -> str:
    return Parts(None, SparkResults(rounds, size, {"Spark": "4.x"})).as_markdown()


def test_should_name_every_case_differently_and_do_less_in_the_short_form() -> None:
    assert len({case.key for case in ALL_CASES}) == len(ALL_CASES)
    assert {case.key for group in quick_cases() for case in group} < {case.key for case in ALL_CASES}
    assert SHORT.records < FULL.records
    assert not SHORT.is_judged
    assert FULL.is_judged


def test_should_leave_the_round_that_warms_up_out_of_medians() -> None:
    case = ALL_CASES[0]
    seconds = {0: 1000.0, 1: 1.0, 2: 4.0, 3: 2.0}
    rounds = Rounds([measured(case, number, seconds=each) for number, each in seconds.items()])
    assert rounds.rate(case) == pytest.approx(500_000)
    assert rounds.count == 3


def test_should_compare_rows_a_second_with_both_settings_of_kafkas_source() -> None:
    slower = rounds_of(KAFKA=3.0)
    bulk = next(case for case in ALL_CASES if case.work is Work.LENGTHS and case.how == BULK)
    others = [each for each in slower.measured if each.case != bulk.key]
    rounds = Rounds([*others, measured(bulk, seconds=1.4)])
    found = [outcome(rounds, "sum(length(value)), all columns", f"kafka, {how}") for how in (DEFAULT, BULK)]
    assert [each.reached for each in found] == pytest.approx([3.0, 1.4])
    assert [each.is_met for each in found] == [True, False]


def test_should_compare_with_memory_by_the_same_columns() -> None:
    memory = next(case for case in ALL_CASES if (case.work, case.side) == (Work.COUNT, Side.MEMORY))
    rounds = [measured(case, seconds=0.5 if case == memory else 1.0) for case in ALL_CASES]
    assert not outcome(Rounds(rounds), f"count(*), {memory.how}", "memory").is_met
    assert outcome(Rounds(rounds), f"count(*), {VALUE_ALONE}", "memory").is_met


@pytest.mark.parametrize(("idle", "added", "met"), [(0.96, 40, True), (0.94, 60, False)])
def test_should_say_how_much_longer_a_trigger_takes_than_that_of_nothing(idle: float, added: float, met: bool) -> None:
    found = outcome(rounds_of(IDLE=idle), "triggers of one record, 8 partitions")
    assert found.reached == pytest.approx(added)
    assert found.is_met is met


def test_should_want_so_many_rows_a_second_of_a_stream() -> None:
    assert outcome(rounds_of(), "stream, all columns").is_met
    slow = Rounds([measured(case, seconds=1.1) for case in ALL_CASES])
    assert not outcome(slow, "stream, all columns").is_met
    assert not outcome(slow, "stream, written, exactly once").is_met


def test_should_render_a_row_for_each_case_and_target() -> None:
    rows = page(FULL, rounds_of(KAFKA=2.0)).splitlines()
    for case in ALL_CASES:
        assert any(row.startswith(f"| {case.work} | {case.side} | {case.how} |") for row in rows), case.key
    head = "| sum(length(value)), all columns | kafka, default |"
    assert f"{head} 1,000,000 rows/s | 500,000 rows/s | 2.00 | ≥ 1.5 | yes |" in rows
    head = "| triggers of one record, 1 partition | nothing, 1 partition |"
    assert f"{head} 1,000 ms | 1,000 ms | +0 ms | ≤ +50 ms | yes |" in rows
    assert sum("| yes |" in row or "| **no** |" in row for row in rows) == len(outcomes(rounds_of()))


def test_should_judge_nothing_in_the_short_form() -> None:
    quick = [case for group in quick_cases() for case in group]
    results = SparkResults(Rounds([measured(case) for case in quick]), SHORT, {})
    said = Parts(None, results).as_markdown()
    assert "wanted" not in said
    assert f"| {Work.LENGTHS} | kafka | {DEFAULT} | 1,000,000 |" in said
    assert str(Work.COUNT) not in said
    assert Parts(None, results).as_json()["spark"]["targets"] == []


def test_should_carry_jobs_and_measurements_between_processes() -> None:
    job = SparkJob("http://127.0.0.1:1", "127.0.0.1:2", "payloads", "folder", ["a.jar"], [1, 2], [3], 3, FULL)
    assert SparkJob.parse(job.to_argument()) == job
    given = measured(ALL_CASES[0])
    assert Measured.parse(given.to_line()).rows == given.rows
    assert Measured.parse(given.to_line()).case == given.case


def test_should_count_the_time_of_all_that_a_process_started_also_when_nobody_waits_for_it() -> None:
    burn = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); sys.stdin.readline()"
    forgets = "import signal, subprocess, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    parent = f"{forgets}; subprocess.Popen([sys.executable, '-S', '-c', {burn!r}]); sys.stdin.read()"
    command = [sys.executable, "-S", "-c", parent]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        tree = Tree(process.pid)
        process.stdout.readline()  # What was started has taken its share, and waits.
        seen = tree.cpu_s()
        process.communicate()
    assert seen >= 0.25
    assert tree.cpu_s() == seen


def test_should_yield_all_records_from_memory_with_the_columns_of_headrace(tmp_path: Path) -> None:
    payloads = str(tmp_path / "payloads")
    Path(payloads).write_bytes(b"one\ntwo\n")
    source = MemorySource({"records": "100000", "partitions": "2", "payloads": payloads})
    schema = schema_of(source.schema())
    batches = list(source.reader(schema).read(InputPartition(1)))
    assert sum(batch.num_rows for batch in batches) == 50_000
    assert batches[0].slice(0, 2).column("value").to_pylist() == [b"one", b"two"]
    assert batches[0].column("partition")[0].as_py() == 1
    alone = MemorySource({"records": "10", "partitions": "1", "payloads": payloads, "columns": "value"})
    (batch,) = alone.reader(schema_of(alone.schema())).read(InputPartition(0))
    assert isinstance(batch, pa.RecordBatch)
    assert (batch.schema.names, batch.num_rows) == (["value"], 10)


def test_should_have_something_new_for_so_many_triggers_and_no_rows() -> None:
    source = NothingSource({"partitions": "3", "triggers": "2"})
    reader = source.streamReader(schema_of(source.schema()))
    limit, offsets = reader.getDefaultReadLimit(), [reader.initialOffset()]
    for _ in range(3):
        offsets.append(reader.latestOffset(offsets[-1], limit))
    assert [each["trigger"] for each in offsets] == [0, 1, 2, 2]
    partitions = list(reader.partitions(offsets[0], offsets[1]))
    assert len(partitions) == 3
    assert list(reader.read(partitions[0])) == []
