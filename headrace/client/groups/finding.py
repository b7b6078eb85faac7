"""Which partitions a member is given and does not read yet, and what is known of where it begins in each. Pure.

    wanted ──> asked ──> found ──> taken up (`shares`)
                 └── failed ──> left alone for a while ──> wanted again

Each by itself: one that cannot be read just now keeps no other from being read. Who asks is the background; what is
taken away meanwhile is forgotten, and what comes of it does nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import NamedTuple

from headrace.client.groups.starting import TAKEN_AWAY, Beginning, Given
from headrace.client.record import TopicPartition
from headrace.core.errors import HeadraceError
from headrace.core.limits import CLIENT_BACKOFF_MIN_MS, GROUP_LOOK_MS_MAX
from headrace.core.slotted import dataclass
from headrace.core.types import PartitionKey


class Failing(NamedTuple):
    since_ms: int
    attempts: int
    until_ms: int
    """Left alone until then."""
    is_taken_away: bool
    """By what brokers say: its group is about to say so too."""


@dataclass(slots=True)
class Finding:
    timeout_ms: int
    found: dict[PartitionKey, Beginning] = field(default_factory=dict)
    _asked: dict[PartitionKey, Given] = field(default_factory=dict)
    _failing: dict[PartitionKey, Failing] = field(default_factory=dict)

    def ask(self, wanted: Mapping[PartitionKey, TopicPartition], now_ms: int) -> Given | None:
        """Whatever is to be looked up now. None: nothing is."""
        new = {key: place for key, place in wanted.items() if self._is_due(key, now_ms)}
        if not new:
            return None
        given = Given(new)
        self._asked.update(dict.fromkeys(new, given))
        return given

    def _is_due(self, key: PartitionKey, now_ms: int) -> bool:
        failing = self._failing.get(key)
        is_known = key in self._asked or key in self.found
        return not is_known and (failing is None or now_ms >= failing.until_ms)

    def answered(
        self, given: Given, outcomes: Mapping[PartitionKey, Beginning | HeadraceError], now_ms: int
    ) -> HeadraceError | None:
        """What its user must hear: of one that will not be found, or was not for `timeout_ms`."""
        told = None
        for key, outcome in outcomes.items():
            if self._asked.get(key) is not given:
                continue
            del self._asked[key]
            if isinstance(outcome, HeadraceError):
                told = self._failed(key, given.places[key], outcome, now_ms) or told
            else:
                self._failing.pop(key, None)
                self.found[key] = outcome
        return told

    def _failed(
        self, key: PartitionKey, place: TopicPartition, error: HeadraceError, now_ms: int
    ) -> HeadraceError | None:
        before = self._failing.get(key)
        since_ms, attempts = (before.since_ms, before.attempts + 1) if before is not None else (now_ms, 1)
        pause_ms = min(GROUP_LOOK_MS_MAX, CLIENT_BACKOFF_MIN_MS << min(attempts, 16))
        is_taken_away = isinstance(error, TAKEN_AWAY)
        self._failing[key] = Failing(since_ms, attempts, now_ms + pause_ms, is_taken_away)
        if is_taken_away or (error.retriable and now_ms - since_ms <= self.timeout_ms):
            return None
        self._failing[key] = Failing(now_ms, attempts, now_ms + pause_ms, is_taken_away)
        message = f"cannot begin to read {place} for its group: {error.message}; the other partitions are read on"
        return type(error)(message, **error.details)

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """They are taken up, taken away, or to be looked up anew."""
        for key in keys:
            for known in (self._asked, self._failing, self.found):
                known.pop(key, None)

    def clear(self) -> None:
        self._asked, self._failing, self.found = {}, {}, {}

    def is_open(self, key: PartitionKey) -> bool:
        """Whether it is still to be read, as far as anybody knows."""
        failing = self._failing.get(key)
        return failing is None or not failing.is_taken_away

    def next_ms(self, now_ms: int) -> int | None:
        """When the next one that is left alone is due. What was due before is asked, or not wanted."""
        return min((each.until_ms for each in self._failing.values() if each.until_ms > now_ms), default=None)
