"""Compacts copies of a log, each in a process that kills itself before another step: `... DIRECTORY COPIES`.

A step is a call that opens, renames, removes or touches a file, as Python's audit hooks tell of them: what was asked
for before it has happened, and nothing after it does. COPIES/0 is the one that was killed before the first step, and so
on; the last one was not killed, because the pass has no more steps.
"""

import os
import shutil
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.compaction import compact_files, job

STEPS = frozenset({"open", "os.rename", "os.remove", "os.utime"})


def main() -> None:
    directory, copies = Path(sys.argv[1]), Path(sys.argv[2])
    with TemporaryDirectory() as folder:
        # What a pass loads when it first needs it is loaded now: a module's file that is opened is no step.
        compact_files(job(Path(shutil.copytree(directory, Path(folder) / "log"))))
    step = 0
    while was_killed(Path(shutil.copytree(directory, copies / str(step))), step):
        step += 1


def was_killed(copy: Path, step: int) -> bool:
    process = os.fork()
    if process == 0:
        compact_until(copy, step)
        os._exit(0)
    _, status = os.waitpid(process, 0)
    return os.WIFSIGNALED(status)


def compact_until(directory: Path, left: int) -> None:
    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in STEPS:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    asked = job(directory)
    sys.addaudithook(count)
    compact_files(asked)


if __name__ == "__main__":
    main()
