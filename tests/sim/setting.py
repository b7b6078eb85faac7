"""What all of one simulated cluster shares: its time, its clocks, its topic, what was counted, what must hold."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.core.control.deletion import FINALIZER
from headrace.core.replication.isr import InSyncRules
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.topic import Topic, TopicSpec
from headrace.core.types import BrokerId
from tests.sim.checks import Checks
from tests.sim.disk import Disk
from tests.sim.plans import Plan

UID = "uid"


@dataclass(slots=True)
class Time:
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class Clock:
    """A monotonic clock of its own: it began anywhere, and runs too fast or too slow."""

    time: Time
    rate: float
    began_ms: int

    @property
    def now_ms(self) -> int:
        return self.at(self.time.now_ms)

    def at(self, ms: int) -> int:
        """What it shows then."""
        return self.began_ms + int(ms * self.rate)


@dataclass
class Setting:
    plan: Plan
    time: Time
    clocks: Mapping[BrokerId, Clock]
    disks: dict[BrokerId, Disk]
    checks: Checks
    topic: Topic
    rules: InSyncRules
    counts: Counter[str] = field(default_factory=Counter)
    host: Callable[[Any], Any] | None = None
    """Makes what lives with each life of a broker (`life.Guest`), in runs with a group."""

    @property
    def now_ms(self) -> int:
        return self.time.now_ms

    @property
    def brokers(self) -> list[BrokerId]:
        return list(self.disks)

    @property
    def spec(self) -> TopicSpec:
        return self.topic.spec


def topic_of(plan: Plan, replicas: int, min_insync_replicas: int) -> Topic:
    spec = {
        "partitions": 1,
        "replicas": replicas,
        "minInsyncReplicas": min_insync_replicas,
        "durability": plan.durability.value,
        "uncleanLeaderElection": plan.unclean,
    }
    metadata = Metadata("topic", "default", UID, "1", 1, finalizers=(FINALIZER,))
    return Topic(metadata, TopicSpec.parse(spec))
