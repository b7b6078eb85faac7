"""A disk under real processes that fails, waits, fills and loses its power as a test says.

    disk = FaultyDisk(data)                                # `data`: the broker's data directory, which need not exist
    start("broker", env={**os.environ, **disk.environment()})

    with disk.failing(SYNC, errno.EIO, path=".log"):       # each fdatasync of a segment fails, during this block
        ...
    disk.fail(WRITE, errno.EIO, after=100, times=1)        # one write fails, the hundred before it do not
    disk.slow(SYNC, 400)                                   # each sync takes 400 ms longer
    disk.room(1 << 20)                                     # ENOSPC after so many more bytes; `disk.room(None)`: endless
    disk.read_only()                                       # as after a remount
    disk.heal()                                            # all of these are over

    os.kill(pid, SIGKILL)                                  # and wait until it is gone, its children too
    disk.lose_power(seed=7)                                # what was not synced is gone, in part or as a whole

Several brokers have a FaultyDisk each. Where a test needs no power failure, `FaultyDisk(data, journalling=False)` is
quicker. `disk.close()` removes what lies beside the data directory.

`disk` is the controls, `faulty_disk.c` the library that processes load, `power_failure` the tool that takes back what
was not on disk; `python -m tests.faults.shim.power_failure DATA` does so by hand.
"""

from tests.faults.shim.disk import (
    MKDIR,
    OPEN,
    OPEN_TO_WRITE,
    READ,
    RENAME,
    SYNC,
    TRUNCATE,
    UNLINK,
    WRITE,
    FaultyDisk,
)

__all__ = ["MKDIR", "OPEN", "OPEN_TO_WRITE", "READ", "RENAME", "SYNC", "TRUNCATE", "UNLINK", "WRITE", "FaultyDisk"]
