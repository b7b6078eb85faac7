"""The group's topics, its ConsumerGroup, and who offers targets: whatever people and the operator do to a group.

Topics grow, go out of sight and come back with the same uid, or are deleted and made again. Targets are right, late,
wrong, or right and unlike what the coordinator would have said.
"""

from dataclasses import replace

from headrace.core.groups.assigning import Assignor
from headrace.core.groups.coordinator import ForGroup
from headrace.core.groups.entries import OffsetValue
from headrace.core.groups.events import DeletionReceived, GroupSettings, ResetResolved, TargetOffered
from headrace.core.groups.identity import MemberId, TopicShape
from headrace.core.groups.targets import target_of
from headrace.core.types import Offset, PartitionId, PartitionKey, TopicUid
from tests.sim.groups.coordinating import Coordinating
from tests.sim.groups.promises import Promises
from tests.sim.groups.shared import GROUP, Shared
from tests.sim.schedule import WHOLE, Kind, Target, Whole
from tests.sim.setting import Time

NAMES = [Whole("flights"), Whole("trains")]
PARTITIONS_MAX = 5
SESSIONS_MS = (10_000, 20_000, 45_000)
PAUSE_MS = 3_000
RECORDS_MAX = 40
"""Of one partition."""


class Surroundings:
    def __init__(self, time: Time, shared: Shared, promises: Promises) -> None:
        self.time, self.shared, self.promises = time, shared, promises
        self.coordinatings: list[Coordinating] = []
        """Those of living brokers."""
        self._hidden: dict[str, TopicShape] = {}
        self._targets: list[TargetOffered] = []
        self._reset: ResetResolved | None = None
        self._numbers = 0

    def kinds(self) -> list[Kind]:
        return [
            Kind("records are written", 1.5, lambda: NAMES, self.write),
            Kind("target offered", 1, self.active, self.offer),
            Kind("group reset", 1.5, self.of_empty, self.reset),
            Kind("group deleted", 0.4, self.of_empty, self.delete),
        ]

    def faults(self) -> list[Kind]:
        kinds = [
            Kind("target late", 0.6, lambda: self.active() if self._targets else [], self.offer_late),
            Kind("target wrong", 0.6, self.active, self.offer_wrong),
            Kind("target otherwise", 1, self.active, self.offer_otherwise),
            Kind("topic grows", 0.25, self.present, self.grow),
            Kind("topic vanishes", 0.3, self.present, self.hide),
            Kind("topic returns", 1, lambda: [x for x in NAMES if x.label in self._hidden], self.show),
            Kind("topic deleted", 0.2, self.present, self.delete_topic),
            Kind("topic created", 1, self.creatable, self.create),
            Kind("group paused", 0.25, lambda: WHOLE, self.pause),
            Kind("settings change", 0.25, lambda: WHOLE, self.configure),
        ]
        return [replace(kind, is_fault=True) for kind in kinds]

    # -- who ---------------------------------------------------------------------------------------------------------

    def active(self) -> list[Coordinating]:
        return [each for each in self.coordinatings if each.is_active and not each.life.is_paused]

    def of_empty(self) -> list[Coordinating]:
        """Where nobody is in it, and now and then where somebody is."""
        image, version = self.promises.image, len(self.shared.batches)
        is_asked = not image.members or version % 8 == 0
        return self.active() if image.is_known and is_asked else []

    def present(self) -> list[Target]:
        return [each for each in NAMES if each.label in self.shared.topics]

    def creatable(self) -> list[Target]:
        return [each for each in NAMES if each.label not in self.shared.topics and each.label not in self._hidden]

    # -- topics ------------------------------------------------------------------------------------------------------

    def write(self, name: Target, draw: int) -> None:
        shape = self.shared.topics.get(name.label)
        if shape is not None:
            partition = PartitionKey(shape.uid, PartitionId(draw % shape.partitions))
            end = self.shared.ends.get(partition, 0)
            self.shared.ends[partition] = min(RECORDS_MAX, end + 1 + (draw >> 8) % 3)

    def grow(self, name: Target, _: int) -> None:
        shape = self.shared.topics[name.label]
        self._list({name.label: shape._replace(partitions=min(PARTITIONS_MAX, shape.partitions + 1))})

    def hide(self, name: Target, _: int) -> None:
        self._hidden[name.label] = self.shared.topics[name.label]
        self._list({}, without=name.label)

    def show(self, name: Target, _: int) -> None:
        self._list({name.label: self._hidden.pop(name.label)})

    def delete_topic(self, name: Target, _: int) -> None:
        self.shared.deleted.append(self.shared.topics[name.label].uid)
        self._list({}, without=name.label)

    def create(self, name: Target, draw: int) -> None:
        uid = TopicUid(f"{name.label}-{len(self.shared.listings)}")
        self._list({name.label: TopicShape(uid, 1 + draw % 3)})

    def _list(self, also: dict[str, TopicShape], without: str = "") -> None:
        kept = {name: shape for name, shape in self.shared.topics.items() if name != without}
        self.shared.listings.append(kept | also)

    # -- the ConsumerGroup -------------------------------------------------------------------------------------------

    def configure(self, _: object, draw: int) -> None:
        assignor = Assignor.RANGE if draw % 5 == 0 else Assignor.UNIFORM
        self.shared.settings.append(GroupSettings(assignor, SESSIONS_MS[(draw >> 4) % len(SESSIONS_MS)]))

    def pause(self, _: object, draw: int) -> None:
        until_ms = self.time.now_ms + 1 + draw % PAUSE_MS
        self.shared.settings.append(replace(self._settings, paused_until_ms=until_ms))

    @property
    def _settings(self) -> GroupSettings:
        return self.shared.settings[-1] if self.shared.settings else GroupSettings()

    def reset(self, at: Coordinating, draw: int) -> None:
        """By the operator, which says the same again where it has not heard."""
        if self._reset is None or draw % 3:
            self._numbers += 1
            ends = self.shared.ends
            chosen = [each for number, each in enumerate(sorted(ends)) if draw >> (number + 2) & 1]
            offsets = {each: OffsetValue(Offset((draw >> 9) % (ends[each] + 1))) for each in chosen}
            self._reset = ResetResolved(self.shared.next_request(), f"reset-{self._numbers}", offsets)
        at.ask(replace(self._reset, request=self.shared.next_request()))

    def delete(self, at: Coordinating, _: int) -> None:
        self._reset = None
        at.ask(DeletionReceived(self.shared.next_request()))

    # -- targets -----------------------------------------------------------------------------------------------------

    def offer(self, at: Coordinating, _: int) -> None:
        """As the ConsumerGroup's status lets the operator: of what is committed."""
        target = self._target()
        self._targets.append(target)
        at.step(ForGroup(GROUP, target))

    def offer_late(self, at: Coordinating, draw: int) -> None:
        at.step(ForGroup(GROUP, self._targets[draw % len(self._targets)]))

    def offer_wrong(self, at: Coordinating, draw: int) -> None:
        offered = self._target()
        target = {member: set(partitions) for member, partitions in offered.target.items()}
        everything = sorted({partition for partitions in target.values() for partition in partitions})
        members = sorted(target)
        if everything and members:
            chosen, who = everything[draw % len(everything)], members[(draw >> 8) % len(members)]
            target[who] ^= {chosen}
        else:
            target[MemberId("nobody")] = set()
        at.step(ForGroup(GROUP, replace(offered, target={who: frozenset(each) for who, each in target.items()})))

    def offer_otherwise(self, at: Coordinating, draw: int) -> None:
        """Members that subscribe to the same have each other's."""
        offered, image = self._target(), self.promises.image
        target = dict(offered.target)
        members = sorted(target, key=lambda each: (image.members[each].subscription.names, each))
        if len(members) > 1:
            one = draw % (len(members) - 1)
            a, b = members[one], members[one + 1]
            if image.members[a].subscription == image.members[b].subscription:
                target[a], target[b] = target[b], target[a]
        at.step(ForGroup(GROUP, replace(offered, target=target)))

    def _target(self) -> TargetOffered:
        image = self.promises.image
        return TargetOffered(image.group.epoch, target_of(image, image.group.inputs))

    def heal(self) -> None:
        self.shared.settings.append(replace(self._settings, paused_until_ms=None))
