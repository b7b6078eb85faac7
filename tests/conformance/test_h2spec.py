"""h2spec, all of it, the strict cases included (https://github.com/summerwind/h2spec)."""

import re
import subprocess

from e2e.lab.home import lab_home
from tests.conformance.conftest import Served
from tests.support.patience import patient
from tests.support.tools import require_tool

HEADER_BYTES = "14000"
"""Of h2spec's long header fields. Its case for heads over SETTINGS_MAX_FRAME_SIZE supposes the smallest such setting
and sends five of them: with ours, a mebibyte, they must at least be over the limit of a head. All others send one."""
PATIENCE_S = "20"
"""For each answer, on a machine that does other things too."""


def test_should_pass_h2spec_in_full(served: Served) -> None:
    h2spec = require_tool("h2spec", lab_home() / "bin" / "h2spec")
    command = [
        h2spec,
        "--strict",
        "--port",
        served.port,
        "--path",
        "/openapi.json",
        "--max-header-length",
        HEADER_BYTES,
        "--timeout",
        PATIENCE_S,
    ]
    if served.is_tls:
        command += ["--tls", "--insecure"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=patient(100), check=False)

    counts = re.search(r"(\d+) tests, (\d+) passed, 0 skipped, 0 failed", result.stdout)
    assert counts is not None, result.stdout[result.stdout.find("Failures:") :] + result.stderr
    assert counts[1] == counts[2]
    assert int(counts[1]) >= 146
    assert result.returncode == 0
