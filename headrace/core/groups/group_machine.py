"""The groups of one partition of the offsets topic, on the broker that leads it: its log is the truth.

`GroupMachine` is the state machine that `core.coordinator` drives: it hands events on to the groups that they are for,
and what the groups decide back to the coordinator. A heartbeat without news needs no record: before it is answered, the
shell must know that it still leads, as before it answers `latest` (`Replica.check_latest`).

Owned by one partition's task. Bounds: groups; requests that wait for their records, and the bytes of these. Offsets
are refused before anything else is: while they flood a coordinator, members must be heard, or their sessions end.

`VisibleTopics` is what a broker tells groups of topics: which there are, and which were deleted for sure. A topic that
is out of sight may be back (the API server's data may have been lost or restored), so a namespace whose topics all
vanish is not told, unless every one of them was being deleted. A deletion is sure if the Topic was seen while it was
being deleted together with its data, and then was gone. One per broker; bounded by DELETED_TOPICS_REMEMBERED_MAX.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias, assert_never

from headrace.core.coordinator import Backlog, Immediate, MachineEffect, Refuse, Ticked
from headrace.core.errors import GroupFullError, HeadraceError, ThrottledError
from headrace.core.groups.entries import Entry, Image
from headrace.core.groups.events import (
    CommitReceived,
    Effect,
    GroupChanged,
    Notice,
    Reply,
    Request,
    ResetResolved,
    SettingsSeen,
    TargetOffered,
    TopicDeleted,
    TopicsSeen,
)
from headrace.core.groups.group import Group
from headrace.core.groups.identity import GroupName, GroupSettings, GroupState, TopicShape
from headrace.core.groups.members import type_problem
from headrace.core.groups.records import records_bytes_max
from headrace.core.groups.sessions import NEVER
from headrace.core.limits import GROUPS_PER_COORDINATOR_MAX
from headrace.core.resources.topic import DeletionPolicy, Topic
from headrace.core.types import TopicUid

COORDINATOR_UNANSWERED_MAX = 10_000
"""Requests whose records are not committed yet; a coordinator that is behind by more takes no others."""
COORDINATOR_COMMITS_UNANSWERED_MAX = 8_000
"""So many, and it takes no more offsets: members must be heard all the same."""
COORDINATOR_UNCOMMITTED_BYTES_MAX = 40 << 20
COORDINATOR_UNCOMMITTED_OFFSETS_BYTES_MAX = 32 << 20
"""The same two bounds, of the records themselves: a follower that lags must not fill the leader's memory."""
DELETED_TOPICS_REMEMBERED_MAX = 1024
"""Kept for coordinators that begin after the deletion: more are forgotten with the age of their offsets."""
GroupEffect: TypeAlias = MachineEffect[Entry, Reply, Notice]


@dataclass(frozen=True, slots=True)
class ForGroup:
    group: GroupName
    event: Request | TargetOffered


@dataclass(frozen=True, slots=True)
class GroupConfigured:
    """The ConsumerGroup says so."""

    group: GroupName
    settings: GroupSettings | None
    """None: it is gone. Its group, if that lives, stays as it is: somebody will create it again."""


@dataclass(frozen=True, slots=True)
class TopicsListed:
    """All topics of one namespace."""

    namespace: str
    topics: Mapping[str, TopicShape]


GroupEvent: TypeAlias = ForGroup | GroupConfigured | TopicsListed | TopicDeleted


class GroupMachine:
    def __init__(self) -> None:
        self.groups: dict[GroupName, Group] = {}
        """The groups that have a record in the log."""
        self._images: dict[GroupName, Image] = {}
        """While the log is read."""
        self._topics: dict[str, Mapping[str, TopicShape]] = {}
        self._settings: dict[GroupName, GroupSettings] = {}
        self._looks: dict[GroupName, int] = {}
        """The times at which groups are to be looked at; `_agenda` has some that are over as well."""
        self._agenda: list[tuple[int, GroupName]] = []
        self._wall_ms = 0
        self._unsettled: Counter[GroupName] = Counter()
        """Changes of each group that are not committed yet."""

    @property
    def count(self) -> int:
        return len(self.groups)

    def load(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._images.setdefault(entry.key.group, Image(entry.key.group)).apply(entry)

    def begin(self, wall_ms: int, now_ms: int) -> Sequence[GroupEffect]:
        self._wall_ms = wall_ms
        images, self._images = self._images, {}
        effects: list[GroupEffect] = []
        for image in images.values():
            if image.is_known:
                effects += self._add(Group(image, now_ms=now_ms, wall_ms=wall_ms), now_ms)
        return effects

    def act(self, event: GroupEvent, now_ms: int, backlog: Backlog) -> Sequence[GroupEffect]:
        match event:
            case ForGroup(group, what):
                return self._for_group(group, what, now_ms, backlog)
            case GroupConfigured(group, settings):
                return self._configure(group, settings, now_ms)
            case TopicsListed(namespace, topics):
                self._topics[namespace] = topics
                groups = [group for group in self.groups if group.namespace == namespace]
                return self._to(groups, TopicsSeen(topics), now_ms)
            case TopicDeleted():
                return self._to([*self.groups], event, now_ms)
            case _:
                assert_never(event)

    def tick(self, wall_ms: int, now_ms: int) -> Sequence[GroupEffect]:
        self._wall_ms = wall_ms
        return self._to(self._due(now_ms), Ticked(wall_ms), now_ms)

    def size_bytes(self, entries: Sequence[Entry]) -> int:
        return records_bytes_max(entries)

    def told(self, notice: Notice) -> None:
        if isinstance(notice, GroupChanged):
            self._unsettled[notice.group] -= 1
            if not self._unsettled[notice.group]:
                del self._unsettled[notice.group]

    def reset(self) -> list[int]:
        requests = [request for group in self.groups.values() for request in group.abandon()]
        self.groups, self._images = {}, {}
        self._looks, self._agenda = {}, []
        self._unsettled.clear()
        return requests

    def is_settled(self, group: GroupName) -> bool:
        """Whether all that is known of it is committed, but for offsets, so that it may be shown. Where it is not, a
        `GroupChanged` of it is still to come; the group may be dead in memory, and alive in the log."""
        return group not in self._unsettled

    def _configure(self, group: GroupName, settings: GroupSettings | None, now_ms: int) -> Sequence[GroupEffect]:
        if settings is None:
            self._settings.pop(group, None)
            return []
        self._settings[group] = settings
        return self._to([group], SettingsSeen(settings), now_ms)

    def _add(self, group: Group, now_ms: int) -> Sequence[GroupEffect]:
        name = group.image.name
        self.groups[name] = group
        settings, topics = self._settings.get(name), self._topics.get(name.namespace)
        effects = [] if settings is None else group.step(SettingsSeen(settings), now_ms)
        effects += [] if topics is None else group.step(TopicsSeen(topics), now_ms)
        self._look_at(group)
        return self._noted(effects)

    def _look_at(self, group: Group) -> None:
        """Note when it is due; an earlier time that is there already will do."""
        name = group.image.name
        if group.due_ms < self._looks.get(name, NEVER):
            self._looks[name] = group.due_ms
            heappush(self._agenda, (group.due_ms, name))

    def _due(self, now_ms: int) -> list[GroupName]:
        """Groups for which time alone may change something; the others are not looked at."""
        due: list[GroupName] = []
        while self._agenda and self._agenda[0][0] <= now_ms:
            at_ms, name = heappop(self._agenda)
            if self._looks.get(name) == at_ms:
                del self._looks[name]
                due.append(name)
        return due

    def _for_group(
        self, name: GroupName, event: Request | TargetOffered, now_ms: int, backlog: Backlog
    ) -> Sequence[GroupEffect]:
        problem = backlog.problem(str(name)) or self._problem(name, event, backlog)
        if problem is not None:
            return [] if isinstance(event, TargetOffered) else [Immediate(Refuse(event.request, problem, problem.code))]
        effects: list[GroupEffect] = []
        if name not in self.groups:
            effects += self._add(Group(Image(name), now_ms=now_ms, wall_ms=self._wall_ms), now_ms)
        return [*effects, *self._to([name], event, now_ms)]

    def _problem(self, name: GroupName, event: Request | TargetOffered, backlog: Backlog) -> HeadraceError | None:
        settings = self._settings.get(name)
        if settings is not None and (problem := type_problem(name, event, settings.type)) is not None:
            return problem
        if _is_behind(event, backlog):
            return ThrottledError(
                f"the coordinator of {name} waits for {backlog.uncommitted_bytes} bytes of records to be committed, and"
                f" has as much to tell as it may ({backlog.untold}): try again"
            )
        if name not in self.groups and len(self.groups) >= GROUPS_PER_COORDINATOR_MAX:
            return GroupFullError(
                f"{GROUPS_PER_COORDINATOR_MAX} groups have the coordinator that {name} would have: delete some",
                limit=GROUPS_PER_COORDINATOR_MAX,
            )
        return None

    def _to(
        self,
        names: list[GroupName],
        event: Request | TargetOffered | SettingsSeen | TopicsSeen | TopicDeleted | Ticked,
        now_ms: int,
    ) -> Sequence[GroupEffect]:
        effects: list[GroupEffect] = []
        for name in names:
            group = self.groups.get(name)
            if group is not None:
                group.wall_ms = self._wall_ms
                effects += self._noted(group.step(event, now_ms))
                if group.state is GroupState.DEAD:
                    del self.groups[name]
                else:
                    self._look_at(group)
        return effects

    def _noted(self, effects: Sequence[Effect]) -> Sequence[Effect]:
        self._unsettled.update(effect.group for effect in effects if isinstance(effect, GroupChanged))
        return effects


def _is_behind(event: Request | TargetOffered, backlog: Backlog) -> bool:
    most, most_bytes = COORDINATOR_UNANSWERED_MAX, COORDINATOR_UNCOMMITTED_BYTES_MAX
    if isinstance(event, CommitReceived | ResetResolved):
        most, most_bytes = COORDINATOR_COMMITS_UNANSWERED_MAX, COORDINATOR_UNCOMMITTED_OFFSETS_BYTES_MAX
    return backlog.untold >= most or backlog.uncommitted_bytes >= most_bytes


class VisibleTopics:
    def __init__(self) -> None:
        self.topics: dict[str, Mapping[str, TopicShape]] = {}
        """The topics by namespace, as groups were told last."""
        self._going: set[TopicUid] = set()
        """The topics whose deletion has begun."""
        self._deleted: dict[TopicUid, None] = {}
        """Oldest first."""

    def look(self, topics: Iterable[Topic]) -> list[TopicsListed | TopicDeleted]:
        """All topics of the cluster, as they are now; what is news to groups."""
        seen: dict[str, dict[str, TopicShape]] = {}
        going: set[TopicUid] = set()
        for topic in topics:
            shape = TopicShape(topic.uid, topic.spec.partitions)
            seen.setdefault(topic.metadata.namespace, {})[topic.metadata.name] = shape
            if topic.metadata.deletion_timestamp and topic.spec.deletion_policy is DeletionPolicy.DELETE:
                going.add(topic.uid)
        present = {shape.uid for listed in seen.values() for shape in listed.values()}
        for uid in self._deleted.keys() & present:
            del self._deleted[uid]  # a restored API server has it again, and groups commit again
        deleted = sorted(self._going - present)
        self._going = going
        self._remember(deleted)
        namespaces = sorted({*self.topics, *seen})
        told = [self._listed(namespace, seen.get(namespace, {})) for namespace in namespaces]
        return [*(each for each in told if each is not None), *map(TopicDeleted, deleted)]

    def all(self) -> list[TopicsListed | TopicDeleted]:
        """Return the events for a coordinator that knows nothing yet."""
        listed = [TopicsListed(namespace, topics) for namespace, topics in sorted(self.topics.items())]
        return [*listed, *map(TopicDeleted, self._deleted)]

    def _listed(self, namespace: str, topics: Mapping[str, TopicShape]) -> TopicsListed | None:
        before = self.topics.get(namespace, {})
        if topics == before or (not topics and any(shape.uid not in self._deleted for shape in before.values())):
            return None
        self.topics[namespace] = topics
        return TopicsListed(namespace, topics)

    def _remember(self, deleted: Iterable[TopicUid]) -> None:
        self._deleted |= dict.fromkeys(deleted)
        while len(self._deleted) > DELETED_TOPICS_REMEMBERED_MAX:
            del self._deleted[next(iter(self._deleted))]
