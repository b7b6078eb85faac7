"""Logs are kept over restarts, and bounded."""

from pathlib import Path

from headrace.core.limits import DEV_LOG_BYTES_MAX
from headrace.dev.supervisor.log_file import last_lines, open_log


def test_should_append_to_what_an_earlier_life_wrote(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "api.log"
    for line in (b"first\n", b"second\n"):
        with open_log(path) as log:
            log.write(line)
    assert last_lines(path, 5) == "first\nsecond"
    assert last_lines(path, 1) == "second"


def test_should_move_a_large_log_aside(tmp_path: Path) -> None:
    path = tmp_path / "api.log"
    with path.open("wb") as log:
        log.truncate(DEV_LOG_BYTES_MAX + 1)
    open_log(path).close()
    assert path.stat().st_size == 0
    assert (tmp_path / "api.log.1").stat().st_size == DEV_LOG_BYTES_MAX + 1


def test_should_have_no_last_lines_where_there_is_no_log(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "none.log", 3) == ""
