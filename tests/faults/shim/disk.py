"""The controls of one faulty disk: which calls fail, wait or find no room, and when the power goes.

Writes what `faulty_disk.c` reads: one page of shared memory, so that each word counts from the next call on, in every
process that has the library loaded. At most `RULES_MAX` faults at a time; where several fit a call, the first that says
an error decides, and all before it have had their delay.
"""

import errno
import mmap
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.faults.preloaded import preloaded
from tests.faults.shim.power_failure import Lost, lose_power

_SOURCE: Final = Path(__file__).with_name("faulty_disk.c")
WRITE, READ, SYNC, OPEN, TRUNCATE, RENAME, UNLINK, MKDIR, OPEN_TO_WRITE = (1 << bit for bit in range(9))
"""Kinds of calls, to be added up. SYNC is fsync and fdatasync, of directories too; WRITE also is posix_fallocate."""
RULES_MAX: Final = 7
_CHANGES: Final = WRITE | SYNC | TRUNCATE | RENAME | UNLINK | MKDIR | OPEN_TO_WRITE
_FOR_EVER: Final = 1 << 62
_MAGIC: Final = 0x3168736964796166
_HEAD: Final = struct.Struct("<Qqi44x")
_RULE: Final = struct.Struct("<iIiiqqqi4x80s")
_HITS: Final = struct.Struct("<q")
_HITS_AT: Final = struct.calcsize("<iIiiqq")


class Fault:
    """One rule, in force until `stop`."""

    def __init__(self, control: mmap.mmap, at: int) -> None:
        self._control = control
        self._at = at

    @property
    def hits(self) -> int:
        """How many calls it has met."""
        return int(_HITS.unpack_from(self._control, self._at + _HITS_AT)[0])

    def stop(self) -> None:
        struct.pack_into("<i", self._control, self._at, 0)


class FaultyDisk:
    """Everything below `root`, for processes that are started with `environment()`."""

    def __init__(self, root: Path, *, journalling: bool = True) -> None:
        self.root = root.absolute()
        self._place = control_directory(self.root)
        (self._place / "graves").mkdir(parents=True, exist_ok=True)
        with open(self._place / "control", "wb+") as file:
            file.truncate(_HEAD.size + RULES_MAX * _RULE.size)
            self._control = mmap.mmap(file.fileno(), 0)
        _HEAD.pack_into(self._control, 0, _MAGIC, -1, journalling)

    def environment(self) -> dict[str, str]:
        """What a process must find beside its own: it and its children see this disk."""
        return {
            "LD_PRELOAD": str(preloaded(_SOURCE)),
            "HEADRACE_FAULTY_ROOT": str(self.root),
            "HEADRACE_FAULTY_CONTROL": str(self._place),
        }

    def fail(
        self, calls: int, error: int, *, path: str = "", after: int = 0, times: int = _FOR_EVER, torn: bool = False
    ) -> Fault:
        """`calls` of files whose path below the root contains `path` fail with `error`.

        `after` so many that go well, `times` times; `torn` writes leave their first half in the file.
        """
        return self._rule(calls, error, 0, path, (after, times, torn))

    @contextmanager
    def failing(self, calls: int, error: int, *, path: str = "") -> Iterator[Fault]:
        fault = self.fail(calls, error, path=path)
        try:
            yield fault
        finally:
            fault.stop()

    def slow(self, calls: int, delay_ms: int, *, path: str = "", times: int = _FOR_EVER) -> Fault:
        """They take so much longer, and go well."""
        return self._rule(calls, 0, delay_ms, path, (0, times, False))

    def read_only(self) -> Fault:
        """As the kernel remounts a volume with errors."""
        return self.fail(_CHANGES, errno.EROFS)

    def room(self, size: int | None) -> None:
        """There is room for so many more bytes, then ENOSPC; what is deleted or cut off makes room. None: no limit."""
        struct.pack_into("<q", self._control, 8, -1 if size is None else size)

    def heal(self) -> None:
        """No call fails or waits, and there is room."""
        for index in range(RULES_MAX):
            Fault(self._control, _HEAD.size + index * _RULE.size).stop()
        self.room(None)

    def lose_power(self, seed: int | None = None) -> Lost:
        """Every process that used the disk is dead: what was not synced is gone, and the kernel is another one.

        Without a seed all of it; with one, of each file and directory some part that did reach the disk.
        """
        return lose_power(self.root, seed)

    def close(self) -> None:
        self._control.close()
        shutil.rmtree(self._place, ignore_errors=True)

    def _rule(self, calls: int, error: int, delay_ms: int, path: str, when: tuple[int, int, bool]) -> Fault:
        for index in range(RULES_MAX):
            at = _HEAD.size + index * _RULE.size
            if not struct.unpack_from("<i", self._control, at)[0]:
                # Its first word makes it hold: that goes last.
                after, times, torn = when
                _RULE.pack_into(self._control, at, 0, calls, error, delay_ms, after, times, 0, torn, path.encode())
                struct.pack_into("<i", self._control, at, 1)
                return Fault(self._control, at)
        raise AssertionError(f"there are {RULES_MAX} faults already")


def control_directory(root: Path) -> Path:
    """On the same file system, and not in the way of whoever looks into the data directory."""
    return root.with_name(f"{root.name}.faulty")
