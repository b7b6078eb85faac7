"""What a partition asks of the streams between brokers, and what all partitions of one broker share.

A `Partition` carries out its follower's effects through `Streams`, on the event loop; each method returns at once. What
comes back on a stream is told to the partition by its own methods:

    on the follower's side    stream_opened, stream_lost, epoch_answered, received
    on the leader's side      check_serves, epoch_end, follower_reported, follow_appends / unfollow_appends, recent,
                              log.read...

A partition follows one leader in one epoch at a time: `follow` takes the place of an earlier one, whose stream is over
for this partition without `stream_lost`. Where what was received raises, the stream is over for this partition, and
another one is opened, later: the partition reconciles its log again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headrace.core.replication.isr import Ends
from headrace.core.replication.leadership import Contact
from headrace.core.types import LeaderEpoch, Offset, Seat
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.metrics import Metrics
from headrace_broker.replication.recent_batches import RecentBatches

if TYPE_CHECKING:
    from headrace_broker.partition import Partition


class Streams(Protocol):
    def follow(self, partition: "Partition", leader: Seat, leader_epoch: LeaderEpoch) -> None:
        """Open a stream for `partition` to `leader` in this epoch, again and again until told otherwise."""

    def unfollow(self, partition: "Partition") -> None:
        """No more of it: it is over without `stream_lost`. Nothing happens where nobody is followed."""

    def ask_epoch_end(self, partition: "Partition", leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> None:
        """Of the leader: where does `epoch` end in its log? Answered by `epoch_answered`."""

    def fetch(self, partition: "Partition", leader_epoch: LeaderEpoch, offset: Offset) -> None:
        """Have the leader send everything from `offset` on; answered by `received`, again and again."""

    def report(self, partition: "Partition", leader_epoch: LeaderEpoch, ends: Ends) -> None:
        """This replica holds so much. Where an older report still waits to be sent, this one takes its place."""


@dataclass(frozen=True, slots=True)
class Host:
    """The broker, as its partitions see it."""

    metrics: Metrics
    disk: BrokerDisk
    streams: Streams
    contact: Callable[[], Contact]
    """Now, and when the Lease was last renewed."""
    recent: RecentBatches = field(default_factory=RecentBatches)
