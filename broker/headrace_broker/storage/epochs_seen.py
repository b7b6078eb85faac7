"""The leader epochs that this broker has seen, on its disk: `epochs-seen`, one file for all partitions.

Owned by a `DataDirectory`, for as long as that is open. `write` and `forget` run in threads. Invariants: no epoch
falls; what `read` returns is on disk. The file is made with the data directory, so one that is missing was lost: then,
as where it is damaged, `damage` says so, and the directory voids every seat, because nobody knows any more what was
promised.
"""

import threading
from collections.abc import Mapping
from pathlib import Path

from headrace.core.log.checkpoints import (
    EPOCHS_SEEN_FILE,
    DamagedFileError,
    format_epochs_seen,
    parse_epochs_seen,
    raised,
)
from headrace.core.types import LeaderEpoch, PartitionKey
from headrace_broker.storage.disk import storage_errors, write_atomically


class EpochsSeen:
    def __init__(self, root: Path) -> None:
        """Blocks. Raises OSError."""
        self._path = root / EPOCHS_SEEN_FILE
        self._turn = threading.Lock()
        self._epochs: dict[PartitionKey, LeaderEpoch] = {}
        """As on disk, but for what was forgotten since. Replaced as a whole."""
        self.damage = ""
        """Why it is not known what was seen; empty where it is."""
        try:
            self._epochs = parse_epochs_seen(self._path.read_bytes())
        except FileNotFoundError:
            self.damage = f"{EPOCHS_SEEN_FILE}: missing"
        except DamagedFileError as error:
            self.damage = f"{EPOCHS_SEEN_FILE}: {error}"

    @staticmethod
    def create(root: Path) -> None:
        """Of a new data directory, which has seen nothing. Raises OSError."""
        write_atomically(root / EPOCHS_SEEN_FILE, format_epochs_seen({}))

    def read(self) -> dict[PartitionKey, LeaderEpoch]:
        """All that is on disk, also of partitions that have no directory here yet."""
        return dict(self._epochs)

    def write(self, seen: Mapping[PartitionKey, LeaderEpoch]) -> None:
        """On disk when this returns, those of other partitions as they were. An epoch below a known one is ignored.

        One sync for all of them, and none where nothing rises. Blocks. Raises DiskFullError, StorageFailedError; then
        nothing of it counts as seen.
        """
        with self._turn:
            epochs = raised(self._epochs, seen)
            if epochs != self._epochs:
                with storage_errors(f"writing {self._path}"):
                    write_atomically(self._path, format_epochs_seen(epochs))
                self._epochs = epochs

    def forget(self, key: PartitionKey) -> None:
        """Its data is deleted for good, and its uid never returns. The file loses it with the next write."""
        with self._turn:
            self._epochs = {each: epoch for each, epoch in self._epochs.items() if each != key}

    def begin_anew(self) -> None:
        """After damage, once every seat is void. Blocks. Raises OSError."""
        self.create(self._path.parent)
