"""A program that tells what it finds when it starts, for tests that start it in several ways. Its main is `main`.

python -m tests.support.forked_world ACTION     ACTION is what it does then: end, fail, wait, or exit with a number
"""

import gc
import json
import os
import random
import signal
import ssl
import sys
import threading
import uuid
from pathlib import Path
from typing import Any


def main() -> None:
    """Print the world as a line of JSON."""
    sys.stdout.write(json.dumps(world()) + "\n")
    sys.stdout.flush()
    action = sys.argv[1]
    if action == "fail":
        raise ValueError("as it was told")
    if action == "wait":
        while True:
            signal.pause()
    if action.isdecimal():
        sys.exit(int(action))


def world() -> dict[str, Any]:
    return {"same": _same(), "drawn": _drawn(), "pid": os.getpid(), "parent": os.getppid()}


def _same() -> dict[str, Any]:
    """The part that must not depend on how it was started."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "arguments": sys.argv,
        "main": sys.modules["__main__"].__file__,
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "umask": status["Umask"],
        "descriptors": {name: os.readlink(path) for name, path in _descriptors().items()},
        "buffering": [(stream.line_buffering, stream.encoding, stream.errors) for stream in (sys.stdout, sys.stderr)],
        "signals": [status[name] for name in ("SigBlk", "SigIgn", "SigCgt")],
        "handlers": [str(signal.getsignal(number)).split(" at ")[0] for number in (signal.SIGINT, signal.SIGTERM)],
        "leads_its_session": os.getsid(0) == os.getpid(),
        "threads": [status["Threads"], threading.active_count()],
        "collects": gc.isenabled(),
        "command": Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode().split("\0"),
    }


def _descriptors() -> dict[str, str]:
    """The paths of those that are open, without the one by which they are listed."""
    paths = {name: f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")}
    return {name: path for name, path in paths.items() if os.path.lexists(path)}


def _drawn() -> dict[str, Any]:
    """A number from every source of chance that there is."""
    return {
        "random": random.random(),
        "another": random.Random().random(),
        "system": os.urandom(8).hex(),
        "uuid": str(uuid.uuid4()),
        "ssl": ssl.RAND_bytes(8).hex(),
    }


if __name__ == "__main__":
    main()
