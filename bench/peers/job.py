"""What a client's process is asked to do, and what it answers: one JSON object on the command line, one on stdout."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Work(StrEnum):
    PRODUCE = "produce"
    """All records, until the last is acknowledged."""
    PRODUCE_REPLICATED = "produce, three replicas"
    """The same, to a topic with three partitions and three replicas on three brokers."""
    CONSUME = "consume"
    """All records from the first, keys and values looked at."""
    ROUND_TRIP = "round trip"
    """One record at a time, from the call to the acknowledgement; as many before that are not counted."""
    MANY_PRODUCERS = "many producers"
    """PRODUCERS of them at once, each with one record on its way; as many records before that are not counted."""


PRODUCERS = 64


@dataclass(frozen=True, slots=True)
class Job:
    work: Work
    server: str
    topic: str
    payloads: str
    """A file with one value a line, all of one size: they are sent in turns."""
    records: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    """In the client's own words."""

    def to_argument(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, argument: str) -> "Job":
        raw = json.loads(argument)
        return cls(**{**raw, "work": Work(raw["work"])})

    def values(self) -> list[bytes]:
        return Path(self.payloads).read_bytes().splitlines()


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one job: how long all of it took, and where each record was waited for, how long one took."""

    records: int
    seconds: float
    p50_ms: float | None = None
    p99_ms: float | None = None

    def to_line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, output: str) -> "Answer":
        """The last line; what a library printed before it is no concern of ours."""
        return cls(**json.loads(output.strip().splitlines()[-1]))


def timed(records: int, times: Sequence[float], seconds: float) -> Answer:
    """The answer of a client that took the time of each record, in seconds."""
    percentiles = statistics.quantiles(times, n=100)
    return Answer(records, seconds, percentiles[49] * 1000, percentiles[98] * 1000)


Doers = Mapping[Work, Callable[[Job], Answer]]


def answer(argument: str, doers: Doers) -> str:
    """What a client's process does with its argument."""
    job = Job.parse(argument)
    return doers[job.work](job).to_line()
