"""Durations and byte quantities as people write them in resources and on command lines: `7d`, `256Mi`, `unlimited`.

The spellings are those that the CRDs' patterns accept (`crds/`): whole numbers, one unit, no sum of units.
"""

import re

MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
BYTES = {
    "": 1,
    "k": 1000,
    "M": 1000**2,
    "G": 1000**3,
    "T": 1000**4,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
}
_DURATION = re.compile(r"(0|[1-9][0-9]*)(ms|s|m|h|d)")
_QUANTITY = re.compile(r"(0|[1-9][0-9]*)(k|M|G|T|Ki|Mi|Gi|Ti)?")
UNLIMITED = "unlimited"


def parse_duration_ms(text: str) -> int:
    """Parse a duration: `"7d"` -> 604800000. Raises ValueError with the accepted form."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write a whole number and one of ms, s, m, h, d, for example 7d")
    return int(match[1]) * MILLISECONDS[match[2]]


def parse_quantity_bytes(text: str) -> int:
    """Parse a quantity: `"256Mi"` -> 268435456. Raises ValueError with the accepted form."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a quantity of bytes: write a whole number and one of k, M, G, T, Ki, Mi, Gi, Ti or"
            " nothing, for example 256Mi"
        )
    return int(match[1]) * BYTES[match[2] or ""]


def parse_limited_duration_ms(text: str) -> int | None:
    """Parse like `parse_duration_ms`; None for `unlimited`."""
    return None if text == UNLIMITED else parse_duration_ms(text)


def parse_limited_quantity_bytes(text: str) -> int | None:
    """Parse like `parse_quantity_bytes`; None for `unlimited`."""
    return None if text == UNLIMITED else parse_quantity_bytes(text)


def format_duration_ms(duration_ms: int) -> str:
    """Return a duration, exact, in the largest unit that is: `604800000` -> `"7d"`, `90000` -> `"90s"`."""
    unit = next(unit for unit in reversed(MILLISECONDS) if duration_ms % MILLISECONDS[unit] == 0)
    return f"{duration_ms // MILLISECONDS[unit]}{unit}"


def format_bytes(count: float) -> str:
    """Return a size for people, not for resources: `268435456` -> `"256.0 MiB"`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
