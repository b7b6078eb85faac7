"""About which partitions brokers are asked in one pass of the operator, and who has not answered. No I/O.

    wanted (`last_resort.questions`) ── its turn ──> asked of all its replicas at once ── one leaves it out ──> silent
                                      └── a request is full ──> in one of the next passes

A request takes PROMISES_ASKED_MAX partitions. They take turns in the order of their keys, so that those which are never
answered hold up no others; a partition is asked about at all its replicas in the same pass, or nothing could be made of
the answers. One per operator, for its lifetime.

Invariants: of any number of partitions that stay wanted each has its turn; each turn has at least one.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from headrace.core.control.held import Epochs
from headrace.core.control.promises import Promises
from headrace.core.limits import PROMISES_ASKED_MAX
from headrace.core.types import BrokerId, PartitionKey

Questions: TypeAlias = Mapping[BrokerId, Mapping[PartitionKey, Epochs]]


class Asking:
    def __init__(self, most: int = PROMISES_ASKED_MAX) -> None:
        self._most = most
        self._last: PartitionKey | None = None
        """The end of the last turn."""
        self._silent: dict[PartitionKey, Collection[BrokerId]] = {}
        """Of what is wanted: who did not answer when it was last asked."""

    def turn(self, wanted: Questions) -> Questions:
        """What of it to ask now."""
        holders = _holders(wanted)
        self._silent = {key: brokers for key, brokers in self._silent.items() if key in holders}
        asked: dict[BrokerId, dict[PartitionKey, Epochs]] = defaultdict(dict)
        for key in self._in_turn(sorted(holders)):
            if any(len(asked[broker]) == self._most for broker in holders[key]):
                break
            for broker in holders[key]:
                asked[broker][key] = wanted[broker][key]
            self._last = key
        return {broker: keys for broker, keys in asked.items() if keys}

    def heard(
        self, asked: Questions, answers: Mapping[BrokerId, Promises]
    ) -> Mapping[PartitionKey, Collection[BrokerId]]:
        """`answers` are all that came of a turn -> who has not answered, of everything that is wanted."""
        answered = {(broker, key) for broker, promises in answers.items() for key in promises.logs}
        for key, brokers in _holders(asked).items():
            self._silent[key] = [broker for broker in brokers if (broker, key) not in answered]
        return dict(self._silent)

    def _in_turn(self, keys: Sequence[PartitionKey]) -> Sequence[PartitionKey]:
        begin = bisect_right(keys, self._last) if self._last is not None else 0
        return [*keys[begin:], *keys[:begin]]


def _holders(asked: Questions) -> Mapping[PartitionKey, Sequence[BrokerId]]:
    holders: dict[PartitionKey, list[BrokerId]] = defaultdict(list)
    for broker, keys in asked.items():
        for key in keys:
            holders[key].append(broker)
    return holders
