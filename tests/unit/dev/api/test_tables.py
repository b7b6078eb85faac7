"""Ages and cells."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.dev.api.tables import find_by_path, human_duration, path_column

_NOW = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("elapsed", "said"),
    [
        ({"seconds": -5}, "<invalid>"),
        ({"seconds": -1}, "0s"),
        ({"seconds": 0}, "0s"),
        ({"seconds": 119}, "119s"),
        ({"seconds": 120}, "2m"),
        ({"seconds": 200}, "3m20s"),
        ({"minutes": 10, "seconds": 5}, "10m"),
        ({"minutes": 179}, "179m"),
        ({"hours": 3}, "3h"),
        ({"hours": 5, "minutes": 7}, "5h7m"),
        ({"hours": 47}, "47h"),
        ({"hours": 48}, "2d"),
        ({"days": 3, "hours": 4}, "3d4h"),
        ({"days": 8, "hours": 4}, "8d"),
        ({"days": 729}, "729d"),
        ({"days": 730}, "2y"),
        ({"days": 830}, "2y100d"),
        ({"days": 365 * 9}, "9y"),
    ],
)
def test_should_abbreviate_as_kubernetes_does(elapsed: dict[str, int], said: str) -> None:
    assert human_duration(timedelta(**elapsed)) == said


@pytest.mark.parametrize(
    ("type_", "value", "cell"),
    [
        ("integer", 5, 5),
        ("integer", "5", None),
        ("integer", True, None),
        ("number", 1.5, 1.5),
        ("number", "x", None),
        ("boolean", True, True),
        ("boolean", 1, None),
        ("string", "x", "x"),
        ("string", 5, "5"),
        ("string", None, None),
        ("date", "2026-11-21T08:59:00Z", "60s"),
        ("date", "2026-11-21T08:59:00", "60s"),
        ("date", "yesterday", "<invalid>"),
        ("date", None, "<unknown>"),
    ],
)
def test_should_show_a_value_as_its_column_says(type_: str, value: Any, cell: Any) -> None:
    assert path_column("X", type_, ".a").cell({"a": value} if value is not None else {}, _NOW) == cell


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", 1),
        (".l[1].k", "y"),
        ('.l[?(@.k=="y")].v', 2),
        (".l[?(@.k=='z')].v", None),
        (".l[*].v", 1),
        (".a['b']", 1),
        (".m.x\\.y", 3),
        (".a.b.c", None),
        (".l[9]", None),
    ],
)
def test_should_find_what_a_path_leads_to(path: str, found: Any) -> None:
    obj = {"a": {"b": 1}, "l": [{"k": "x", "v": 1}, {"k": "y", "v": 2}], "m": {"x.y": 3}}
    assert find_by_path(obj, path) == found


def test_should_refuse_a_path_of_another_form() -> None:
    with pytest.raises(ValueError, match="is not a JSONPath that printer columns use"):
        find_by_path({}, ".a[1:2]")
