"""Logs are kept over restarts, and bounded.

Options cross to the detached process unchanged.

Free ports are found, taken ones are noticed.
"""

import random
import socket
from pathlib import Path

import pytest

from headrace.dev.supervisor.layout import (
    DEV_LOG_BYTES_MAX,
    LOOPBACK,
    PORTS_TAKEN,
    BrokerTls,
    Layout,
    SupervisorOptions,
    free_port_run,
    is_port_free,
    last_lines,
    open_log,
)


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


@pytest.mark.parametrize(
    "tls", [None, BrokerTls(Path("/crt"), Path("/key")), BrokerTls(Path("/crt"), Path("/key"), Path("/ca"))]
)
def test_should_come_back_from_json_as_they_were(tls: BrokerTls | None) -> None:
    options = SupervisorOptions(
        Path("/home"), Layout(Path("/data"), 9700, tls), None, (Path("/a.yaml"), Path("/b.yaml"))
    )
    assert SupervisorOptions.from_json(options.to_json()) == options


def test_should_keep_every_port_within_the_run_that_is_searched_for() -> None:
    layout = Layout(Path("/data"), 9700)
    assert layout.operator_port == layout.port + PORTS_TAKEN - 1


def test_should_find_ports_in_a_row_that_can_be_listened_on() -> None:
    first = free_port_run(3, random.Random(1))
    assert all(is_port_free(port) for port in range(first, first + 3))


def test_should_notice_a_port_that_another_program_listens_on() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        assert not is_port_free(server.getsockname()[1])
