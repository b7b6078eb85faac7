"""`python -m headrace.dev.supervisor OPTIONS PIPE`: the supervisor that `launcher.start_detached` starts.

Without PIPE it is one that takes over: no process waits for it.
"""

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.dev.supervisor.layout import SupervisorOptions
from headrace.dev.supervisor.process import run
from headrace.dev.supervisor.successor import Successor

_log = logging.getLogger("headrace.dev")
Tell = Callable[[dict[str, Any]], None]


def main(arguments: str, writing: int | None) -> int:
    if writing is None:
        return _supervise(SupervisorOptions.from_json(arguments), _tell_nobody)
    with os.fdopen(writing, "w") as answers:

        def send(answer: dict[str, Any]) -> None:
            # The starter may be gone by now: that must not end the supervisor too.
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(answer), file=answers, flush=True)

        return _supervise(SupervisorOptions.from_json(arguments), send)


def _supervise(options: SupervisorOptions, send: Tell) -> int:
    command = (sys.executable, "-m", "headrace.dev.supervisor", options.of_successor().to_json())

    try:
        run(options, lambda state: send({"ready": state.to_json()}), Successor(command), logging.StreamHandler())
    except HeadraceError as error:
        send({"error": str(error)})
        return 1
    return 0


def _tell_nobody(answer: dict[str, Any]) -> None:
    if "error" in answer:
        _log.error("cannot take over: %s", answer["error"])
    else:
        _log.warning("all is ready again")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None))
