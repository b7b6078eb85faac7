"""The metadata of a topic: its partitions, their leaders, and the URL through which each leader is reached now. Pure.

`TopicLayout` is a topic's metadata as a broker told it. `Routes` remembers which URLs could not be reached: a leader
whose URL does not answer (a laptop outside the cluster, `kubectl port-forward`) is served by any other broker, which
proxies; the URL is tried again after `UNREACHABLE_URL_MS`. Time comes in as `now_ms`. `calls.Directory` keeps the
newest layout of each topic.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.core.errors import RemoteError
from headrace.core.records.time_rules import TimeRules

METADATA_AGE_MS_MAX = 60_000
"""The age at which clients read a topic's metadata again, so that they notice partitions that were added."""
UNREACHABLE_URL_MS = 20_000
"""The time for which a URL that could not be reached is left alone while other brokers can answer for it."""


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    leader_url: str | None
    """The leader's URL. None: the partition is offline, or its leader has no URL."""
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicLayout:
    topic: str
    uid: str
    max_message_bytes: int
    partitions: tuple[PartitionLayout, ...]
    read_at_ms: int
    time_rules: TimeRules | None = None
    """The rules for records' times; None where the leader's clock gives the times, or an older broker does not say."""

    @classmethod
    def parse(cls, document: Mapping[str, Any], read_at_ms: int) -> "TopicLayout":
        """Read the answer to GET .../topics/{topic}. Raises RemoteError where it is not one."""
        try:
            partitions = sorted(document["partitions"], key=lambda p: int(p["partition"]))
            return cls(
                topic=str(document["name"]),
                uid=str(document["uid"]),
                max_message_bytes=int(document["maxMessageBytes"]),
                partitions=tuple(_parse_partition(p) for p in partitions),
                read_at_ms=read_at_ms,
                time_rules=_parse_rules(document),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RemoteError(
                f"the server's answer is no topic metadata ({error!r}): is it a Headrace broker?"
            ) from error

    def is_old(self, now_ms: int) -> bool:
        return now_ms - self.read_at_ms >= METADATA_AGE_MS_MAX


def _parse_rules(document: Mapping[str, Any]) -> TimeRules | None:
    if document.get("timestampType") != "CreateTime":
        return None
    retention_ms = document["retentionMs"]
    return TimeRules(None if retention_ms is None else int(retention_ms))


def _parse_partition(raw: Mapping[str, Any]) -> PartitionLayout:
    leader = raw.get("leader") or {}
    return PartitionLayout(leader.get("url") or None, int(raw["leaderEpoch"]))


@dataclass(slots=True)
class Routes:
    bootstrap: Sequence[str]
    """The URLs that the user gave, best first."""
    reaches_leaders: bool = True
    """Whether leaders' own URLs are used."""
    sends_to: Callable[[str], bool] = lambda _: True
    """The function that says whether requests may go to a URL of the metadata; if not, other servers pass them on."""
    _learned: dict[str, None] = field(default_factory=dict)
    """The leaders' URLs seen in metadata, in that order: they answer when every bootstrap server is gone."""
    _failed_at_ms: dict[str, int] = field(default_factory=dict)
    _silent_at_ms: dict[str, int] = field(default_factory=dict)
    """The time at which each broker began to owe an answer: requests that any broker can answer go to another one."""
    _epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    """The leader epoch that was last seen of each partition."""

    def learn(self, layout: TopicLayout) -> None:
        """Keep the leaders' URLs. A leader that was elected after its URL failed is alive: its URL is tried at once."""
        if not self.reaches_leaders:
            return
        for number, partition in enumerate(layout.partitions):
            place, epoch = (layout.topic, number), partition.leader_epoch
            if partition.leader_url is not None and self.sends_to(partition.leader_url):
                self._learned[partition.leader_url] = None
                if epoch > self._epochs.get(place, epoch):
                    self._failed_at_ms.pop(partition.leader_url, None)
            self._epochs[place] = epoch

    def choose(self, leader_url: str | None, now_ms: int) -> str:
        """Return the leader's own URL if it can be reached, else another broker's, else the one that failed first."""
        candidates = list(dict.fromkeys(self._candidates(leader_url)))
        if leader_url is None:
            candidates.sort(
                key=lambda url: now_ms - self._silent_at_ms.get(url, -UNREACHABLE_URL_MS) < UNREACHABLE_URL_MS
            )
        for url in candidates:
            if not self._is_left_alone(url, now_ms):
                return url
        return min(candidates, key=lambda url: self._failed_at_ms[url])

    def _candidates(self, leader_url: str | None) -> Iterable[str]:
        if leader_url is not None and self.reaches_leaders and self.sends_to(leader_url):
            yield leader_url
        yield from self.bootstrap
        yield from self._learned

    def has_other(self, now_ms: int) -> bool:
        """Return whether there is a URL that has not failed just now."""
        return not all(self._is_left_alone(url, now_ms) for url in self._candidates(None))

    def _is_left_alone(self, url: str, now_ms: int) -> bool:
        failed_at_ms = self._failed_at_ms.get(url)
        return failed_at_ms is not None and now_ms - failed_at_ms < UNREACHABLE_URL_MS

    def failed(self, url: str, now_ms: int) -> None:
        self._failed_at_ms[url] = now_ms

    def silent(self, url: str, now_ms: int) -> None:
        """Note that a broker is silent. It may only be slow: requests that it alone can answer still go there."""
        self._silent_at_ms[url] = now_ms

    def answered(self, url: str) -> None:
        self._failed_at_ms.pop(url, None)
        self._silent_at_ms.pop(url, None)
