"""One case as a query: what Spark is told, how long it took, and whether all records were there."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.peers.errors import PeersError
from bench.peers.spark.cases import VALUE_BYTES, Case, Side, Work
from bench.peers.spark.job import RECORDS_TOPIC, WARM_TOPIC, WRITTEN_TOPIC, SparkJob, ticks_topic

_FORMATS = {Side.MEMORY: "bench-memory", Side.IDLE: "bench-nothing"}
_TIMEOUT_S = 300.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Done:
    rows: int
    seconds: float
    trigger_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Asking:
    """The session, and what is there to be read: less of it in the round that warms up."""

    spark: SparkSession
    job: SparkJob
    is_warm_up: bool

    @property
    def records(self) -> int:
        return self.job.size.warm_records if self.is_warm_up else self.job.size.records

    def do(self, case: Case) -> Done:
        """Raises PeersError where records are missing."""
        doers: Mapping[Work, Callable[[Case], Done]] = {
            Work.COUNT: self._count,
            Work.LENGTHS: self._lengths,
            Work.STREAM: self._stream,
            Work.TRIGGER: self._triggers,
            Work.WRITE: self._write,
        }
        return doers[case.work](case)

    def _count(self, case: Case) -> Done:
        seconds, count = self._asked(case, "count(*)")
        return Done(_checked(case, count, self.records), seconds)

    def _lengths(self, case: Case) -> Done:
        column = "id" if case.side is Side.RANGE else "value"
        seconds, length = self._asked(case, f"sum(length(cast({column} as string)))")
        if case.side is not Side.RANGE:
            _checked(case, length, self.records * VALUE_BYTES)
        return Done(self.records, seconds)

    def _asked(self, case: Case, expression: str) -> tuple[float, Any]:
        """The time is that of a whole query: plan, tasks and answer."""
        started = time.perf_counter()
        if case.side is Side.RANGE:
            frame = self.spark.range(0, self.records, 1, case.partitions)
        else:
            source, options = self._source(case, self._topic)
            frame = self.spark.read.format(source).options(**options).load()
        (row,) = frame.selectExpr(expression).collect()
        return time.perf_counter() - started, row[0]

    @property
    def _topic(self) -> str:
        return WARM_TOPIC if self.is_warm_up else RECORDS_TOPIC

    def _source(self, case: Case, topic: str) -> tuple[str, dict[str, str]]:
        """Its name and options."""
        options = dict(case.options)
        if case.side is Side.HEADRACE:
            options |= {"server": self.job.headrace, "subscribe": topic}
        elif case.side is Side.KAFKA:
            options |= {"kafka.bootstrap.servers": self.job.kafka, "subscribe": topic}
        else:
            options |= {"partitions": str(case.partitions), "records": str(self.records)}
            options |= {"payloads": self.job.payloads, "triggers": str(self.job.size.triggers)}
        return _FORMATS.get(case.side, case.side.value), options

    def _stream(self, case: Case) -> Done:
        finished = self._streamed(case, self._topic, self.job.size.per_trigger)
        rows = _checked(case, sum(each["numInputRows"] for each in finished), self.records)
        times = _trigger_ms(finished)
        return Done(rows, sum(times) / 1000, times)

    def _triggers(self, case: Case) -> Done:
        """The first plans the query for all: it is left out."""
        finished = self._streamed(case, ticks_topic(case.partitions), case.partitions)
        _checked(case, len(finished), self.job.size.triggers)
        times = _trigger_ms(finished[1:])
        return Done(len(times), sum(times) / 1000, times)

    def _streamed(self, case: Case, topic: str, per_trigger: int) -> list[Any]:
        """What Spark says of each trigger that had something to do."""
        source, options = self._source(case, topic)
        options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(per_trigger)}
        frame = self.spark.readStream.format(source).options(**options).load()
        query = self._started(frame, "noop", {}, available_now=True)
        query.awaitTermination()
        return _worked(query)

    def _write(self, case: Case) -> Done:
        """It goes on until there were enough triggers; the first plans the query for all, and is left out.

        All values are the same: making them costs next to nothing, and nobody compresses.
        """
        rows, triggers = self.job.size.per_trigger, self.job.size.written
        source = {"rowsPerBatch": str(rows), "numPartitions": str(case.partitions)}
        frame = self.spark.readStream.format("rate-micro-batch").options(**source).load()
        values = frame.selectExpr(f"cast(repeat('x', {VALUE_BYTES}) as binary) as value")
        options = {**case.options, **self._sink(case.side)}
        query = self._started(values, case.side.value, options)
        deadline = time.monotonic() + _TIMEOUT_S
        while query.isActive and len(_worked(query)) < triggers and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        query.stop()
        error = query.exception()
        if error is not None:
            raise PeersError(f"{case.key}: {error}")
        times = _trigger_ms(_worked(query)[1:triggers])
        _checked(case, len(times), triggers - 1)
        return Done(rows * len(times), sum(times) / 1000, times)

    def _sink(self, side: Side) -> dict[str, str]:
        """Options of it."""
        if side is Side.HEADRACE:
            return {"server": self.job.headrace, "topic": WRITTEN_TOPIC}
        if side is Side.KAFKA:
            return {"kafka.bootstrap.servers": self.job.kafka, "topic": WRITTEN_TOPIC}
        return {}

    def _started(
        self, frame: DataFrame, sink: str, options: Mapping[str, str], *, available_now: bool = False
    ) -> StreamingQuery:
        checkpoint = mkdtemp(prefix="checkpoint-", dir=Path(self.job.folder))
        writer = frame.writeStream.format(sink).options(**options).option("checkpointLocation", checkpoint)
        return (writer.trigger(availableNow=True) if available_now else writer).start()


def _checked(case: Case, found: int, wanted: int) -> int:
    if found != wanted:
        raise PeersError(f"{case.key}: {found} were there, and {wanted} should be")
    return found


def _worked(query: StreamingQuery) -> list[Any]:
    return [each for each in query.recentProgress if "addBatch" in each["durationMs"]]


def _trigger_ms(finished: list[Any]) -> tuple[float, ...]:
    return tuple(float(each["durationMs"]["triggerExecution"]) for each in finished)
