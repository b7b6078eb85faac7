from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace_operator.main import main


def test_should_explain_its_options() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for option in ("--cluster", "--namespace", "--metrics-port", "--finalizer-wait", "--identity", "--tls-ca-file"):
        assert option in result.output
    assert "[default: (30s)]" in result.output


@pytest.mark.parametrize("wait", ["soon", "3x", "-1s"])
def test_should_refuse_a_wait_that_is_no_duration(wait: str) -> None:
    result = CliRunner().invoke(main, [f"--finalizer-wait={wait}"])
    assert result.exit_code == 2
    assert f"{wait!r} is not a duration" in result.output


def test_should_refuse_a_port_that_is_none() -> None:
    assert CliRunner().invoke(main, ["--metrics-port", "70000"]).exit_code == 2


def test_should_end_with_a_sentence_when_there_is_no_kubeconfig(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--kubeconfig", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert "nowhere: no such file; give --kubeconfig PATH" in str(result.exception or result.output)
