"""From the options of `headrace group reset` to a reset of offsets, and what it will move from where to where. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import click

from headrace.cli.starts import parse_start
from headrace.cli.topic_spec import check_name
from headrace.client.consumer.options import Start
from headrace.client.record import TopicPartition
from headrace.core.errors import LocalError
from headrace.core.groups.lag import Watermarks
from headrace.core.resources.consumer_group import ResetOffset, ResetOffsets, ResetTo
from headrace.core.types import Offset, PartitionId

_OFFSET = re.compile(r"([^:=]+):([0-9]+)=([0-9]+)")
_WORDS = {"earliest": ResetTo.EARLIEST, "latest": ResetTo.LATEST, "offsets": ResetTo.OFFSETS}
_MAX = (1 << 63) - 1


class Move(NamedTuple):
    """Of one partition; `before` is None where the group had no offset."""

    place: TopicPartition
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class Target:
    """Where to, as the user said it."""

    to: ResetTo
    timestamp_ms: int | None = None

    @property
    def start(self) -> Start:
        """As a consumer that began there would say it."""
        if self.timestamp_ms is not None:
            return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)
        return self.to.value.lower()


def parse_target(text: str, now: datetime) -> Target:
    """Times in whole seconds, as Kubernetes has them. Raises click.BadParameter."""
    if text.lower() in _WORDS:
        return Target(_WORDS[text.lower()])
    start = parse_start(text, now)
    if not isinstance(start, datetime):
        raise click.BadParameter(f"{text!r} says no partition: give --offset TOPIC:PARTITION=OFFSET for each.")
    return Target(ResetTo.TIMESTAMP, max(0, int(start.timestamp())) * 1000)


def parse_offset(text: str) -> ResetOffset:
    """`orders:0=1200`. Raises click.BadParameter."""
    match = _OFFSET.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not TOPIC:PARTITION=OFFSET, for example orders:0=1200.")
    check_name(match[1])
    if int(match[3]) > _MAX or int(match[2]) > _MAX:
        raise click.BadParameter(f"{text!r}: numbers go up to {_MAX}.")
    return ResetOffset(match[1], PartitionId(int(match[2])), Offset(int(match[3])))


def reset_of(id_: str, target: Target | None, topics: Sequence[str], offsets: Sequence[ResetOffset]) -> ResetOffsets:
    """Raises click.UsageError where the options do not fit together."""
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
    """Raises LocalError where an offset is none that could be read next."""
    for each in offsets:
        place = TopicPartition(each.topic, each.partition)
        marks = watermarks.get(place)
        if marks is not None and not marks.log_start <= each.offset <= marks.high:
            raise LocalError(
                f"--offset {each.topic}:{each.partition}={each.offset}: {place} has the offsets {marks.log_start} to"
                f" {marks.high} (the next record's): choose one of these, or --to earliest or latest"
            )


def moves(committed: Mapping[TopicPartition, int], targets: Mapping[TopicPartition, int]) -> list[Move]:
    """By topic and partition."""
    return [Move(place, committed.get(place), offset) for place, offset in sorted(targets.items())]


def move_table(found: Iterable[Move], before: str = "-") -> tuple[list[str], list[list[object]]]:
    """`before` stands where there was no offset."""
    rows: list[list[object]] = [
        [move.place.topic, move.place.partition, before if move.before is None else move.before, move.after]
        for move in found
    ]
    return ["TOPIC", "PARTITION", "FROM", "TO"], rows
