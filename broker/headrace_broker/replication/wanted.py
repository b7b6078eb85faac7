"""What is to be followed, of whom, and how soon it is tried again where that does not work."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from random import Random

from headrace.core.limits import REPLICATION_BACKOFF_MAX_MS, REPLICATION_BACKOFF_MIN_MS
from headrace.core.types import LeaderEpoch, Seat
from headrace.kube.client import Backoff
from headrace_broker.partition import Partition
from headrace_broker.replication.stream_metrics import StreamMetrics
from headrace_broker.transports import Transports


def new_backoff() -> Backoff:
    return Backoff(_random(), REPLICATION_BACKOFF_MIN_MS, REPLICATION_BACKOFF_MAX_MS)


@cache
def _random() -> Random:
    """The process's own: one that was made on import would be the same in all that are forked from there."""
    return Random()


@dataclass(slots=True, eq=False)
class Wanted:
    """A partition that follows its leader in one epoch."""

    partition: Partition
    leader_epoch: LeaderEpoch
    backoff: Backoff = field(default_factory=new_backoff)
    again: asyncio.TimerHandle | None = None
    """Runs until it is tried again."""
    is_open: bool = False
    """It has a channel."""


@dataclass(frozen=True, slots=True)
class Way:
    """From this broker to a leader."""

    me: Seat
    leader: Seat
    transports: Transports
    url: Callable[[], str]
    """As the leader's Lease has it now; raises BrokerUnreachableError where that is not known."""
    metrics: StreamMetrics
