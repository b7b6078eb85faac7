"""`headrace dev --detach`: a supervisor in a session of its own, and how its starter learns that all is ready.

The starter waits at a pipe for one JSON line, `{"ready": <state>}` or `{"error": <sentence>}`. What the supervisor says
later goes to `logs/dev.log` in the data directory.
"""

import contextlib
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.dev.supervisor.errors import StartFailedError
from headrace.dev.supervisor.layout import Layout
from headrace.dev.supervisor.log_file import last_lines, open_log
from headrace.dev.supervisor.process import run
from headrace.dev.supervisor.state import DevState
from headrace.dev.supervisor.supervisor import Options

_LOG_LINES = 15


def start_detached(options: Options) -> DevState:
    """Start a supervisor that outlives this process; returns when everything is ready.

    Raises StartFailedError with what the supervisor said. Ctrl-C while it waits stops the supervisor too.
    """
    log = options.layout.log("dev")
    reading, writing = os.pipe()
    with open_log(log) as output, os.fdopen(reading) as answers:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, _to_json(options), str(writing)],
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


def _main(arguments: str, writing: int) -> int:
    with os.fdopen(writing, "w") as answers:

        def tell(answer: dict[str, Any]) -> None:
            # The starter may be gone by now: that must not take the supervisor with it.
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(answer), file=answers, flush=True)

        try:
            run(_from_json(arguments), lambda state: tell({"ready": state.to_json()}), logging.StreamHandler())
        except HeadraceError as error:
            tell({"error": str(error)})
            return 1
    return 0


def _to_json(options: Options) -> str:
    return json.dumps(
        {
            "home": str(options.home),
            "data": str(options.layout.data),
            "port": options.layout.port,
            "brokers": options.brokers,
            "manifests": [str(path) for path in options.manifests],
        }
    )


def _from_json(text: str) -> Options:
    raw = json.loads(text)
    return Options(
        home=Path(raw["home"]),
        layout=Layout(Path(raw["data"]), raw["port"]),
        brokers=raw["brokers"],
        manifests=tuple(Path(path) for path in raw["manifests"]),
    )


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], int(sys.argv[2])))
