"""Durations and quantities as people write them: the units, and a sentence for what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.units import (
    BYTES,
    MILLISECONDS,
    format_bytes,
    parse_duration_ms,
    parse_limited_duration_ms,
    parse_limited_quantity_bytes,
    parse_quantity_bytes,
)


@given(count=st.integers(0, 10**9), unit=st.sampled_from(sorted(MILLISECONDS)))
def test_should_read_every_unit_of_time(count: int, unit: str) -> None:
    assert parse_duration_ms(f"{count}{unit}") == count * MILLISECONDS[unit]


@given(count=st.integers(0, 10**9), unit=st.sampled_from(sorted(BYTES)))
def test_should_read_every_unit_of_bytes(count: int, unit: str) -> None:
    assert parse_quantity_bytes(f"{count}{unit}") == count * BYTES[unit]


def test_should_know_how_long_and_how_many() -> None:
    assert parse_duration_ms("7d") == 7 * 24 * 3600 * 1000
    assert parse_quantity_bytes("256Mi") == 256 * 1024 * 1024
    assert parse_quantity_bytes("5G") == 5_000_000_000


@pytest.mark.parametrize("text", ["", "7", "d", "07d", "7 d", "7D", "-7d", "1.5h", "1h30m", "7d\n", "unlimited"])
def test_should_say_how_to_write_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write a whole number and one of ms, s, m, h, d"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["", "Mi", "01Mi", "1 Mi", "1MB", "-1", "1.5Gi", "1e3", "1Mi\n", "unlimited"])
def test_should_say_how_to_write_a_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity of bytes: write a whole number and one of k, M, G"):
        parse_quantity_bytes(text)


def test_should_take_unlimited_where_a_limit_is_optional() -> None:
    assert parse_limited_duration_ms("unlimited") is None
    assert parse_limited_duration_ms("1s") == 1000
    assert parse_limited_quantity_bytes("unlimited") is None
    assert parse_limited_quantity_bytes("1Ki") == 1024


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (-2048, "-2.0 KiB"),
        (256 << 20, "256.0 MiB"),
        (3 << 29, "1.5 GiB"),
        (1 << 40, "1.0 TiB"),
        (1 << 52, "4096.0 TiB"),
    ],
)
def test_should_write_bytes_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text
