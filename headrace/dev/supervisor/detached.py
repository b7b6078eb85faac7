"""`headrace dev --detach`: a supervisor in a session of its own, and how its starter learns that all is ready.

The starter waits at a pipe for one JSON line, `{"ready": <state>}` or `{"error": <sentence>}`. What the supervisor says
later goes to `logs/dev.log` in the data directory.
"""

import json
import os
import subprocess
import sys
from typing import Any

from headrace.dev.supervisor.errors import StartFailedError
from headrace.dev.supervisor.log_file import last_lines, open_log
from headrace.dev.supervisor.options import Options
from headrace.dev.supervisor.state import DevState

_LOG_LINES = 15


def start_detached(options: Options) -> DevState:
    """Start a supervisor that outlives this process; returns when everything is ready.

    Raises StartFailedError with what the supervisor said. Ctrl-C while it waits stops the supervisor too.
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
