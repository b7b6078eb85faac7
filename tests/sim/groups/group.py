"""The group as a part of the world: its processes and coordinators, and the events that may happen to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headrace.core.groups.entries import Image
from headrace.core.groups.identity import Assignor, MemberId
from headrace.core.groups.membership import Identity
from headrace.core.groups.rebalancing import target_of
from headrace.core.types import BrokerId
from tests.sim.api import Api
from tests.sim.brokers import Brokers
from tests.sim.groups.coordinating import Coordinating
from tests.sim.groups.members import SUBSCRIPTIONS, Around, Member, is_settled
from tests.sim.groups.operating import GroupOperator
from tests.sim.groups.post import Post
from tests.sim.groups.promises import Promises
from tests.sim.groups.resource import Resource
from tests.sim.groups.shared import Shared
from tests.sim.groups.shorthand import GroupShorthand
from tests.sim.groups.surroundings import Surroundings
from tests.sim.life import Life
from tests.sim.schedule import WHOLE, Kind, Target, Whole
from tests.sim.setting import Clock, Setting
from tests.sim.shorthand import Shorthand

OTHERS, OTHERS_FAULTS = 0.3, 0.1
IDLE_MS_MAX = 1_500
SHOWING_MS = 100
"""The longest leap of time where something is on its way to the ConsumerGroup, or to the operator."""
REBALANCE_MS = (2_000, 6_000, 60_000)
NOT_AT_REST = (
    "records are written",
    "member starts",
    "member subscribes",
    "member stops",
    "all stop",
    "group reset",
    "group deleted",
    "days go by",
)
IN_ITS_PLACE = ("produce", "delete records", "ask latest", "read", "recover asks", "recover decides")
"""The events of clients and people on a log, which are for other runs: in these, coordinators write it."""


@dataclass(eq=False, slots=True)
class Slot:
    """A slot where processes come and go, as Pods of one name."""

    label: str
    instance: str
    clock: Clock
    member: Member | None = None


class GroupPart:
    def __init__(self, setting: Setting, api: Api, brokers: Brokers, clocks: Sequence[Clock]) -> None:
        self.setting, self.api, self.brokers = setting, api, brokers
        self.shared = Shared(Resource())
        self.promises = Promises(self.shared, setting)
        self.post = Post(brokers)
        self.operator = GroupOperator(setting, self.shared, self.post, self.find)
        self.around = Surroundings(setting, self.shared, self.promises, self.operator, self.post)
        self._around = Around(setting, self.shared, self.promises, self.post, self.find)
        self._own = frozenset(kind.name for kind in (*self.kinds(), *self.faults()))
        self.slots = [Slot(f"m{number}", _instance(number), clock) for number, clock in enumerate(clocks)]

    def host(self, life: Life) -> Coordinating:
        coordinating = Coordinating(life, self.shared, self.promises, self.post)
        self.around.coordinatings = [each for each in self.all() if each.life.broker != life.broker]
        self.around.coordinatings.append(coordinating)
        return coordinating

    def kinds(self) -> list[Kind]:
        return [
            *self.post.kinds(),
            *self.around.kinds(),
            *self.operator.kinds(),
            Kind("member starts", 1.5, self.empty, self.start),
            Kind("member ticks", 24, lambda: [x for x in self.awake() if x.is_due], lambda x, _: x.tick()),
            Kind("member reads", 8, lambda: [x for x in self.awake() if x.readable()], lambda x, draw: x.read(draw)),
            Kind("member commits", 5, self.uncommitted, lambda x, draw: x.commit(draw)),
            Kind("member asks offsets", 7, self.unbegun, lambda x, draw: x.ask_offsets(draw)),
            Kind("member gives up", 9, self.revoking, lambda x, draw: x.give_up(draw)),
            Kind("member subscribes", 0.15, self.awake, lambda x, draw: x.subscribe(draw)),
            Kind("member stops", 0.12, self.awake, lambda x, draw: x.stop(draw)),
            Kind("all stop", 0.1, self.several, self.all_stop),
            Kind("coordinator begins", 8, self._that("may_begin"), lambda x, _: x.begin()),
            Kind("coordinator reads", 8, self._that("may_read"), lambda x, draw: x.read(draw)),
            Kind("coordinator appends", 20, self._that("has_to_append"), lambda x, draw: x.append(draw)),
            Kind("coordinator ticks", 8, self._that("is_to_tick"), lambda x, _: x.tick()),
            Kind("coordinator looks", 6, self._that("is_behind"), lambda x, _: x.look()),
            Kind("coordinator shows", 6, self._that("has_to_show"), lambda x, _: x.show()),
        ]

    def faults(self) -> list[Kind]:
        kinds = [
            Kind("member killed", 0.3, self.living, lambda x, _: self._gone(x)),
            Kind("member pauses", 0.5, self.awake, self.pause),
            Kind("member resumes", 1, lambda: [x for x in self.living() if x.is_paused], self.resume),
        ]
        return [
            *self.post.faults(),
            *self.around.faults(),
            *self.operator.faults(),
            *(replace(kind, is_fault=True) for kind in kinds),
        ]

    def among(self, kinds: Sequence[Kind]) -> list[Kind]:
        """Return the kinds of the whole world, but less of the others, so that the group gets somewhere in between."""
        wanted = [kind for kind in kinds if kind.name not in IN_ITS_PLACE]
        return [
            kind if kind.name in self._own else replace(kind, weight=kind.weight * self._share(kind)) for kind in wanted
        ]

    def _share(self, other: Kind) -> float:
        return OTHERS_FAULTS if other.is_fault and other.name != self.setting.plan.focus else OTHERS

    def well(self, shorthand: Shorthand) -> list[Kind]:
        """Move the log and the cluster on where the group waits for that, and time where it waits for nothing else."""

        def pass_time(_: object, draw: int) -> None:
            self.setting.time.now_ms += 1 + draw % max(1, self._idle_ms)
            if not draw >> 12 & 3:
                shorthand.agree(Whole(), 0)
                shorthand.replicate(Whole(), 0)

        return [
            *GroupShorthand(self, shorthand).kinds(),
            Kind("all is replicated", 8, self.writing, shorthand.replicate),
            Kind("all agree", 1, lambda: WHOLE, shorthand.agree),
            Kind("time goes by", 5, lambda: WHOLE if self._idle_ms > 1 else (), pass_time),
        ]

    # -- who ---------------------------------------------------------------------------------------------------------

    def living(self) -> list[Member]:
        return [slot.member for slot in self.slots if slot.member is not None and not slot.member.is_over]

    def awake(self) -> list[Member]:
        return [member for member in self.living() if not member.is_paused]

    def empty(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.member is None or slot.member.is_over]

    def several(self) -> Sequence[Target]:
        return WHOLE if len(self.awake()) > 1 else ()

    def uncommitted(self) -> list[Member]:
        return [member for member in self.awake() if member.to_commit()]

    def unbegun(self) -> list[Member]:
        return [member for member in self.awake() if member.unbegun()]

    def revoking(self) -> list[Member]:
        return [member for member in self.awake() if member.to_give_up]

    def writing(self) -> Sequence[Target]:
        return WHOLE if any(each.waits_for_log for each in self.all()) else ()

    @property
    def _idle_ms(self) -> int:
        """Return the time until a process that could act wants to."""
        if self.writing() or self.post.moves:
            return 0
        due = [member.idle_ms for member in self.awake()]
        return min([IDLE_MS_MAX, *due, *([SHOWING_MS] if self._is_showing() else [])])

    def _is_showing(self) -> bool:
        """Or the operator has something to see, or to say."""
        operator, is_on_its_way = self.operator, self.around.resource.landing()
        return bool(is_on_its_way) or operator.is_behind or operator.has_to_assign or bool(self._that("has_to_show")())

    def _that(self, what: str) -> Callable[[], list[Coordinating]]:
        return lambda: [each for each in self.all() if not each.life.is_paused and getattr(each, what)]

    def all(self) -> list[Coordinating]:
        return [each for each in self.around.coordinatings if each.life.is_up]

    # -- processes ---------------------------------------------------------------------------------------------------

    def start(self, slot: Slot, draw: int) -> None:
        self.shared.last_id += 1
        identity = Identity(
            MemberId(f"{slot.label}-{self.shared.last_id}"),
            SUBSCRIPTIONS[draw % len(SUBSCRIPTIONS)],
            slot.instance,
            REBALANCE_MS[(draw >> 4) % len(REBALANCE_MS)],
            waits=draw % 7 < 4,
        )
        slot.member = Member(slot.label, identity, slot.clock, self._around)

    def pause(self, member: Member, _: int) -> None:
        member.is_paused = True

    def resume(self, member: Member, _: int) -> None:
        member.is_paused = False

    def all_stop(self, _: object, draw: int) -> None:
        for member in self.awake():
            member.stop(draw)

    def _gone(self, member: Member) -> None:
        member.is_over = True
        for slot in self.slots:
            if slot.member is member:
                slot.member = None

    def find(self, draw: int) -> BrokerId:
        """Return the coordinator, by an answer that may be out of date."""
        leader = self.api.state.leader
        say_so = [life.broker for life in self.brokers.leaders()]
        if leader is not None and (draw % 4 or self.setting.plan.calm):
            return leader.broker
        known = say_so or self.setting.brokers
        return known[(draw >> 2) % len(known)]

    # -- the end -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        before = self.promises.image.group.assignment_epoch
        if self.promises.catch_up() and self.promises.image.group.assignment_epoch > before:
            self._count_rebalance()
        self.promises.check(member.claim for member in self.living())

    def _count_rebalance(self) -> None:
        counts, is_alone = self.setting.counts, self.operator.is_paused
        counts["rebalance"] += 1
        counts["rebalance without operator"] += is_alone
        counts["rebalance without API server"] += self.around.resource.is_away

    def heal(self) -> None:
        self.post.heal()
        self.around.heal()
        instances: set[str] = set()
        for member in self.living():
            member.is_paused = False
            if member.state.identity.instance in instances:
                self._gone(member)
            instances |= {member.state.identity.instance} - {""}

    def is_at_rest(self) -> bool:
        """Return whether every member is in, has a fair share, and all records were read; a late commit of less may
        have come last."""
        image, living = self.promises.image, self.living()
        if image.members.keys() != {member.id for member in living}:
            return False
        if image.group.epoch != image.group.assignment_epoch or not _is_balanced(image):
            return False
        if self._is_showing() or (image.is_known and self.around.resource.stored is None):
            return False
        return all(is_settled(member, image.targets, self.shared.ends) for member in living)


def _is_balanced(image: Image) -> bool:
    """Return whether the shares are as if no member had anything before."""
    if image.group.inputs.assignor is Assignor.RANGE:
        return True
    anew = Image(image.name)
    anew.members = image.members
    fair = sorted(map(len, target_of(anew, image.group.inputs).values()))
    return fair == sorted(len(image.target(member)) for member in image.members)


def _instance(number: int) -> str:
    """Return the instance id: of five processes two pairs have the same, so one of each pair is one too many."""
    return ("", "billing-0", "billing-1", "billing-0", "billing-1")[number % 5]
