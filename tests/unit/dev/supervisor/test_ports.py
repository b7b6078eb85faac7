"""Free ports are found, taken ones are noticed."""

import random
import socket

from headrace.dev.supervisor.layout import LOOPBACK, free_port_run, is_port_free


def test_should_find_ports_in_a_row_that_can_be_listened_on() -> None:
    first = free_port_run(3, random.Random(1))
    assert all(is_port_free(port) for port in range(first, first + 3))


def test_should_notice_a_port_that_another_program_listens_on() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        assert not is_port_free(server.getsockname()[1])
