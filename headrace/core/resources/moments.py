"""Points in time as resources spell them (RFC 3339), in milliseconds since 1970."""

from datetime import UTC, datetime


def parse_moment_ms(text: str) -> int:
    """`"2026-12-01T00:00:00Z"` -> 1796083200000. Raises ValueError with the accepted form."""
    try:
        moment = datetime.fromisoformat(text.upper())  # the API server takes "z" as well
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{text!r} is no point in time: write one as RFC 3339 does, for example 2026-12-01T00:00:00Z")
    return round(moment.timestamp() * 1000)


def format_moment(time_ms: int) -> str:
    """In whole seconds, as `metav1.Time`."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
