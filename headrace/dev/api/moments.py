"""Moments in objects: Kubernetes reads each of its two types in exactly one form, and so do we. Pure."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from headrace.dev.api.objects import Object, micro_time
from headrace.dev.api.status import StatusError, bad_request

_FORM = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")


def check_micro_times(kind: str, holder: Object, names: Iterable[str]) -> None:
    """Bring the MicroTimes of `holder` to UTC. Raises StatusError 400 where one has no six digits of a second."""
    for name in names:
        if holder.get(name) is not None:
            holder[name] = _normalized(kind, holder[name])


def check_times(kind: str, holder: Object, names: Iterable[str]) -> None:
    """Raises StatusError 400 where a Time of `holder` is none."""
    for name in names:
        if holder.get(name) is not None and not is_date_time(holder[name]):
            raise bad_request(
                f'{kind} in version "v1" cannot be handled as a {kind}: parsing time "{holder[name]}" as '
                '"2006-01-02T15:04:05Z07:00": an RFC 3339 time is wanted, as in 2026-11-21T09:00:00Z'
            )


def is_date_time(text: object) -> bool:
    """RFC 3339: a date, a time, and where they hold."""
    try:
        return isinstance(text, str) and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _normalized(kind: str, text: object) -> str:
    if not isinstance(text, str) or not _FORM.fullmatch(text):
        raise _unreadable(kind, text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise _unreadable(kind, text) from error
    return micro_time(moment.astimezone(UTC))


def _unreadable(kind: str, text: object) -> StatusError:
    return bad_request(
        f'{kind} in version "v1" cannot be handled as a {kind}: parsing time "{text}" as '
        '"2006-01-02T15:04:05.000000Z07:00": microseconds are required, as in 2026-11-21T09:00:00.000000Z'
    )
