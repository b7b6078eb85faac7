"""Which lines of a log a reader is shown, and where its last ones begin."""

import io
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dev.api.logs import (
    DEV_LOG_LINE_BYTES_MAX,
    LogOptions,
    Shown,
    Tail,
    check_container,
    read_log_options,
    start_of_last,
)
from headrace.dev.api.status import StatusError

_NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)


def _line(moment: datetime, text: str) -> bytes:
    return f"{moment.astimezone().strftime('%Y-%m-%d %H:%M:%S')},250 INFO {text}\n".encode()


_LINES = [
    b"no time at all\n",
    _line(_NOW - timedelta(minutes=5), "old"),
    _line(_NOW, "new"),
    b"  its traceback\n",
    b"2026-99-99 00:00:00,000 no time either\n",
]


def test_should_leave_out_what_is_older_and_keep_what_belongs_to_a_line() -> None:
    options = read_log_options({"sinceSeconds": "60"}, "p", _NOW)
    assert Shown(options).of(_LINES) == b"".join(_LINES[2:])
    options = read_log_options({"sinceTime": "2026-11-21T10:00:00+01:00"}, "p", _NOW)
    assert Shown(options).of(_LINES) == b"".join(_LINES[2:])
    for_ever = read_log_options({"sinceSeconds": "9" * 18}, "p", _NOW)
    assert Shown(for_ever).of(_LINES) == b"".join(_LINES)


def test_should_put_the_time_of_a_line_before_it() -> None:
    shown = Shown(LogOptions(timestamps=True)).of(_LINES).splitlines()
    assert shown[0] == b"no time at all"
    assert shown[2].startswith(b"2026-11-21T09:00:00.250000Z 2026-11-21 ")
    assert shown[3] == b"2026-11-21T09:00:00.250000Z   its traceback"


def test_should_end_where_the_reader_wants_no_more_bytes() -> None:
    shown = Shown(read_log_options({"limitBytes": "5"}, "p", _NOW))
    assert (shown.of([b"abc\n"]), shown.is_full) == (b"abc\n", False)
    assert (shown.of([b"def\n"]), shown.is_full) == (b"d", True)


def test_should_read_what_kubectl_sends() -> None:
    query = {"container": "broker", "follow": "true", "tailLines": "3", "timestamps": "false", "previous": ""}
    assert read_log_options(query, "p", _NOW) == LogOptions("broker", follow=True, previous=True, tail_lines=3)
    with pytest.raises(StatusError, match='parsing time "yesterday"'):
        read_log_options({"sinceTime": "yesterday"}, "p", _NOW)
    with pytest.raises(StatusError, match="stream: Forbidden: may not be specified"):
        read_log_options({"stream": "Stdout"}, "p", _NOW)


def test_should_say_which_container_it_cannot_show() -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
    check_container(pod, LogOptions(container="b"))
    with pytest.raises(StatusError, match=r"must be specified for pod p, choose one of: \[a b\]"):
        check_container(pod, LogOptions())
    with pytest.raises(StatusError, match='previous terminated container "b" in pod "p" not found'):
        check_container(pod, LogOptions(container="b", previous=True))


@given(st.lists(st.tuples(st.integers(0, 40_000), st.sampled_from([b"\n", b"\n\n", b""])), max_size=8))
def test_should_find_the_last_lines_of_any_file(lengths_and_ends: list[tuple[int, bytes]]) -> None:
    content = b"".join(b"x" * length + end for length, end in lengths_and_ends) + b"\n" * (len(lengths_and_ends) % 2)
    *ended, rest = content.split(b"\n")
    lines = [*(line + b"\n" for line in ended), *([rest] if rest else [])]
    for count in range(10):
        assert start_of_last(io.BytesIO(content), count) == len(b"".join(lines[: max(0, len(lines) - count)]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "broker-0.log"


def _told(pieces: Iterator[list[bytes]]) -> bytes:
    return b"".join(line for lines in pieces for line in lines)


def test_should_go_on_in_the_next_file_when_the_log_is_rolled(path: Path) -> None:
    tail = Tail(path, 1)
    assert _told(tail.new_lines()) == b""
    path.write_bytes(b"one\ntw")
    assert _told(tail.new_lines()) == b"one\n"
    with path.open("ab") as writer:
        writer.write(b"o\nthr")
    assert _told(tail.new_lines()) == b"two\n"
    os.replace(path, path.with_suffix(".1"))
    assert _told(tail.new_lines()) == b""
    path.write_bytes(b"four\nfi")
    assert _told(tail.new_lines()) == b"thr" + b"four\n"
    path.write_bytes(b"x\n")
    assert _told(tail.new_lines()) == b"fi" + b"x\n"
    assert tail.take_rest() == b""
    tail.close()


def test_should_show_an_endless_line_in_parts(path: Path) -> None:
    path.write_bytes(b"x" * (3 * DEV_LOG_LINE_BYTES_MAX))
    tail = Tail(path, None)
    pieces = [line for lines in tail.new_lines() for line in lines]
    assert len(pieces) >= 2
    assert sum(map(len, pieces)) + len(tail.take_rest()) == 3 * DEV_LOG_LINE_BYTES_MAX
    tail.close()
