"""The options of a broker: what goes together, and the sentence for what does not."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace_broker.main import main
from tests.support.certificates import Authority
from tests.support.kubeconfig import write_kubeconfig

REQUIRED = ["--id", "0", "--data", "data"]
BOTH = ["--tls-cert-file", "a.crt", "--tls-key-file", "a.key"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (BOTH[:2], "--tls-cert-file alone is not enough for TLS: give both --tls-cert-file and --tls-key-file"),
        (BOTH[2:], "--tls-key-file alone is not enough for TLS: give both --tls-cert-file and --tls-key-file"),
        (["--tls-ca-file", "ca.crt"], "--tls-ca-file alone is not enough for TLS"),
        ([*BOTH, "--tls-secret", "tls"], "--tls-secret stands for all of --tls-cert-file, --tls-key-file and"),
        ([*BOTH, "--advertised-url", "http://a:9701"], "--advertised-url must begin with https://"),
        (["--disk-quota", "100GB"], "Invalid value for '--disk-quota': '100GB' is not a quantity of bytes: write a"),
        (["--disk-reserve", "5%"], "Invalid value for '--disk-reserve': '5%' is not a quantity of bytes"),
        (["--housekeeping-interval", "60"], "Invalid value for '--housekeeping-interval': '60' is not a duration"),
        (["--housekeeping-interval", "0s"], "'--housekeeping-interval': '0s' is too little for a broker: give 10ms or"),
        (["--catch-up-rate", "1Ki"], "'--catch-up-rate': '1Ki' is too little for a broker: give 64Ki or more"),
        (["--disk-quota", "0"], "Invalid value for '--disk-quota': '0' is too little for a broker: give 4Mi or more"),
        (["--memory", "1"], "Invalid value for '--memory': '1' is too little for a broker: give 176Mi or more"),
    ],
)
def test_should_refuse_options_that_do_not_go_together(options: list[str], sentence: str) -> None:
    result = CliRunner().invoke(main, [*REQUIRED, *options])
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.split())


def test_should_end_with_a_sentence_when_the_certificate_cannot_be_used(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    secret = Authority().secret() | {"tls.key": b"nonsense"}
    for name, content in secret.items():
        (tmp_path / name).write_bytes(content)
    where = ["--id", "0", "--data", str(tmp_path / "data"), "--kubeconfig", str(kubeconfig)]
    files = ["--tls-cert-file", str(tmp_path / "tls.crt"), "--tls-key-file", str(tmp_path / "tls.key")]
    result = CliRunner().invoke(main, [*where, *files])
    assert result.exit_code == 1
    assert f"headrace-broker: key file {tmp_path}/tls.key holds no private key that can be read" in result.output
    (tmp_path / "tls.crt").write_bytes(bytes(2 << 20))
    assert CliRunner().invoke(main, [*where, *files]).output.endswith("tls.crt cannot be read: File too large\n")
    (tmp_path / "tls.crt").unlink()
    result = CliRunner().invoke(main, [*where, *files])
    assert result.exit_code == 1
    assert result.output.endswith(f"headrace-broker: {tmp_path}/tls.crt cannot be read: No such file or directory\n")
