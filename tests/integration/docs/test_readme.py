"""The README's tour, run as a newcomer would: every `sh` and `python` block, in order, in one shell."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.dev.supervisor.layout import PORTS_TAKEN
from headrace.dev.supervisor.ports import free_run
from tests.support.tools import kubectl_path

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def tour(base_port: int) -> str:
    """The blocks as one shell script, in the environment of this test and on other ports than the fixed ones."""
    parts = []
    for language, text in BLOCK.findall((ROOT / "README.md").read_text()):
        moved = re.sub(r"\b970([0-3])\b", lambda port: str(base_port + int(port[1])), text)
        moved = moved.replace("headrace dev --detach", f"headrace dev --detach --port {base_port}")
        moved = moved.replace(". .venv/bin/activate", f". {sys.prefix}/bin/activate")
        parts.append(moved if language == "sh" else f"python - <<'PYTHON'\n{moved}PYTHON\n")
    return "\n".join(parts)


@pytest.mark.timeout(180)
def test_should_work_when_the_readme_is_followed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    tools = os.pathsep.join([str(Path(kubectl_path()).parent), os.environ["PATH"]])
    environment = {**os.environ, "HEADRACE_HOME": str(home), "PATH": tools, "VENV": sys.prefix}
    script = tour(free_run(PORTS_TAKEN, random.Random()))
    try:
        run = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )
    finally:
        stop = [f"{sys.prefix}/bin/headrace", "dev", "stop"]
        subprocess.run(stop, env=environment, capture_output=True, timeout=60, check=False)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    for expected in ("orders created", "condition met", "scones", "third", "written at", "100008 records"):
        assert expected in run.stdout, f"{expected!r} is not in:\n{run.stdout}\n{run.stderr}"
