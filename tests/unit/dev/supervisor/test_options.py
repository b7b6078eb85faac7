"""Options cross to the detached process unchanged."""

from pathlib import Path

import pytest

from headrace.dev.supervisor.layout import PORTS_TAKEN, BrokerTls, Layout, SupervisorOptions


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
