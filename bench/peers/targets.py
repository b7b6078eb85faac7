"""What Headrace wants to reach beside each peer, as ratios within one run: a table, and the ratios themselves. Pure.

A peer is measured with its default and with its bulk settings where it has both, and the better of the two counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.peers.cases import LARGE_BYTES, SMALL_BYTES, Case, Client, cases
from bench.peers.figures import Figure, Rounds, Started, median, peak_bytes
from bench.peers.job import Work


@dataclass(frozen=True, slots=True)
class Target:
    label: str
    work: Work
    value_bytes: int
    how: str
    """Of Headrace."""
    figure: Figure
    beside: Client
    bound: float
    """Ours divided by theirs: at least this for a rate, at most for a time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    label: str
    beside: str
    ours: float
    theirs: float
    unit: str
    bound: float
    at_least: bool

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def is_met(self) -> bool:
        return self.ratio >= self.bound if self.at_least else self.ratio <= self.bound


def _rates() -> list[Target]:
    bounds = [
        ("send_batch, 100 B", Work.PRODUCE, SMALL_BYTES, "send_batch", 3, 4),
        ("send, 100 B", Work.PRODUCE, SMALL_BYTES, "send", 0.5, 0.5),
        ("consume batches, 100 B", Work.CONSUME, SMALL_BYTES, "batches", 2, 4),
        ("send_batch, 1 kB", Work.PRODUCE, LARGE_BYTES, "send_batch", 1.5, 2),
        ("consume batches, 1 kB", Work.CONSUME, LARGE_BYTES, "batches", 1.5, 2),
    ]
    bounds += [
        (f"send_batch, {label}, three replicas", Work.PRODUCE_REPLICATED, size, "send_batch", 1, 1)
        for label, size in (("100 B", SMALL_BYTES), ("1 kB", LARGE_BYTES))
    ]
    return [
        Target(label, work, size, how, Figure.RATE, client, bound)
        for label, work, size, how, java, confluent in bounds
        for client, bound in ((Client.JAVA, java), (Client.CONFLUENT, confluent))
    ]


def _times() -> list[Target]:
    return [
        Target(f"round trip, {label}", Work.ROUND_TRIP, SMALL_BYTES, "send().result()", figure, client, bound)
        for label, figure in (("p50", Figure.P50), ("p99", Figure.P99))
        for client, bound in ((Client.JAVA, 2.0), (Client.CONFLUENT, 1.5))
    ]


TARGETS: Sequence[Target] = (*_rates(), *_times())
# Kafka has one more way here that is stated and not aimed at: its default, which leaves records in the page cache.
_SYNCED = ("many producers, fsync, 1 kB", "fsync (default)", "flush.messages=1")
_RESIDENT_UNDER_LOAD, _RESIDENT_IDLE, _START = 1 / 4, 1 / 5, 1 / 3


def outcomes(rounds: Rounds) -> list[Outcome]:
    found = [_outcome(target, rounds) for target in TARGETS]
    label, ours, theirs = _SYNCED
    rates = [
        median(rounds, _case(Work.MANY_PRODUCERS, client, how).key, Figure.RATE)
        for client, how in ((Client.SDK, ours), (Client.JAVA, theirs))
    ]
    return [*found, Outcome(label, f"{Client.JAVA}, {theirs}", rates[0], rates[1], Figure.RATE, 1.0, at_least=True)]


def _outcome(target: Target, rounds: Rounds) -> Outcome:
    same = [
        case
        for group in cases()
        for case in group
        if case.work is target.work and case.value_bytes == target.value_bytes
    ]
    ours = next(case for case in same if case.client is Client.SDK and case.how == target.how)
    theirs = [median(rounds, case.key, target.figure) for case in same if case.client is target.beside]
    at_least = target.figure is Figure.RATE
    best = max(theirs) if at_least else min(theirs)
    return Outcome(
        target.label,
        target.beside,
        median(rounds, ours.key, target.figure),
        best,
        target.figure,
        target.bound,
        at_least,
    )


def _case(work: Work, client: Client, how: str) -> Case:
    return next(
        case for group in cases() for case in group if (case.work, case.client, case.how) == (work, client, how)
    )


def server_outcomes(rounds: Rounds, kafka: Started, headrace: Started) -> list[Outcome]:
    """Of the brokers' processes: memory, and the time until one that is started serves."""
    loads = [case for group in cases() for case in group if case.work in (Work.PRODUCE, Work.CONSUME)]
    ours = peak_bytes(rounds, [case.key for case in loads if not case.client.is_of_kafka])
    theirs = peak_bytes(rounds, [case.key for case in loads if case.client.is_of_kafka])
    pairs = [
        ("broker RSS, peak under that load", ours, theirs, "bytes", _RESIDENT_UNDER_LOAD),
        ("broker RSS, idle", headrace.idle.resident_bytes, kafka.idle.resident_bytes, "bytes", _RESIDENT_IDLE),
        ("start to ready", headrace.ready_s, kafka.ready_s, "s", _START),
        ("start to first acknowledged record", headrace.acknowledged_s, kafka.acknowledged_s, "s", _START),
    ]
    return [
        Outcome(label, "Kafka", one, other, unit, bound, at_least=False) for label, one, other, unit, bound in pairs
    ]
