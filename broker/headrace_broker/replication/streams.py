"""All that this broker follows, leader by leader: the `Streams` of its partitions. One per process, until `close`.

Each leader that is followed has two lanes, with a connection each: every partition begins on the live one, and its
leader moves it to the other and back (`core.replication.wire.leading`). A leader is a seat: its next life is another.
"""

import asyncio
from dataclasses import dataclass

from headrace.core.errors import BrokerUnreachableError
from headrace.core.frames.replication_messages import Lane
from headrace.core.replication.follower_stream import FollowerStream
from headrace.core.replication.isr import Ends
from headrace.core.types import LeaderEpoch, Offset, PartitionKey, Seat
from headrace_broker.coordination.cluster_view import ClusterView
from headrace_broker.partition import Partition
from headrace_broker.replication.lane import FollowedLane
from headrace_broker.replication.stream_metrics import StreamMetrics
from headrace_broker.replication.wanted import Wanted, Way
from headrace_broker.transports import Transports

_OTHER = {Lane.LIVE: Lane.CATCH_UP, Lane.CATCH_UP: Lane.LIVE}


@dataclass(slots=True)
class _Followed:
    """One partition, and where."""

    wanted: Wanted
    lanes: dict[Lane, FollowedLane]
    lane: Lane = Lane.LIVE

    @property
    def at(self) -> FollowedLane:
        return self.lanes[self.lane]


class FollowerStreams:
    def __init__(self, me: Seat, view: ClusterView, transports: Transports, metrics: StreamMetrics) -> None:
        self._me = me
        self._view = view
        self._transports = transports
        self._metrics = metrics
        self._leaders: dict[Seat, dict[Lane, FollowedLane]] = {}
        self._followed: dict[PartitionKey, _Followed] = {}
        self._closed = False
        metrics.watch_followed(self._count)

    def follow(self, partition: Partition, leader: Seat, leader_epoch: LeaderEpoch) -> None:
        """Nobody, once this is closed: partitions hear of elections for a while after that."""
        self.unfollow(partition)
        if self._closed:
            return
        lanes = self._leaders.get(leader) or self._to(leader)
        followed = _Followed(Wanted(partition, leader_epoch), lanes)
        self._followed[partition.key] = followed
        followed.at.add(followed.wanted)

    def unfollow(self, partition: Partition) -> None:
        followed = self._followed.pop(partition.key, None)
        if followed is not None:
            followed.at.remove(followed.wanted)

    def ask_epoch_end(self, partition: Partition, leader_epoch: LeaderEpoch, epoch: LeaderEpoch) -> None:
        if stream := self._stream_of(partition):
            stream.ask_epoch_end(partition.key, leader_epoch, epoch)

    def fetch(self, partition: Partition, leader_epoch: LeaderEpoch, offset: Offset) -> None:
        if stream := self._stream_of(partition):
            stream.fetch(partition.key, leader_epoch, offset)

    def report(self, partition: Partition, leader_epoch: LeaderEpoch, ends: Ends) -> None:
        if stream := self._stream_of(partition):
            stream.report(partition.key, leader_epoch, ends, partition.replica.rules.durability)

    async def close(self) -> None:
        """This broker stops: nobody is followed any more."""
        self._closed = True
        self._followed.clear()
        lanes = [lane for lanes in self._leaders.values() for lane in lanes.values()]
        await asyncio.gather(*(lane.close() for lane in lanes))

    def _stream_of(self, partition: Partition) -> FollowerStream | None:
        """To say something in, at once; None while there is none."""
        followed = self._followed.get(partition.key)
        return followed.at.speak() if followed is not None else None

    def _to(self, leader: Seat) -> dict[Lane, FollowedLane]:
        """Older lives of the same broker are followed by nobody, or not for long."""
        for gone in [seat for seat in self._leaders if seat.broker == leader.broker and seat != leader]:
            if not any(lane.is_used for lane in self._leaders[gone].values()):
                del self._leaders[gone]
        way = Way(self._me, leader, self._transports, lambda: self._url_of(leader), self._metrics)
        lanes = {lane: FollowedLane(way, lane, self._move) for lane in Lane}
        self._leaders[leader] = lanes
        return lanes

    def _move(self, wanted: Wanted) -> None:
        """To the other lane."""
        followed = self._followed[wanted.partition.key]
        followed.lane = _OTHER[followed.lane]
        followed.at.add(wanted)

    def _url_of(self, leader: Seat) -> str:
        lease = self._view.lease(leader.broker)
        if lease is None or lease.incarnation != leader.incarnation or not lease.url:
            raise BrokerUnreachableError(f"where {leader} listens is not known", unprocessed=True)
        return lease.url

    def _count(self, lane: Lane) -> int:
        return sum(lanes[lane].open_channels for lanes in self._leaders.values())
