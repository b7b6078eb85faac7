"""Pages of documentation as programs: their `sh` and `python` blocks, in order, in one shell."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

from headrace.dev.supervisor.layout import PORTS_TAKEN, free_port_run
from tests.support.patience import patient
from tests.support.tools import kubectl_path

_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(text: str, title: str) -> str:
    """The section of a page under `title`, to the next heading that is not below it. Raises LookupError."""
    found = re.search(rf"^(#+) {re.escape(title)}\n.*?(?=^(?!\1#)#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise LookupError(f"there is no section {title!r}")
    return found[0]


def follow(text: str, directory: Path, home: Path, timeout_s: float = 170) -> subprocess.CompletedProcess[str]:
    """Run a page's text in `directory` as a newcomer would, with a `headrace dev` of its own, stopped at the end."""
    tools = os.pathsep.join([f"{sys.prefix}/bin", str(Path(kubectl_path()).parent), os.environ["PATH"]])
    environment = {**os.environ, "HEADRACE_HOME": str(home), "PATH": tools, "VENV": sys.prefix}
    script = _script(text, free_port_run(PORTS_TAKEN, random.Random()))
    try:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=patient(timeout_s),
            check=False,
        )
    finally:
        stop = [f"{sys.prefix}/bin/headrace", "dev", "stop"]
        subprocess.run(stop, env=environment, capture_output=True, timeout=patient(60), check=False)


def _script(text: str, base_port: int) -> str:
    """In the environment of this test, and on other ports than the fixed ones."""
    parts = []
    for language, block in _BLOCK.findall(text):
        moved = re.sub(r"\b970([0-3])\b", lambda port: str(base_port + int(port[1])), block)
        moved = moved.replace("headrace dev --detach", f"headrace dev --detach --port {base_port}")
        moved = moved.replace(". .venv/bin/activate", f". {sys.prefix}/bin/activate")
        parts.append(moved if language == "sh" else f"python - <<'PYTHON'\n{moved}PYTHON\n")
    return "\n".join(parts)
