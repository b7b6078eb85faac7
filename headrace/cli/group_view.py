"""A consumer group as `headrace group describe` shows it: as text for people, as a document for programs.

The facts about a group come from two sides, the Kubernetes API and the brokers, and either may be away. Brokers know
its members and how far it has read; where they are away, the ConsumerGroup's status has the last known members, and
offsets are not known. What is not known is shown as that. `GroupDescription` is pure; `read_group` asks both sides and
makes one.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.cli.group_brokers import BRIEF_TIMEOUT_MS, TIMEOUT_MS, GroupBrokers, Live
from headrace.cli.options import Where
from headrace.cli.output import readable, readable_spec
from headrace.cli.resources import find_group, no_group
from headrace.cli.servers import context_namespace, with_kube
from headrace.client.record import TopicPartition
from headrace.core.errors import HeadraceError
from headrace.core.groups.assignment import TopicPartitions
from headrace.core.groups.identity import OFFSETS_TOPIC, GroupName, GroupType
from headrace.core.groups.lag import Watermarks, records_behind
from headrace.core.groups.requests import TopicOffset
from headrace.core.groups.status import MemberReport
from headrace.core.resources.consumer_group import ConsumerGroup, MemberStatus, TopicShare
from headrace.kube.resource import TOPICS

if TYPE_CHECKING:
    from headrace.kube.client import KubeClient


UNKNOWN, NONE = "unknown", "-"
_NAMED_MAX = 5
Member = MemberReport | MemberStatus
_PARTITION_TITLES = ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "MEMBER", "ADDRESS"]
_MEMBER_TITLES = ["MEMBER", "INSTANCE", "ADDRESS", "EPOCH", "OWNS", "ASSIGNED"]

Table = tuple[list[str], list[list[object]]]


class PartitionRow(NamedTuple):
    """The row of one partition."""

    place: TopicPartition
    offset: TopicOffset | None
    """The offset; None: the group has none, or no broker answers."""
    watermarks: Watermarks | None
    owner: Member | None

    @property
    def lag(self) -> int | None:
        """Return the lag; None: not known."""
        if self.watermarks is None:
            return None
        return records_behind(None if self.offset is None else self.offset.value.offset, self.watermarks)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    name: GroupName
    resource: ConsumerGroup | None
    live: Live | None
    no_api: str = ""
    """The reason why the Kubernetes API has not answered; empty: it has."""
    no_brokers: str = ""

    @property
    def missing(self) -> list[str]:
        """Return which side did not answer, and what is not known therefore."""
        found = []
        if self.no_api:
            found.append(f"the Kubernetes API is away, settings and conditions are not known: {self.no_api}")
        if self.no_brokers:
            found.append(
                "brokers do not tell, so members are those that the Kubernetes API saw last, and offsets are not known:"
                f" {self.no_brokers}"
            )
        return found

    @property
    def state(self) -> str:
        if self.live is not None:
            return self.live.report.state.value
        state = None if self.resource is None else self.resource.status.state
        return "Unknown" if state is None else state.value

    @property
    def type(self) -> GroupType:
        if self.live is not None:
            return self.live.report.type
        return GroupType.CONSUMER if self.resource is None else self.resource.spec.type

    @property
    def members(self) -> tuple[Member, ...]:
        if self.live is not None:
            return self.live.report.members
        return () if self.resource is None else self.resource.status.members

    @property
    def who(self) -> str:
        """Return the members as `billing-0 (10.1.2.3), 6b1e (10.1.2.4)`, and how many more."""
        named = [
            (member.instance or member.member) + (f" ({member.client_address})" if member.client_address else "")
            for member in self.members
        ]
        more = f" and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
        return ", ".join(named[:_NAMED_MAX]) + more

    @property
    def topics(self) -> list[str]:
        """Return the topics that members subscribe to, or that the group has offsets of."""
        status = () if self.resource is None else self.resource.status.topics
        offsets = () if self.live is None else self.live.offsets.values()
        named = {
            *(topic for member in self.members for topic in member.topics),
            *(each.topic for each in offsets),
            *(each.topic for each in status),
        }
        return sorted(named - {""})

    @property
    def lag(self) -> int | None:
        """Return the lag of all partitions; None: not known."""
        if self.live is not None:
            lags = [row.lag for row in self.rows()]
        else:
            lags = [] if self.resource is None else [topic.lag for topic in self.resource.status.topics]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if len(known) == len(lags) and (lags or self.live is not None) else None

    def rows(self) -> list[PartitionRow]:
        """Return the rows by topic and partition."""
        owners = {place: member for member in self.members for place in _places(member.owned)}
        if self.live is None:
            return [
                PartitionRow(place, None, None, owner)
                for place, owner in sorted(owners.items(), key=lambda item: item[0])
            ]
        marks = self.live.watermarks
        return [
            PartitionRow(place, self.live.offsets.get(place), marks[place], owners.get(place))
            for place in sorted(marks)
        ]

    # -- for people ----------------------------------------------------------------------------------------------------

    def head(self) -> str:
        status = self._epochs()
        coordinator = UNKNOWN if status["coordinator"] is None else status["coordinator"]
        parts = [
            str(self.name),
            self.state,
            self._readers(),
            f"lag {_or_unknown(self.lag)}",
            f"coordinator {coordinator}",
            f"epoch {status['groupEpoch']}",
        ]
        return "   ".join(parts)

    def _readers(self) -> str:
        if self.type is GroupType.SPARK:
            return "progress of a Spark query"
        count = len(self.members)
        return "1 member" if count == 1 else f"{count} members"

    def spec_lines(self) -> Iterator[str]:
        for field, value in () if self.resource is None else self.resource.spec.to_object().items():
            parts = [f"{name} {_listed(part)}" for name, part in value.items()] if isinstance(value, dict) else []
            yield f"{field}: {', '.join(parts) or readable(value)}"

    def condition_lines(self) -> Iterator[str]:
        for condition in () if self.resource is None else self.resource.status.conditions:
            said = f": {condition['message']}" if condition.get("message") else ""
            yield f"{condition['type']}={condition['status']} {condition['reason']}{said}"

    def member_table(self) -> Table:
        return _MEMBER_TITLES, [
            [
                member.member,
                member.instance or NONE,
                member.client_address or UNKNOWN,
                member.epoch,
                compact(member.owned),
                compact(member.assignment),
            ]
            for member in self.members
        ]

    def partition_table(self) -> Table:
        return _PARTITION_TITLES, [
            [
                row.place.topic,
                row.place.partition,
                UNKNOWN if self.live is None else NONE if row.offset is None else row.offset.value.offset,
                UNKNOWN if row.watermarks is None else row.watermarks.high,
                _or_unknown(row.lag),
                NONE if row.owner is None else row.owner.instance or row.owner.member,
                NONE if row.owner is None else row.owner.client_address or UNKNOWN,
            ]
            for row in self.rows()
        ]

    # -- for programs --------------------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        resource = self.resource
        return {
            "namespace": self.name.namespace,
            "name": self.name.name,
            "type": self.type.value,
            "state": self.state,
            **self._epochs(),
            "lag": self.lag,
            "members": [_member_object(member) for member in self.members],
            "partitions": [_row_object(row) for row in self.rows()],
            "lastReset": self._last_reset(),
            "spec": None if resource is None else readable_spec(resource.spec.to_object()),
            "conditions": None if resource is None else [dict(each) for each in resource.status.conditions],
            "missing": self.missing,
        }

    def _epochs(self) -> dict[str, Any]:
        if self.live is not None:
            said: Any = self.live.report
        else:
            said = None if self.resource is None else self.resource.status
        return {
            "coordinator": getattr(said, "coordinator", None),
            "groupEpoch": getattr(said, "group_epoch", None),
            "assignmentEpoch": getattr(said, "assignment_epoch", None),
        }

    def _last_reset(self) -> Mapping[str, Any] | None:
        last = None if self.resource is None else self.resource.status.last_reset
        if last is not None:
            return last._asdict()
        return {"id": self.live.report.last_reset} if self.live is not None and self.live.report.last_reset else None


def compact(shares: Iterable[TopicPartitions | TopicShare]) -> str:
    """Return shares in short, as `flights:0-2,5 orders:1`."""
    return " ".join(f"{share.topic}:{_ranges(share.partitions)}" for share in shares if share.partitions) or NONE


def _ranges(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def _places(shares: Iterable[TopicPartitions | TopicShare]) -> Iterator[TopicPartition]:
    return (TopicPartition(share.topic, partition) for share in shares for partition in share.partitions)


def _or_unknown(value: object) -> object:
    return UNKNOWN if value is None else value


def _listed(value: object) -> str:
    """Return a field of a field: a value that is no text stays as JSON has it."""
    if isinstance(value, list):
        return " ".join(
            f"{each['topic']}:{each['partition']}={each['offset']}" if isinstance(each, dict) else str(each)
            for each in value
        )
    return readable(value)


def _member_object(member: Member) -> dict[str, Any]:
    return {
        "memberId": member.member,
        "instanceId": member.instance,
        "clientAddress": member.client_address,
        "memberEpoch": member.epoch,
        "topics": [*member.topics],
        "assignment": _share_objects(member.assignment),
        "owned": _share_objects(member.owned),
    }


def _share_objects(shares: Iterable[TopicPartitions | TopicShare]) -> list[dict[str, Any]]:
    return [{"topic": share.topic, "partitions": [*share.partitions]} for share in shares]


def _row_object(row: PartitionRow) -> dict[str, Any]:
    offset = None if row.offset is None else row.offset.value
    return {
        "topic": row.place.topic,
        "partition": row.place.partition,
        "offset": None if offset is None else offset.offset,
        "metadata": "" if offset is None else offset.metadata,
        "committed": None if offset is None else _moment(offset.committed_ms),
        "logStart": None if row.watermarks is None else row.watermarks.log_start,
        "logEnd": None if row.watermarks is None else row.watermarks.high,
        "lag": row.lag,
        "memberId": None if row.owner is None else row.owner.member,
    }


def _moment(time_ms: int) -> str | None:
    if not time_ms:
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def namespace_of(where: Where) -> str:
    """Return the namespace of groups: that of `headrace topic` where there is a kubeconfig, else that of commands for
    records."""
    return context_namespace(where.kube) or where.find().namespace


def brokers_of(where: Where, namespace: str, timeout_ms: int = TIMEOUT_MS) -> GroupBrokers:
    """Return the brokers. Raises HeadraceError with the remedy where no way leads to brokers."""
    return GroupBrokers(where.find(), namespace, timeout_ms)


def read_group(where: Where, name: str) -> GroupDescription:
    """Return the group. Raises LocalError where there is no such group, and HeadraceError where that is not known."""
    view = read_group_if_any(where, name)
    if view.resource is not None or view.live is not None:
        return view
    namespace = view.name.namespace
    if view.no_api:
        raise HeadraceError(
            f"no broker knows a group {name} in namespace {namespace}, and the Kubernetes API is away: {view.no_api}"
        )
    if view.no_brokers and _has_had_groups(where):
        raise HeadraceError(
            f"there is no ConsumerGroup {name} in namespace {namespace}, and brokers do not tell: {view.no_brokers}"
        )
    raise no_group(name, namespace)


def read_group_if_any(where: Where, name: str) -> GroupDescription:
    """Return what is known of the group, which may be nothing. Raises HeadraceError where neither side can be asked."""
    namespace = namespace_of(where)
    resource, no_api = _resource(where, name, namespace)
    # A group that the Kubernetes API does not have is worth one request to brokers, with a short time limit.
    timeout_ms = BRIEF_TIMEOUT_MS if resource is None and not no_api else TIMEOUT_MS
    live, no_brokers = _live(where, name, namespace, timeout_ms)
    if no_api and no_brokers:
        raise HeadraceError(f"neither the Kubernetes API nor a broker tells: {no_api}; {no_brokers}")
    return GroupDescription(GroupName(namespace, name), resource, live, no_api, no_brokers)


def _resource(where: Where, name: str, namespace: str) -> "tuple[ConsumerGroup | None, str]":
    """Return the ConsumerGroup, and the reason why it is not known whether there is one; empty: it is known."""

    async def work(client: "KubeClient", _: str) -> "ConsumerGroup | None":
        return await find_group(client, name, namespace)

    try:
        return with_kube(where.kube, work), ""
    except (HeadraceError, ModuleNotFoundError) as error:
        return None, str(error)


def _has_had_groups(where: Where) -> bool:
    """Return whether there have been groups, True also where that is not known: before the first group no broker
    coordinates anything."""

    async def work(client: "KubeClient", _: str) -> bool:
        return any(topic.metadata.name == OFFSETS_TOPIC for topic in (await client.list(TOPICS)).items)

    try:
        return with_kube(where.kube, work)
    except HeadraceError:
        return True


def _live(where: Where, name: str, namespace: str, timeout_ms: int) -> tuple[Live | None, str]:
    try:
        with brokers_of(where, namespace, timeout_ms) as brokers:
            return brokers.live(name), ""
    except HeadraceError as error:
        return None, error.message
