"""The commands that change a consumer group: `headrace group reset` and `headrace group delete`.

A reset is read from the options, checked against the logs, shown as a table of moves, and written into the
ConsumerGroup as `spec.resetOffsets`; the command waits until the group's coordinator has carried it out. A delete
removes the ConsumerGroup, with which its offsets go, and waits until it is gone; a group that only brokers know is
deleted there. Both ask before they change something, unless --yes is given. Loaded by `group` when one of them is
called.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import click

from headrace.cli.commands import Command, examples
from headrace.cli.group_brokers import GroupBrokers, place_of
from headrace.cli.group_view import GroupDescription, brokers_of, namespace_of, read_group, read_group_if_any
from headrace.cli.options import GROUP, TOPIC, Where, broker_options, check_topic_name, naming_remedy, parse_start
from headrace.cli.output import after_interrupt, confirmed, notify, print_table, waiting_aloud
from headrace.cli.servers import with_kube
from headrace.client.consumer.options import Start
from headrace.client.record import TopicPartition
from headrace.core.errors import HeadraceError, LocalError
from headrace.core.groups.identity import GroupType
from headrace.core.groups.lag import Watermarks
from headrace.core.resources.consumer_group import ResetOffset, ResetOffsets, ResetTo
from headrace.core.resources.metadata import DEFAULT_CLUSTER
from headrace.core.types import Offset, PartitionId

if TYPE_CHECKING:
    from headrace.core.resources.consumer_group import ConsumerGroup
    from headrace.kube.client import KubeClient


_OFFSET = re.compile(r"([^:=]+):([0-9]+)=([0-9]+)")
_WORDS = {"earliest": ResetTo.EARLIEST, "latest": ResetTo.LATEST, "offsets": ResetTo.OFFSETS}
_MAX = (1 << 63) - 1


class OffsetMove(NamedTuple):
    """The move of one partition; `before` is None where the group had no offset."""

    place: TopicPartition
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """The place to move to, as the user gave it."""

    to: ResetTo
    timestamp_ms: int | None = None

    @property
    def start(self) -> Start:
        """Return the `start` of a consumer that would begin there."""
        if self.timestamp_ms is not None:
            return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)
        return self.to.value.lower()


def parse_target(text: str, now: datetime) -> ResetTarget:
    """Parse a target; times have whole seconds, as Kubernetes has them. Raises click.BadParameter."""
    if text.lower() in _WORDS:
        return ResetTarget(_WORDS[text.lower()])
    start = parse_start(text, now)
    if not isinstance(start, datetime):
        raise click.BadParameter(f"{text!r} says no partition: give --offset TOPIC:PARTITION=OFFSET for each.")
    return ResetTarget(ResetTo.TIMESTAMP, max(0, int(start.timestamp())) * 1000)


def parse_offset(text: str) -> ResetOffset:
    """Parse an offset such as `orders:0=1200`. Raises click.BadParameter."""
    match = _OFFSET.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not TOPIC:PARTITION=OFFSET, for example orders:0=1200.")
    check_topic_name(match[1])
    if int(match[3]) > _MAX or int(match[2]) > _MAX:
        raise click.BadParameter(f"{text!r}: numbers go up to {_MAX}.")
    return ResetOffset(match[1], PartitionId(int(match[2])), Offset(int(match[3])))


def reset_of(
    id_: str, target: ResetTarget | None, topics: Sequence[str], offsets: Sequence[ResetOffset]
) -> ResetOffsets:
    """Return the reset. Raises click.UsageError where the options do not fit together."""
    if target is None and not offsets:
        raise click.UsageError("Say where to: --to earliest, latest or a time, or --offset TOPIC:PARTITION=OFFSET.")
    to = ResetTo.OFFSETS if target is None else target.to
    if (to is ResetTo.OFFSETS) != bool(offsets):
        raise click.UsageError(
            "--offset belongs to --to offsets, and only to it: every partition gets the one it names."
        )
    if offsets and topics:
        raise click.UsageError("--topic and --offset exclude each other: each --offset names its topic.")
    places = [(each.topic, each.partition) for each in offsets]
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice is not None:
        raise click.UsageError(f"--offset names partition {twice[1]} of {twice[0]} twice: give one for each.")
    timestamp_ms = None if target is None else target.timestamp_ms
    return ResetOffsets(id_, to, timestamp_ms, tuple(dict.fromkeys(topics)), tuple(offsets))


def check_offsets(offsets: Iterable[ResetOffset], watermarks: Mapping[TopicPartition, Watermarks | None]) -> None:
    """Raise LocalError where an offset is none that could be read next."""
    for each in offsets:
        place = TopicPartition(each.topic, each.partition)
        marks = watermarks.get(place)
        if marks is not None and not marks.log_start <= each.offset <= marks.high:
            raise LocalError(
                f"--offset {each.topic}:{each.partition}={each.offset}: {place} has the offsets {marks.log_start} to"
                f" {marks.high} (the next record's): choose one of these, or --to earliest or latest"
            )


def moves(committed: Mapping[TopicPartition, int], targets: Mapping[TopicPartition, int]) -> list[OffsetMove]:
    """Return the moves by topic and partition."""
    return [OffsetMove(place, committed.get(place), offset) for place, offset in sorted(targets.items())]


def move_table(found: Iterable[OffsetMove], before: str = "-") -> tuple[list[str], list[list[object]]]:
    """Return columns and rows; `before` stands where there was no offset."""
    rows: list[list[object]] = [
        [move.place.topic, move.place.partition, before if move.before is None else move.before, move.after]
        for move in found
    ]
    return ["TOPIC", "PARTITION", "FROM", "TO"], rows


@examples(
    ("What would be moved?", "headrace group reset billing --to earliest --dry-run"),
    ("Read everything again.", "headrace group reset billing --to earliest --yes"),
    ("The last hour of one topic.", "headrace group reset billing --to '1h ago' --topic orders --yes"),
    ("Leave out what is not read yet.", "headrace group reset billing --to latest --yes"),
    ("Partition by partition.", "headrace group reset billing --offset orders:0=1 --offset orders:1=0 --yes"),
)
@click.command(cls=Command, short_help="Move a group's offsets.")
@click.argument("name", type=GROUP)
@click.option(
    "--to",
    "target",
    callback=lambda _context, _option, text: None if text is None else parse_target(text, datetime.now(UTC)),
    metavar="earliest|latest|TIME|offsets",
    help="Where to. A TIME is '30m ago' (ms, s, m, h, d) or 2026-11-20T12:00:00Z; `offsets` are those of --offset.",
)
@click.option(
    "--topic",
    "topics",
    type=TOPIC,
    multiple=True,
    metavar="TOPIC",
    help="Only this topic; may be given several times.  [default: all topics of the group]",
)
@click.option(
    "--offset",
    "offsets",
    callback=lambda _context, _option, given: tuple(map(parse_offset, given)),
    multiple=True,
    metavar="TOPIC:PARTITION=OFFSET",
    help="The next record to be read in this partition; may be given several times.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be moved, and leave it there.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@broker_options
def reset(  # noqa: PLR0913 - click hands each option over by its name
    where: Where,
    name: str,
    target: ResetTarget | None,
    topics: tuple[str, ...],
    offsets: tuple[ResetOffset, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Move the offsets of a group, once it has no members.

    It is written into the ConsumerGroup as `spec.resetOffsets`, and the group is created where there is none: a group
    may have its offsets before its first member. While members are in it the command waits, and says for whom; Ctrl-C
    ends the waiting, and the reset stays wanted.
    """
    wanted = reset_of(f"cli-{uuid4()}", target, topics, offsets)
    namespace = namespace_of(where)
    view = read_group_if_any(where, name)
    _check_type(view)
    with brokers_of(where, namespace) as brokers:
        if not wanted.topics and wanted.to is not ResetTo.OFFSETS:
            wanted = replace(wanted, topics=_topics_of(name, view))
        planned = _plan(where, brokers, view, wanted)
        cluster = brokers.cluster or DEFAULT_CLUSTER
    print_table(*move_table(planned, before="unknown" if view.no_brokers else "-"))
    if dry_run:
        return
    _tell_members(view)
    if not confirmed(f"Reset {'it' if len(planned) == 1 else f'these {len(planned)} partitions'}?", yes):
        raise LocalError("nothing was changed: say y, or give --yes")
    _carry_out(where, name, namespace, wanted, cluster)
    click.echo(f"group {namespace}/{name} is reset")
    _show_what_differs(where, name, namespace, planned)


def _check_type(view: GroupDescription) -> None:
    """Raise LocalError where no broker would carry it out."""
    if view.resource is not None and view.resource.spec.type is GroupType.SPARK:
        raise LocalError(
            f"group {view.name} is of type Spark, whose query keeps its offsets in a checkpoint of its own: start the"
            " query anew, with another checkpoint; nothing was changed here"
        )


def _topics_of(name: str, view: GroupDescription) -> tuple[str, ...]:
    """Return the topics of the group as it is now. Raises LocalError where it has none."""
    if not view.topics:
        raise LocalError(f"group {name} has no topics yet: name them with --topic, or partitions with --offset")
    return tuple(view.topics)


def _plan(where: Where, brokers: GroupBrokers, view: GroupDescription, wanted: ResetOffsets) -> list[OffsetMove]:
    namespace = view.name.namespace
    before = {} if view.live is None else {place: each.value.offset for place, each in view.live.offsets.items()}
    if wanted.to is ResetTo.OFFSETS:
        places = {TopicPartition(each.topic, each.partition): int(each.offset) for each in wanted.offsets}
        _check_places(where, brokers, places, namespace)
        check_offsets(wanted.offsets, brokers.watermarks(places))
        return moves(before, places)
    start = ResetTarget(wanted.to, wanted.timestamp_ms).start
    return moves(before, brokers.find_offsets(_places(where, brokers, wanted.topics, namespace), start))


def _check_places(where: Where, brokers: GroupBrokers, places: "dict[TopicPartition, int]", namespace: str) -> None:
    known = set(_places(where, brokers, sorted({place.topic for place in places}), namespace))
    for place in places:
        if place not in known:
            count = sum(each.topic == place.topic for each in known)
            raise LocalError(
                f"--offset {place.topic}:{place.partition}={places[place]}: {place.topic} has {count} partitions,"
                " numbered from 0"
            )


def _places(where: Where, brokers: GroupBrokers, topics: Sequence[str], namespace: str) -> list[TopicPartition]:
    found = []
    for topic in topics:
        with naming_remedy(where, namespace, topic):
            found += brokers.partitions(topic)
    return found


def _tell_members(view: GroupDescription) -> None:
    if view.members:
        notify(f"headrace: it is reset once the group is empty: {view.who} is in it now", fg="yellow")


def _carry_out(where: Where, name: str, namespace: str, wanted: ResetOffsets, cluster: str) -> None:
    from headrace.cli.resources import ask_for_reset, clear_reset, stays_wanted, wait_until_reset

    is_asked = False
    """True where the reset is asked for and not carried out yet."""

    async def work(client: "KubeClient", _: str) -> None:
        nonlocal is_asked
        await ask_for_reset(client, name, namespace, wanted, cluster)
        is_asked = True
        with waiting_aloud(f"resetting group {name}") as heard:
            await wait_until_reset(client, name, namespace, wanted.id, heard)
        is_asked = False
        await clear_reset(client, name, namespace, wanted.id)

    try:
        with_kube(where.kube, work)
    except KeyboardInterrupt:
        if is_asked:
            after_interrupt()
            notify(f"headrace: interrupted: {stays_wanted(name, namespace)}", fg="yellow")
        raise


def _show_what_differs(where: Where, name: str, namespace: str, planned: Sequence[OffsetMove]) -> None:
    """Show the moves that differ from the plan, as records that came meanwhile move the end, for example."""
    with brokers_of(where, namespace) as brokers:
        now = {place_of(each): int(each.value.offset) for each in brokers.offsets(name)}
    differing = [
        move._replace(after=now[move.place]) for move in planned if now.get(move.place, move.after) != move.after
    ]
    if differing:
        click.echo("where the log went on meanwhile:")
        print_table(*move_table(differing))


@examples(
    ("Forget how far it has read.", "headrace group delete billing --yes"),
)
@click.command(cls=Command, short_help="Delete a group and its offsets.")
@click.argument("name", type=GROUP)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@broker_options
def delete(where: Where, name: str, yes: bool) -> None:
    """Delete a group that has no members, and its offsets. Records stay."""
    view = read_group(where, name)
    if view.members:
        raise LocalError(
            f"group {view.name} is not empty: stop {view.who} first (or wait until the session of what is dead is"
            " over); nothing was deleted"
        )
    if not confirmed(f"Delete group {view.name} and its offsets?", yes):
        raise LocalError("nothing was deleted: say y, or give --yes")
    if view.resource is not None:
        _delete(where, view.resource)
    else:
        _delete_at_brokers(where, view)
    click.echo(f"group {view.name} is deleted")


def _delete(where: Where, resource: "ConsumerGroup") -> None:
    from headrace.cli.resources import delete_group

    async def work(client: "KubeClient", _: str) -> None:
        with waiting_aloud(f"deleting group {resource.metadata.name}") as heard:
            await delete_group(client, resource, heard)

    try:
        with_kube(where.kube, work)
    except KeyboardInterrupt:
        after_interrupt()
        notify("headrace: interrupted: it is being deleted all the same, and goes once it can", fg="yellow")
        raise


def _delete_at_brokers(where: Where, view: GroupDescription) -> None:
    """Delete a group that has no ConsumerGroup. Raises HeadraceError where that is not known, as a ConsumerGroup would
    bring it back."""
    if view.no_api:
        raise HeadraceError(f"{view.missing[0]}; nothing was deleted")
    with brokers_of(where, view.name.namespace) as brokers:
        brokers.delete(view.name.name)
