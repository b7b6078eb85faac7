"""What the session's process is asked to do, and what it answers: one JSON object on the command line, a line for each
case of each round on stdout."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bench.peers.spark.cases import Size

RECORDS_TOPIC, WARM_TOPIC, WRITTEN_TOPIC = "records", "warm", "written"


def ticks_topic(partitions: int) -> str:
    """With a record for each trigger in each of its partitions."""
    return f"ticks-{partitions}"


@dataclass(frozen=True, slots=True)
class SparkJob:
    headrace: str
    """URL of a broker."""
    kafka: str
    payloads: str
    """A file with one value a line."""
    folder: str
    """For checkpoints."""
    jars: Sequence[str]
    """Of Spark's Kafka source."""
    headrace_pids: Sequence[int]
    kafka_pids: Sequence[int]
    rounds: int
    size: Size

    def to_argument(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, argument: str) -> "SparkJob":
        raw = json.loads(argument)
        return cls(**{**raw, "size": Size(**raw["size"])})


@dataclass(frozen=True, slots=True)
class Measured:
    """One case in one round."""

    case: str
    round: int
    """0 is one that warms up."""
    rows: int
    seconds: float
    """Of a stream: of its triggers, without its start."""
    trigger_ms: Sequence[float]
    """Of each trigger that counts; empty where there are none."""
    spark_cpu_s: float
    """Of the session, its JVM and all Python workers."""
    broker_cpu_s: float

    def to_line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, line: str) -> "Measured":
        return cls(**json.loads(line))
