"""What this broker was seen to give away, on its disk: `giving-away`, one file for all partitions.

Owned by a `DataDirectory`, for as long as that is open. A file that is missing says that there is nothing; one that is
damaged is told of and says no more: then what has moved elsewhere meanwhile is kept, and nothing else is lost.
"""

import logging
from pathlib import Path

from headrace.core.log.checkpoints import DamagedFileError
from headrace.core.replication.residency import GIVING_AWAY_FILE, RemovalNotes, format_giving_away, parse_giving_away
from headrace_broker.storage.disk import storage_errors, write_atomically

_log = logging.getLogger(__name__)


class GivingAway:
    def __init__(self, root: Path) -> None:
        """Blocks. Raises OSError."""
        self._path = root / GIVING_AWAY_FILE
        self.notes: RemovalNotes = {}
        """As they are on disk as well, unless `is_behind`."""
        self.is_behind = False
        try:
            self.notes = parse_giving_away(self._path.read_bytes())
        except FileNotFoundError:
            pass
        except DamagedFileError as error:
            _log.error("%s: what was given away while this broker was away is kept: %s", self._path, error)

    def write(self, notes: RemovalNotes) -> None:
        """On disk when this returns. Blocks. Raises DiskFullError, StorageFailedError; this life knows all the same."""
        self.notes, self.is_behind = notes, True
        with storage_errors(f"writing {self._path}"):
            write_atomically(self._path, format_giving_away(notes))
        self.is_behind = False
