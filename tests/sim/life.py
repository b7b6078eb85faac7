"""One life of a broker: the shell that the real broker is, reduced to one partition, around the very same core.

It carries out what `Leadership` and `Following` decide, keeps one stream to its leader and serves those of others, and
writes the PartitionSet through `SetWriter`. Whatever takes time (a sync, a cut, a call, a message) is left lying for
the world to let happen, late or never.
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from headrace.core.log.group_commit import Sync
from headrace.core.replication import events, following
from headrace.core.replication.events import Acks, Waiter
from headrace.core.replication.fence import Fence
from headrace.core.replication.followers import InSyncRules
from headrace.core.replication.following import Following
from headrace.core.replication.isr import floor
from headrace.core.replication.leadership import Leadership
from headrace.core.replication.seats import Claim, LogFacts, claim, supersedes
from headrace.core.replication.set_writer import SetWriter
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import LeaderEpoch, Offset, PartitionId, Seat
from tests.sim.checks import Checks, must
from tests.sim.disk import Disk, Entry

PARTITION = PartitionId(0)
PUSH_MAX = 3
WAIT_MS = 5_000


@dataclass(frozen=True, slots=True)
class Hello:
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class Push:
    leader_epoch: LeaderEpoch
    base: Offset
    entries: tuple[Entry, ...]
    high_watermark: Offset


Message = Hello | Push | following.EpochAnswered | following.AskEpochEnd | following.Fetch | following.Report


@dataclass(eq=False)
class Stream:
    """From a follower to its leader: ordered both ways, until it breaks."""

    follower: "Life"
    leader: "Life"
    to_leader: deque[Message] = field(default_factory=deque)
    to_follower: deque[Message] = field(default_factory=deque)
    next_offset: Offset | None = None
    """What the leader sends next; None until it is asked."""
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class PendingSync:
    end: int
    cuts: int


class Life:
    def __init__(self, me: Seat, disk: Disk, rules: InSyncRules, damage: str, checks: Checks) -> None:
        self.me, self.disk, self.log, self.checks = me, disk, disk.log, checks
        self.facts = LogFacts(self.log.epochs.latest, damage)
        end = self.log.log_end_offset
        self.leadership = Leadership(me, rules, log_end=end, durable_end=end, last_epoch=self.log.epochs.latest)
        self.following = Following(me, self.log, self.leadership.commit)
        self.writer: SetWriter | None = None
        """None until the set was read for the first time."""
        self.watch_index = 0
        self.is_paused = False
        self.stream: Stream | None = None
        self.wants: tuple[Seat, LeaderEpoch] | None = None
        """Whom to connect to."""
        self.followers: list[Stream] = []
        self.syncs: deque[PendingSync] = deque()
        self.cut: following.Truncate | None = None
        self._produced: dict[int, Offset] = {}

    @property
    def leads(self) -> bool:
        return self.leadership.leads and not self.following.is_cutting

    # -- what it is told ---------------------------------------------------------------------------------------------

    def see(self, tell: Callable[[SetWriter], None], now_ms: int) -> None:
        """The API server said something."""
        assert self.writer is not None, "it has read the set"
        tell(self.writer)
        self.apply(now_ms)

    def apply(self, now_ms: int) -> None:
        assert self.writer is not None, "it has read the set"
        isr = self.writer.isr(PARTITION)
        is_new = supersedes(isr.state, self.leadership.state)
        if is_new:
            known = max(self.leadership.high_watermark, self.following.high_watermark)
            self.leadership.high_watermark = self.following.high_watermark = known
        self.step(events.StateApplied(isr.state), now_ms)
        self.step(events.IsrProposed(isr.pending), now_ms)
        if is_new:
            self.follow(following.Named(isr.state))

    def step(self, event: events.Event, now_ms: int) -> None:
        for effect in self.leadership.step(event, now_ms):
            self._carry_out(effect)

    def follow(self, event: following.Event) -> None:
        for effect in self.following.step(event):
            self._carry_out_following(effect)

    def produce(self, value: int, now_ms: int) -> None:
        """Raises what `check_writable` raises."""
        epoch = self.leadership.check_writable("topic/0", Fence(), Acks.ALL)
        self._produced[value] = self.log.log_end_offset
        self.log.append(Entry(epoch, value))
        waiter = Waiter(value, Acks.ALL, now_ms + WAIT_MS)
        self.step(events.Appended(self.log.log_end_offset, 1, waiter), now_ms)

    def synced(self, now_ms: int) -> None:
        """The oldest sync comes back; what was cut meanwhile it does not cover."""
        done = self.syncs.popleft()
        end = min(done.end, len(self.log.entries)) if done.cuts == self.log.cuts else self.log.on_disk
        self.log.on_disk = max(self.log.on_disk, end)
        if self.leadership.leads:
            self.step(events.Synced(Offset(done.end)), now_ms)
        else:
            self.follow(following.FollowerSynced(Offset(done.end)))

    def cut_done(self) -> None:
        assert self.cut is not None, "one has begun"
        end, self.cut = self.cut.end, None
        self.log.truncate(end)
        self.follow(following.Truncated())

    # -- the PartitionSet --------------------------------------------------------------------------------------------

    def wishes(self, live: Collection[Seat], now_ms: int) -> PartitionSet | None:
        """What to PUT, if anything; the leader knows of it before it is sent."""
        assert self.writer is not None, "it has read the set"
        wanted = self._wanted(self.writer.isr(PARTITION).state, live, now_ms)
        put = self.writer.write([wanted] if wanted is not None else [])
        if put is not None:
            self.step(events.IsrProposed(self.writer.isr(PARTITION).pending), now_ms)
        return put

    def _wanted(self, state: PartitionState, live: Collection[Seat], now_ms: int) -> PartitionState | None:
        if self.leadership.leads and self.leadership.state == state:
            isr = self.leadership.wanted_isr(live, now_ms)
            return replace(state, isr=isr) if set(isr) != set(state.isr) else None
        claimed = claim(state, self.me, self.facts)
        return claimed.state if isinstance(claimed, Claim) else None

    # -- streams -----------------------------------------------------------------------------------------------------

    def connect(self, leader: "Life") -> None:
        assert self.wants is not None, "it follows somebody"
        self.stream = Stream(self, leader, deque([Hello(self.wants[1])]))
        leader.followers.append(self.stream)

    def close(self, stream: Stream) -> None:
        """It breaks, for both."""
        stream.is_open = False
        if stream in stream.leader.followers:
            stream.leader.followers.remove(stream)
        if stream.follower.stream is stream:
            stream.follower.stream = None
            stream.follower.follow(following.Disconnected())

    def push(self, stream: Stream) -> None:
        """Send what is next, if only the high watermark."""
        if stream.next_offset is None or not self.leads:
            return
        base = stream.next_offset
        entries = tuple(self.log.entries[base : base + PUSH_MAX])
        stream.next_offset = Offset(base + len(entries))
        stream.to_follower.append(Push(self.leadership.leader_epoch, base, entries, self.leadership.high_watermark))

    def serve(self, stream: Stream, now_ms: int) -> None:
        """The leader's side: the next message of a follower."""
        message = stream.to_leader.popleft()
        assert not isinstance(message, Push | following.EpochAnswered), "leaders send those"
        if not self.leads or message.leader_epoch != self.leadership.leader_epoch:
            self.close(stream)
            return
        match message:
            case Hello():
                stream.to_follower.append(message)
            case following.AskEpochEnd(leader_epoch, epoch):
                answer = self.log.epochs.end_of(epoch, self.log.log_end_offset)
                stream.to_follower.append(following.EpochAnswered(leader_epoch, answer))
            case following.Fetch(_, offset):
                stream.next_offset = offset
            case following.Report(leader_epoch, ends):
                self.step(events.FollowerReported(stream.follower.me, leader_epoch, ends), now_ms)

    def take(self, stream: Stream) -> None:
        """The follower's side: the next message of its leader."""
        message = stream.to_follower.popleft()
        match message:
            case Hello(leader_epoch):
                self.follow(following.Connected(leader_epoch))
            case Push():
                self._append(stream, message)
            case following.EpochAnswered():
                self.follow(message)

    def _append(self, stream: Stream, push: Push) -> None:
        if not self.following.accepts(push.leader_epoch) or push.base != self.log.log_end_offset:
            self.close(stream)
            return
        for entry in push.entries:
            self.log.append(entry)
        self.follow(following.Received(push.leader_epoch, len(push.entries), push.high_watermark))

    # -- effects -----------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: events.Effect) -> None:
        match effect:
            case Sync():
                self.syncs.append(PendingSync(len(self.log.entries), self.log.cuts))
            case events.Lead(leader_epoch):
                self.checks.elected(self.me, leader_epoch, self.log)
            case events.RaiseHighWatermark(high_watermark):
                self._raised(high_watermark)
            case events.Acknowledge(waiters):
                # Those that are answered are committed by the effect that follows.
                self._raised(self.leadership.high_watermark)
                for value in waiters:
                    offset = self._produced[value]
                    self.checks.acknowledge(offset, self.log.entries[offset])
            case events.Resign():
                for stream in list(self.followers):
                    self.close(stream)

    def _raised(self, high_watermark: Offset) -> None:
        isr = self.leadership.isr
        assert isr is not None, "it leads"
        needed = floor(isr.state, self.leadership.rules.min_insync_replicas)
        must(len(isr.certain) >= needed, "MinIsr", f"{self.me} commits with {isr}, {needed} are asked for")
        self.checks.raised(self.me, self.leadership.leader_epoch, self.log, high_watermark)

    def _carry_out_following(self, effect: following.Effect) -> None:
        match effect:
            case Sync():
                self.syncs.append(PendingSync(len(self.log.entries), self.log.cuts))
            case following.Follow(leader, leader_epoch):
                self._leave()
                self.wants = leader, leader_epoch
            case following.Unfollow():
                self.wants = None
                self._leave()
            case following.Truncate():
                self.cut = effect
            case following.AskEpochEnd() | following.Fetch() | following.Report():
                if self.stream is not None:
                    self.stream.to_leader.append(effect)

    def _leave(self) -> None:
        if self.stream is not None:
            self.close(self.stream)
