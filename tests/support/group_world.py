"""Consumer groups without I/O: processes that read, a network that loses and delays, coordinators that die.

Time is a number. The log is a list of batches of encoded records; a batch is committed when the test says so, and a
coordinator that dies leaves behind what was committed and, of the rest, as much as the test wants.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TypeAlias

from headrace.core.coordinator import (
    Answer,
    Append,
    Committed,
    Coordinator,
    Deposed,
    Elected,
    Order,
    Read,
    ReadToEnd,
    Refuse,
    Ticked,
)
from headrace.core.groups.assignment import Partitions, Subscription
from headrace.core.groups.entries import Entry, Image, Mark, OffsetValue
from headrace.core.groups.events import (
    CommitReceived,
    Done,
    HeartbeatReceived,
    Ignored,
    JoinReceived,
    Membership,
    Notice,
    Reply,
    Request,
    TargetOffered,
)
from headrace.core.groups.group_machine import ForGroup, GroupConfigured, GroupEvent, GroupMachine, TopicsListed
from headrace.core.groups.identity import GroupEpoch, GroupName, GroupSettings, MemberId, TopicShape
from headrace.core.groups.records import decode, encode
from headrace.core.limits import REBALANCE_TIMEOUT_MS_DEFAULT
from headrace.core.types import PartitionId, PartitionKey, TopicUid
from tests.support.group_invariants import Marks, OwnershipClaim, broken, double_owners, fallen, marks

GROUP = GroupName("default", "billing")
GroupCoordination: TypeAlias = Coordinator[Entry, GroupEvent, Reply, Notice]
GroupOrder: TypeAlias = Order[Entry, Reply, Notice]
_NOWHERE: Mark = (GroupEpoch(0), 0)


def shape(name: str, partitions: int) -> TopicShape:
    return TopicShape(TopicUid(f"uid-{name}"), partitions)


def part(name: str, partition: int) -> PartitionKey:
    return PartitionKey(TopicUid(f"uid-{name}"), PartitionId(partition))


def parts(name: str, *numbers: int) -> Partitions:
    return frozenset(part(name, number) for number in numbers)


def member(name: str) -> MemberId:
    return MemberId(name)


class Numbers:
    """Of requests."""

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        self.last += 1
        return self.last


@dataclass
class Process:
    """A member as the protocol wants one: what it believes, what it sends, how it takes an answer."""

    id: MemberId
    subscription: Subscription
    numbers: Numbers
    instance: str = ""
    rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS_DEFAULT
    seen: Mark = _NOWHERE
    assigned: Partitions = frozenset()
    owned: Partitions = frozenset()
    alive: bool = True
    refusals: list[str] = field(default_factory=list)
    _since: int = 0
    """Answers to requests before this one are of an earlier life."""

    @property
    def claim(self) -> OwnershipClaim:
        return OwnershipClaim(self.id, self.seen, self.owned)

    def speak(self) -> Request:
        number = self.numbers.next()
        if self.seen == _NOWHERE:
            self._since = self._since or number
            timeout_ms = self.rebalance_timeout_ms
            return JoinReceived(number, self.id, self.subscription, self.instance, rebalance_timeout_ms=timeout_ms)
        epoch, revision = self.seen
        return HeartbeatReceived(
            number, self.id, epoch, revision, self.owned, subscription=self.subscription, instance=self.instance
        )

    def commit(self, offsets: dict[PartitionKey, OffsetValue]) -> CommitReceived:
        return CommitReceived(self.numbers.next(), offsets, self.id, self.seen[0])

    def hear(self, told: Answer[Reply] | Refuse) -> None:
        if not self.alive or told.request < self._since:
            return
        match told:
            case Refuse(_, error, _):
                self.refusals.append(error.code)
                if error.code in ("UnknownMember", "FencedMember", "FencedInstance"):
                    self.forget()
            case Answer(_, Membership(epoch, revision, assigned), _):
                if (epoch, revision) > self.seen and assigned is not None:
                    self.seen, self.assigned = (epoch, revision), assigned
                    self.owned |= assigned

    def give_up(self) -> None:
        """What it is to give up: it has finished with that."""
        self.owned &= self.assigned

    def forget(self) -> None:
        """Everything, and begin again."""
        self.seen, self.assigned, self.owned, self._since = _NOWHERE, frozenset(), frozenset(), 0


class World:
    def __init__(self, topics: dict[str, TopicShape]) -> None:
        self.topics = topics
        self.now_ms = 0
        self.log: list[list[tuple[bytes, bytes | None]]] = []
        """Batches."""
        self.committed = 0
        """Batches that are."""
        self.numbers = Numbers()
        self.processes: list[Process] = []
        self.machine = GroupMachine()
        self.coordinator: GroupCoordination = Coordinator(self.machine)
        self.waiting: list[Request] = []
        """On their way to the coordinator."""
        self.told: list[Answer[Reply] | Refuse] = []
        """On their way to the processes."""
        self.ignored: list[str] = []
        self.claims: list[OwnershipClaim] = []
        """Of others than `processes`."""
        self.commits: dict[int, CommitReceived] = {}
        """That are not answered yet."""
        self._committed_image = Image(GROUP)
        self._applied = 0
        self._asked: dict[int, Process] = {}
        self._base = 0
        """Batches that were there when the coordinator was elected: it counts those after them."""
        self._marks: Marks | None = None
        self.elect()

    def process(self, name: str, *topics: str, instance: str = "") -> Process:
        made = Process(member(name), Subscription.parse(topics or ("flights",)), self.numbers, instance)
        self.processes.append(made)
        return made

    @property
    def image(self) -> Image:
        """As the coordinator sees it, decided but maybe not committed."""
        group = self.machine.groups.get(GROUP)
        return Image(GROUP) if group is None else group.image

    @property
    def committed_image(self) -> Image:
        """What is committed stays: nothing is ever applied twice."""
        for key, value in (record for batch in self.log[self._applied : self.committed] for record in batch):
            self._committed_image.apply(decode(key, value))
        self._applied = self.committed
        return self._committed_image

    def elect(self) -> None:
        self._take(self.coordinator.step(Elected(), self.now_ms))
        self._base = len(self.log)
        entries = tuple(decode(key, value) for batch in self.log for key, value in batch)
        self._take(self.coordinator.step(Read(entries), self.now_ms))
        self.committed = len(self.log)
        self._take(self.coordinator.step(TopicsListed("default", self.topics), self.now_ms))
        self._take(self.coordinator.step(ReadToEnd(self.now_ms), self.now_ms))

    def crash(self, kept: int) -> None:
        """The coordinator dies; of what is not committed, so many batches survive. Requests under way are lost."""
        self._take(self.coordinator.step(Deposed("it died"), self.now_ms))
        self.told = []
        del self.log[min(self.committed + kept, len(self.log)) :]
        self.machine = GroupMachine()
        self.coordinator = Coordinator(self.machine)
        self.elect()

    def commit_log(self) -> None:
        self.committed = len(self.log)
        self._take(self.coordinator.step(Committed(self.committed - self._base), self.now_ms))

    def deliver(self, request: Request, *, again: bool = False) -> None:
        before = dict(self.image.offsets)
        self._take(self.coordinator.step(ForGroup(GROUP, request), self.now_ms))
        if isinstance(request, CommitReceived):
            self.commits[request.request] = request
            taken = [each for each, value in self.image.offsets.items() if before.get(each) != value]
            assert all(self.image.owners.get(each) == request.member for each in taken), "committed by the dead"
        if again:
            self._take(self.coordinator.step(ForGroup(GROUP, request), self.now_ms))

    def offer(self, offered: TargetOffered) -> None:
        self._take(self.coordinator.step(ForGroup(GROUP, offered), self.now_ms))

    def see(self, topics: dict[str, TopicShape]) -> None:
        self.topics = topics
        self._take(self.coordinator.step(TopicsListed("default", topics), self.now_ms))

    def configure(self, settings: GroupSettings) -> None:
        self._take(self.coordinator.step(GroupConfigured(GROUP, settings), self.now_ms))

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        group = self.machine.groups.get(GROUP)
        if ms and group is not None and self.now_ms < group.due_ms:
            idle = deepcopy(group).step(Ticked(self.now_ms), self.now_ms)
            assert idle == [], f"due in {group.due_ms - self.now_ms} ms: {idle}"
        self._take(self.coordinator.step(Ticked(self.now_ms), self.now_ms))

    def hear_all(self) -> None:
        told, self.told = self.told, []
        for each in told:
            self.tell(each)

    def tell(self, told: Answer[Reply] | Refuse) -> None:
        if isinstance(told, Answer) and told.request in self.commits and isinstance(told.reply, Done):
            written = self.committed_image.offsets
            assert self.commits[told.request].offsets.keys() <= written.keys(), "told before it was committed"
        if told.request in self._asked:
            self._asked[told.request].hear(told)

    def round(self, ms: int = 250) -> None:
        """Everybody speaks and is heard; all is committed."""
        for process in self.processes:
            if process.alive:
                process.give_up()
                self.send(process)
        self.commit_log()
        self.pass_time(ms)
        self.commit_log()
        self.hear_all()

    def send(self, process: Process) -> None:
        self.deliver(self.note(process, process.speak()))

    def note(self, process: Process, request: Request) -> Request:
        self._asked[request.request] = process
        return request

    def rounds_until(self, what: Callable[[], bool], most: int = 300) -> int:
        for count in range(most):
            if what():
                return count
            self.round()
            self.check()
        raise AssertionError(f"not in {most} rounds: {self.machine.groups}")

    def is_stable(self) -> bool:
        """Everybody who lives has what it is to have, and knows it."""
        living = {process.id: process.owned for process in self.processes if process.alive}
        image = self.image
        if living.keys() != image.members.keys() or image.group.epoch != image.group.assignment_epoch:
            return False
        return all(
            owned == image.target(each) == image.currents[each].assigned.keys() for each, owned in living.items()
        )

    def check(self) -> None:
        """What must hold at any time."""
        claims = [*self.claims, *(process.claim for process in self.processes if process.alive)]
        for image in (self.image, self.committed_image):
            assert not broken(image), broken(image)
            assert not double_owners(image, claims), double_owners(image, claims)
        after = marks(self.committed_image)
        if self._marks is not None:
            assert not fallen(self._marks, after), fallen(self._marks, after)
        self._marks = after

    def _take(self, orders: list[GroupOrder]) -> None:
        for order in orders:
            match order:
                case Append(_, entries, _):
                    self.log.append([encode(entry) for entry in entries])
                case Answer() | Refuse():
                    self.told.append(order)
                case Ignored(_, reason):
                    self.ignored.append(reason)
                case _:
                    pass
