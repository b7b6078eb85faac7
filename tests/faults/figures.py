"""How long clients had to wait while a cluster was hurt, and what went on all the same. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.faults.history import Fault, History, Outcome


@dataclass(frozen=True, slots=True)
class Progress:
    """What was acknowledged while a fault lasted."""

    fault: str
    seconds: float
    acknowledged: int
    longest_unavailability_s: float
    """Between its beginning, acknowledgements of one partition and its end, the worst of all partitions."""


def unavailability_s(history: History) -> dict[int, float]:
    """By partition: the longest time without an acknowledgement, from the first attempt to the end of the last one."""
    began: dict[int, float] = {}
    ended: dict[int, float] = {}
    for write in history.writes:
        began[write.partition] = min(began.get(write.partition, write.began_s), write.began_s)
        ended[write.partition] = max(ended.get(write.partition, write.ended_s), write.ended_s)
    acknowledged = _acknowledged_s(history)
    return {
        partition: _longest([began[partition], *acknowledged[partition], ended[partition]])
        for partition in sorted(began)
    }


def silence_s(history: History) -> dict[int, float]:
    """By partition: the longest time in which no reader was answered, with records or with where it ends."""
    answered: dict[int, list[float]] = defaultdict(list)
    for poll in history.polls:
        answered[poll.partition].append(poll.at_s)
    for look in history.looks:
        answered[look.partition].append(look.at_s)
    return {partition: _longest(times) for partition, times in sorted(answered.items())}


def progress(history: History) -> Iterator[Progress]:
    """During each fault."""
    acknowledged = _acknowledged_s(history)
    tried = {write.partition for write in history.writes}
    for fault in history.faults:
        within = {partition: [at_s for at_s in acknowledged[partition] if _is_in(fault, at_s)] for partition in tried}
        gaps = [_longest([fault.began_s, *times, fault.ended_s]) for times in within.values()]
        count = sum(map(len, within.values()))
        yield Progress(fault.name, fault.ended_s - fault.began_s, count, max(gaps, default=0.0))


def _acknowledged_s(history: History) -> dict[int, list[float]]:
    times: dict[int, list[float]] = defaultdict(list)
    for write in history.writes:
        if write.outcome is Outcome.ACKNOWLEDGED:
            times[write.partition].append(write.ended_s)
    return times


def _is_in(fault: Fault, at_s: float) -> bool:
    return fault.began_s <= at_s <= fault.ended_s


def _longest(times: Iterable[float]) -> float:
    return max((after - before for before, after in pairwise(sorted(times))), default=0.0)
