"""The options of `headrace consume`, and which of them go together. Pure."""

from dataclasses import dataclass
from datetime import datetime

import click

from headrace.core.errors import InvalidRequestError
from headrace.core.groups.patterns import topic_pattern
from headrace.core.limits import INSTANCE_ID_LENGTH_MAX

_PATTERN_TOPIC_WIDTH = 20
"""Of the topic's column where nobody knows yet which topics there will be; longer names move their row."""


@dataclass(frozen=True, slots=True)
class Options:
    topics: tuple[str, ...]
    start: str | int | datetime
    partition: int | None
    max_records: int | None
    follow: bool
    group: str | None
    pattern: str | None
    instance_id: str | None
    skip_unreadable: bool
    output: str
    quiet: bool

    @property
    def which(self) -> str:
        """For sentences."""
        pattern = () if self.pattern is None else (f"topics like {self.pattern}",)
        return ", ".join((*self.topics, *pattern))

    @property
    def topic_width(self) -> int:
        """Of a column that names the topic; 0 where there is one only."""
        if self.pattern is not None:
            return max(_PATTERN_TOPIC_WIDTH, *map(len, self.topics), 0)
        return max(map(len, self.topics)) if len(self.topics) > 1 else 0

    def check(self) -> None:
        """Raises click.UsageError where they do not fit together."""
        if not self.topics and self.pattern is None:
            raise click.UsageError("Missing argument 'TOPIC...': name topics, or --pattern with --group.")
        if self.group is None:
            self._check_without_group()
        elif self.partition is not None:
            raise click.UsageError("--partition and --group exclude each other: who reads which is the group's to say.")
        if self.partition is not None and len(self.topics) > 1:
            raise click.UsageError("--partition is of one topic: read one at a time, or leave it out.")

    def _check_without_group(self) -> None:
        for option, value in (("--pattern", self.pattern), ("--instance-id", self.instance_id)):
            if value is not None:
                raise click.UsageError(f"{option} {value} is for members of a group: add --group, or leave it out.")


def parse_pattern(text: str) -> str:
    """Raises click.BadParameter, which says where in the pattern."""
    if not text:
        raise click.BadParameter("it is empty: give for example 'orders-.*'.")
    try:
        topic_pattern(text)
    except InvalidRequestError as error:
        raise click.BadParameter(f"{error.message}.") from None
    return text


def parse_instance_id(text: str) -> str:
    """Raises click.BadParameter."""
    if not 1 <= len(text) <= INSTANCE_ID_LENGTH_MAX:
        raise click.BadParameter(
            f"it has {len(text)} characters: give 1 to {INSTANCE_ID_LENGTH_MAX}, for example the name of the Pod."
        )
    return text
