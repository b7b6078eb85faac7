"""Options cross to the detached process unchanged."""

from pathlib import Path

from headrace.dev.supervisor.layout import PORTS_TAKEN, Layout
from headrace.dev.supervisor.options import Options


def test_should_come_back_from_json_as_they_were() -> None:
    options = Options(Path("/home"), Layout(Path("/data"), 9700), None, (Path("/a.yaml"), Path("/b.yaml")))
    assert Options.from_json(options.to_json()) == options


def test_should_keep_every_port_within_the_run_that_is_searched_for() -> None:
    layout = Layout(Path("/data"), 9700)
    assert layout.operator_port == layout.port + PORTS_TAKEN - 1
