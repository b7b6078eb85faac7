"""The group's topics and its ConsumerGroup: the changes that people make, and targets that no operator should offer.

Topics grow, go out of sight and come back with the same uid, or are deleted and made again. The ConsumerGroup is made
by people or by a broker, changed, deleted, or gone as after a restore. Targets are the operator's (`operating`), late,
wrong, or right and unlike what the coordinator would have said. Days may go by while the group is empty.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headrace.core.groups.events import TargetOffered
from headrace.core.groups.group_machine import ForGroup
from headrace.core.groups.identity import Assignor, MemberId, TopicShape
from headrace.core.groups.rebalancing import target_of
from headrace.core.resources.consumer_group import ConsumerGroupSpec, ResetOffsets, ResetTo
from headrace.core.types import PartitionId, PartitionKey, TopicUid
from tests.sim.groups.coordinating import Coordinating
from tests.sim.groups.operating import GroupOperator
from tests.sim.groups.post import Post
from tests.sim.groups.promises import Promises
from tests.sim.groups.resource import Write
from tests.sim.groups.shared import GROUP, Shared
from tests.sim.schedule import WHOLE, Kind, Target, Whole
from tests.sim.setting import Setting

NAMES = [Whole("flights"), Whole("trains")]
PARTITIONS_MAX = 5
SESSIONS_MS = (10_000, 20_000, 45_000)
PAUSE_MS = 3_000
DAY_MS = 24 * 3_600_000
RECORDS_MAX = 40
"""The number of records of one partition."""


class Surroundings:
    def __init__(
        self, setting: Setting, shared: Shared, promises: Promises, operator: GroupOperator, post: Post
    ) -> None:
        self.time, self.shared, self.promises, self.operator = setting.time, shared, promises, operator
        self.resource, self._post = shared.resource, post
        self.coordinatings: list[Coordinating] = []
        """The coordinators of living brokers."""
        self._counts = setting.counts
        self._hidden: dict[str, TopicShape] = {}
        self._numbers = 0
        days = setting.plan.retention_days
        self._spec = ConsumerGroupSpec()
        if days:
            self._spec = replace(self._spec, offsets_retention_ms=None if days < 0 else days * DAY_MS)
            self.resource.create(self._spec)

    def kinds(self) -> list[Kind]:
        return [
            Kind("records are written", 0.6, lambda: NAMES, self.write),
            Kind("group status lands", 10, self.resource.landing, lambda write, _: self.land(write)),
            Kind("group reset", 0.2, self.editable, lambda _, __: self.reset()),
            Kind("group deleted", 0.03, self.deletable, lambda _, __: self.resource.delete()),
        ]

    def faults(self) -> list[Kind]:
        kinds = [
            Kind("target late", 0.6, lambda: self.active() if self.operator.published else [], self.offer_late),
            Kind("target wrong", 0.6, self.active, self.offer_wrong),
            Kind("target otherwise", 1, self.active, self.offer_otherwise),
            Kind("topic grows", 0.1, self.present, self.grow),
            Kind("topic vanishes", 0.1, self.present, self.hide),
            Kind("topic returns", 1, lambda: [x for x in NAMES if x.label in self._hidden], self.show),
            Kind("topic deleted", 0.08, self.present, self.delete_topic),
            Kind("topic created", 1, self.creatable, self.create),
            Kind("group paused", 0.1, self.editable, self.pause),
            Kind("settings change", 0.1, self.configurable, self.configure),
            Kind("group vanishes", 0.06, self.editable, lambda _, __: self.resource.put(None)),
            Kind("group status lost", 0.3, lambda: self.resource.writes, lambda x, _: self.resource.writes.remove(x)),
            Kind("groups lose api", 0.1, lambda: [] if self.resource.is_away else WHOLE, self.lose_api),
            Kind("groups find api", 0.3, lambda: WHOLE if self.resource.is_away else [], self.find_api),
            Kind("days go by", 3, self.idle, self.leap),
        ]
        return [replace(kind, is_fault=True) for kind in kinds]

    # -- who ---------------------------------------------------------------------------------------------------------

    def active(self) -> list[Coordinating]:
        return [each for each in self.coordinatings if each.is_active and not each.life.is_paused]

    def present(self) -> list[Target]:
        return [each for each in NAMES if each.label in self.shared.topics]

    def creatable(self) -> list[Target]:
        return [each for each in NAMES if each.label not in self.shared.topics and each.label not in self._hidden]

    def editable(self) -> Sequence[Target]:
        return WHOLE if self.resource.editable else ()

    def configurable(self) -> Sequence[Target]:
        is_free = self.resource.stored is None and not self.resource.is_away
        return WHOLE if is_free or self.resource.editable else ()

    def deletable(self) -> Sequence[Target]:
        """Return the groups that may be deleted: a reset that comes after it would be the next group's."""
        return () if self._post.has_reset else self.editable()

    def idle(self) -> Sequence[Target]:
        """Return the targets while no member reads, and there is something to remember."""
        image = self.promises.image
        return WHOLE if image.offsets and not image.members else ()

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
        session_ms = SESSIONS_MS[(draw >> 4) % len(SESSIONS_MS)]
        spec = replace(self._spec, assignor=assignor, session_timeout_ms=session_ms)
        if self.resource.stored is None:
            self.resource.create(spec)
        else:
            self.resource.edit(replace(spec, reset_offsets=self.resource.stored.spec.reset_offsets))

    def pause(self, _: object, draw: int) -> None:
        self._edit(paused_until_ms=self.time.now_ms + 1 + draw % PAUSE_MS)

    def reset(self) -> None:
        self._numbers += 1
        self._edit(reset_offsets=ResetOffsets(f"reset-{self._numbers}", ResetTo.EARLIEST))

    def _edit(self, **changes: Any) -> None:
        assert self.resource.stored is not None, "it is editable"
        self.resource.edit(replace(self.resource.stored.spec, **changes))

    def land(self, write: Write) -> None:
        self._counts["group status landed" if self.resource.land(write) else "group status conflict"] += 1

    def lose_api(self, _: object, __: int) -> None:
        self.resource.is_away = True

    def find_api(self, _: object, __: int) -> None:
        self.resource.is_away = False

    def leap(self, _: object, draw: int) -> None:
        self.time.now_ms += (1 + draw % 10) * DAY_MS

    # -- targets -----------------------------------------------------------------------------------------------------

    def offer_late(self, at: Coordinating, draw: int) -> None:
        published = self.operator.published
        at.step(ForGroup(GROUP, published[draw % len(published)]))

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
        self.resource.is_away = False
        self.operator.work()
        if self.resource.editable:
            self._edit(paused_until_ms=None)
