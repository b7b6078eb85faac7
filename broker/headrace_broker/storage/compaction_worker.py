"""The process that compacts for a broker: jobs come on standard input, what becomes of them is told on standard output.

Started by `compaction_process` when there is something to do, at a lower priority, so that produce and fetch come
first. Does one job at a time, no faster than `COMPACTION_BYTES_PER_SECOND`. Ends at once, in the middle of whatever it
does, when its input ends: then the broker is gone, and another one may be opening the same logs.
"""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from headrace.core.errors import CorruptBatchError, CorruptLogError, HeadraceError
from headrace.core.limits import COMPACTION_BYTES_PER_SECOND
from headrace_broker.storage.compaction_job import GO_ON, Failed, Job, Told, Why, format_told
from headrace_broker.storage.compactor import compact

_NICENESS = 10
_ENDED_FIRST = "1000"


class Pace:
    """Waits as long as it takes to read no more than the limit allows."""

    def __init__(self, bytes_per_second: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._free_at_s = time.monotonic()

    def __call__(self, size: int) -> None:
        now_s = time.monotonic()
        time.sleep(max(0.0, self._free_at_s - now_s))
        self._free_at_s = max(now_s, self._free_at_s) + size / self._bytes_per_second


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker.
    os.nice(_NICENESS)
    with suppress(OSError):
        # Where memory runs out the kernel is to end this process, not the broker.
        Path("/proc/self/oom_score_adj").write_text(_ENDED_FIRST)
    lines = SimpleQueue[bytes]()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    pace = Pace(COMPACTION_BYTES_PER_SECOND)
    while True:
        _work(Job.parse(lines.get()), pace, lines)


def _read(lines: "SimpleQueue[bytes]") -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)


def _work(job: Job, pace: Pace, lines: "SimpleQueue[bytes]") -> None:
    try:
        for told in compact(job, pace):
            _tell(told)
            if lines.get() != GO_ON:
                return
    except MemoryError:
        _tell(Failed(Why.MEMORY, f"compacting {job.directory} takes more memory than there is"))
    except FileNotFoundError as error:
        _tell(Failed(Why.CHANGED, str(error)))
    except OSError as error:
        _tell(Failed(Why.DISK, f"compacting {job.directory} failed: {error.strerror}"))
    except (CorruptBatchError, CorruptLogError) as error:
        _tell(Failed(Why.DAMAGED, error.message))
    except HeadraceError as error:
        _tell(Failed(Why.DISK, error.message))


def _tell(told: Told) -> None:
    sys.stdout.buffer.write(format_told(told))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
