"""The start and the stop of a supervisor from outside, for `headrace dev --detach` and `headrace dev stop`.

The packages that `headrace dev` needs are searched for before anything else, so that the answer is a sentence. The
starter waits at a pipe for one JSON line, `{"ready": <state>}` or `{"error": <sentence>}`; what the supervisor says
later goes to `logs/dev.log` in the data directory. A stop waits until the supervisor is gone, and its successor too.
Called by the command line.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headrace.dev.supervisor.errors import MissingExtraError, StartFailedError
from headrace.dev.supervisor.layout import SupervisorOptions, last_lines, lock_file, open_log, state_file
from headrace.dev.supervisor.state import DevState, lock_holder
from headrace.dev.supervisor.workload import STOP_GRACE_S

LOCAL_EXTRA_MODULES = ("aiohttp", "cel", "jsonpatch", "kopf", "kubernetes", "prometheus_client")
_LOG_LINES = 15
_PATIENCE_S = STOP_GRACE_S + 30.0
"""The time limit for the supervisor, longer than its own for its children."""
_SUCCESSION_S = 5.0
"""The time that a successor may take to be there."""
_POLL_S = 0.02


def require_local_extra(modules: tuple[str, ...] = LOCAL_EXTRA_MODULES) -> None:
    """Raise MissingExtraError with the pip command."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"headrace dev needs packages that are not installed ({', '.join(missing)});"
            " install them with: pip install 'headrace[local]'",
            packages=missing,
        )


def start_detached(options: SupervisorOptions) -> DevState:
    """Start a supervisor that outlives this process, and return when everything is ready.

    Raises StartFailedError with the supervisor's message. Ctrl-C while it waits stops the supervisor too.
    """
    log = options.layout.log("dev")
    reading, writing = os.pipe()
    with open_log(log) as output, os.fdopen(reading) as answers:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.dev.supervisor", options.to_json(), str(writing)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(writing,),
        )
        os.close(writing)
        try:
            answer = answers.readline()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise
    told: dict[str, Any] = json.loads(answer) if answer else {}
    if "ready" in told:
        return DevState.parse(told["ready"])
    process.wait()
    raise StartFailedError(
        told.get("error")
        or f"headrace dev died while it started; its log, {log}, ends with:\n{last_lines(log, _LOG_LINES)}"
    )


def stop_supervisor(home: Path) -> bool:
    """Stop the supervisor, and return whether there was one. SIGTERM, and SIGKILL (which its children do not survive)
    when that does not help."""
    pid = lock_holder(lock_file(home))
    if pid is None and state_file(home).exists():
        pid = _successor(lock_file(home))
    if pid is None:
        return False
    while pid is not None:
        pid = _end(pid, lock_file(home))
    return True


def _successor(lock: Path) -> int | None:
    """Return the successor of a supervisor that was killed just now: it would otherwise come back after the stop."""
    deadline = time.monotonic() + _SUCCESSION_S
    while (pid := lock_holder(lock)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return pid


def _end(pid: int, lock: Path) -> int | None:
    """Stop this supervisor; return the pid of one that has taken over from it, where it had to be killed."""
    _signal(pid, signal.SIGTERM)
    deadline, successor_by = time.monotonic() + _PATIENCE_S, 0.0
    while (now := lock_holder(lock)) == pid or time.monotonic() < successor_by:
        if now not in (None, pid):
            return now
        if now == pid and time.monotonic() > deadline:
            _signal(pid, signal.SIGKILL)
            successor_by = time.monotonic() + _SUCCESSION_S
        time.sleep(_POLL_S)
    return None


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
