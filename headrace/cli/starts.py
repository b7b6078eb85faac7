"""`--from`: where reading begins, as people say it. Pure.

`earliest`, `latest`, an offset (`1200`), how long ago (`1h ago`, `30m ago`, `2d ago`), or a time (ISO 8601).
"""

from datetime import UTC, datetime, timedelta

import click

from headrace.core.units import MILLISECONDS, parse_duration_ms

_AGO = " ago"


def parse_start(text: str, now: datetime) -> str | int | datetime:
    """`text` as a Consumer's `start`. Raises click.BadParameter.

    A whole number is an offset whatever its size: what it means must not depend on that.
    """
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdecimal():
        return int(text)
    if text.endswith(_AGO):
        return _ago(text.removesuffix(_AGO).strip(), now)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither earliest, latest, an offset such as 1200, nor a time such as '1h ago' or"
            " 2026-11-20T12:00:00Z (without a zone: UTC)."
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _ago(text: str, now: datetime) -> datetime:
    try:
        return now - timedelta(milliseconds=parse_duration_ms(text))
    except ValueError:
        raise click.BadParameter(
            f"'{text} ago' is not how long ago: write a whole number and one of {', '.join(MILLISECONDS)}, for"
            " example '30m ago'."
        ) from None
    except OverflowError:
        raise click.BadParameter(f"'{text} ago' is before all time.") from None
