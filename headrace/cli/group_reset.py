"""`headrace group reset`: writes `spec.resetOffsets` into the ConsumerGroup and waits until it is carried out.

What it will move is worked out before, by the same look-ups as the operator's, so that it can be shown and refused;
what was moved is read from the coordinator afterwards. Once it is written a reset stays wanted until it is carried out:
Ctrl-C ends the waiting and says so.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from headrace.cli.asking import confirmed
from headrace.cli.examples import Command, examples
from headrace.cli.group_brokers import GroupBrokers, place_of
from headrace.cli.group_look import brokers_of, look_for, namespace_of
from headrace.cli.group_view import GroupView
from headrace.cli.kube import with_kube
from headrace.cli.options import GROUP, TOPIC, Where, broker_options, naming_remedy
from headrace.cli.output import after_interrupt, print_table, tell, waiting_aloud
from headrace.cli.reset_request import (
    Move,
    Target,
    check_offsets,
    move_table,
    moves,
    parse_offset,
    parse_target,
    reset_of,
)
from headrace.client.record import TopicPartition
from headrace.core.errors import LocalError
from headrace.core.groups.identity import GroupType
from headrace.core.resources.consumer_group import ResetOffset, ResetOffsets, ResetTo
from headrace.core.resources.metadata import DEFAULT_CLUSTER

if TYPE_CHECKING:
    from headrace.kube.client import KubeClient


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
    target: Target | None,
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
    view = look_for(where, name)
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


def _check_type(view: GroupView) -> None:
    """Raises LocalError where nobody would carry it out."""
    if view.resource is not None and view.resource.spec.type is GroupType.SPARK:
        raise LocalError(
            f"group {view.name} is of type Spark, whose query keeps its offsets in a checkpoint of its own: start the"
            " query anew, with another checkpoint; nothing was changed here"
        )


def _topics_of(name: str, view: GroupView) -> tuple[str, ...]:
    """Of the group as it is now. Raises LocalError where it has none."""
    if not view.topics:
        raise LocalError(f"group {name} has no topics yet: name them with --topic, or partitions with --offset")
    return tuple(view.topics)


def _plan(where: Where, brokers: GroupBrokers, view: GroupView, wanted: ResetOffsets) -> list[Move]:
    namespace = view.name.namespace
    before = {} if view.live is None else {place: each.value.offset for place, each in view.live.offsets.items()}
    if wanted.to is ResetTo.OFFSETS:
        places = {TopicPartition(each.topic, each.partition): int(each.offset) for each in wanted.offsets}
        _check_places(where, brokers, places, namespace)
        check_offsets(wanted.offsets, brokers.watermarks(places))
        return moves(before, places)
    start = Target(wanted.to, wanted.timestamp_ms).start
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


def _tell_members(view: GroupView) -> None:
    if view.members:
        tell(f"headrace: it is reset once the group is empty: {view.who} is in it now", fg="yellow")


def _carry_out(where: Where, name: str, namespace: str, wanted: ResetOffsets, cluster: str) -> None:
    from headrace.cli.groups_api import ask_for_reset, clear_reset, stays_wanted, wait_until_reset

    is_asked = False
    """And not carried out yet."""

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
            tell(f"headrace: interrupted: {stays_wanted(name, namespace)}", fg="yellow")
        raise


def _show_what_differs(where: Where, name: str, namespace: str, planned: Sequence[Move]) -> None:
    """Records that came meanwhile move the end, for example."""
    with brokers_of(where, namespace) as brokers:
        now = {place_of(each): int(each.value.offset) for each in brokers.offsets(name)}
    differing = [
        move._replace(after=now[move.place]) for move in planned if now.get(move.place, move.after) != move.after
    ]
    if differing:
        click.echo("where the log went on meanwhile:")
        print_table(*move_table(differing))
