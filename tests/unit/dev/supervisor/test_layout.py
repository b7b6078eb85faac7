"""Logs are kept over restarts, and bounded."""

from pathlib import Path

from headrace.dev.supervisor.layout import DEV_LOG_BYTES_MAX, last_lines, open_log


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


def test_should_keep_a_log_to_its_user_also_one_that_was_not(tmp_path: Path) -> None:
    old = tmp_path / "old.log"
    old.write_text("before\n")
    old.chmod(0o644)
    for path in (old, tmp_path / "logs" / "new.log"):
        open_log(path).close()
        assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700
    assert old.read_text() == "before\n"
