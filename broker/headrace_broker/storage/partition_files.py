"""The small files of one partition's directory, read and written: checkpoints, epochs, `voidBefore`.

`headrace.core.log` defines their content. The functions block. Writes raise OSError; reads distinguish missing and
damaged files from whole ones, because a checkpoint that cannot be read must not count as zero.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from headrace.core.log.checkpoints import (
    CUT_AT_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    VOID_BEFORE_FILE,
    DamagedFileError,
    LogPoint,
    format_high_watermark,
    format_log_point,
    format_log_start,
    format_void_before,
    parse_high_watermark,
    parse_log_point,
    parse_log_start,
    parse_void_before,
)
from headrace.core.log.compaction import COMPACTION_FILE, CleanPoints
from headrace.core.log.epochs import EPOCHS_FILE, LeaderEpochs
from headrace.core.replication.producers import PRODUCERS_FILE, Producers, ProducerState, format_producers
from headrace.core.types import Incarnation, Offset
from headrace_broker.storage.disk import fsync_directory, write_atomically

T = TypeVar("T")


class PartitionFiles:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.damaged: list[str] = []
        """The files that reads have found missing or damaged, as `name: reason`."""

    def recovery_point(self) -> LogPoint | None:
        """Return the recovery point; None where it is missing or damaged."""
        return self._read(RECOVERY_POINT_FILE, lambda content: parse_log_point(RECOVERY_POINT_FILE, content))

    def write_recovery_point(self, point: LogPoint) -> None:
        write_atomically(self.directory / RECOVERY_POINT_FILE, format_log_point(RECOVERY_POINT_FILE, point))

    def high_watermark(self) -> Offset | None:
        """Return the high watermark; None where it is missing or damaged."""
        return self._read(HIGH_WATERMARK_FILE, parse_high_watermark)

    def write_high_watermark(self, offset: Offset) -> None:
        write_atomically(self.directory / HIGH_WATERMARK_FILE, format_high_watermark(offset))

    def log_start(self) -> Offset | None:
        """Return the log's start; None where nothing was ever deleted, or the file is damaged."""
        if not (self.directory / LOG_START_FILE).exists():
            return None
        return self._read(LOG_START_FILE, parse_log_start)

    def write_log_start(self, offset: Offset) -> None:
        write_atomically(self.directory / LOG_START_FILE, format_log_start(offset))

    def epochs(self) -> LeaderEpochs | None:
        """Return the epochs; None where they are missing or damaged."""
        return self._read(EPOCHS_FILE, LeaderEpochs.parse)

    def write_epochs(self, epochs: LeaderEpochs) -> None:
        write_atomically(self.directory / EPOCHS_FILE, epochs.format())

    def has_producers(self) -> bool:
        return (self.directory / PRODUCERS_FILE).exists()

    def producers(self) -> Producers | None:
        """Return the producers that have written below the recovery point: none where there is no file, None where it
        is damaged."""
        return self._read(PRODUCERS_FILE, Producers.parse) if self.has_producers() else Producers()

    def write_producers(self, states: Mapping[int, ProducerState]) -> None:
        write_atomically(self.directory / PRODUCERS_FILE, format_producers(states))

    def clean_points(self) -> CleanPoints:
        """Return the clean points; none where the log was never compacted, or the file is damaged: then it is compacted
        again."""
        path = self.directory / COMPACTION_FILE
        return (self._read(COMPACTION_FILE, CleanPoints.parse) if path.exists() else None) or CleanPoints()

    def write_clean_points(self, points: CleanPoints) -> None:
        write_atomically(self.directory / COMPACTION_FILE, points.format())

    def cut_at(self) -> LogPoint | None:
        """Return where the log must be cut after a failed sync; None where there is no such file.

        Where the file is there but damaged, that is the recovery point, which lies below.
        """
        if not (self.directory / CUT_AT_FILE).exists():
            return None
        return self._read(CUT_AT_FILE, lambda content: parse_log_point(CUT_AT_FILE, content)) or self.recovery_point()

    def write_cut_at(self, point: LogPoint) -> None:
        write_atomically(self.directory / CUT_AT_FILE, format_log_point(CUT_AT_FILE, point))

    def remove_cut_at(self) -> None:
        (self.directory / CUT_AT_FILE).unlink(missing_ok=True)
        fsync_directory(self.directory)

    def void_before(self) -> Incarnation:
        """Return the incarnation; 0 where no start has found the log damaged. Raises DamagedFileError: then every seat
        is void."""
        path = self.directory / VOID_BEFORE_FILE
        return parse_void_before(path.read_bytes()) if path.exists() else Incarnation(0)

    def write_void_before(self, incarnation: Incarnation) -> None:
        write_atomically(self.directory / VOID_BEFORE_FILE, format_void_before(incarnation))

    def _read(self, name: str, parse: Callable[[bytes], T]) -> T | None:
        try:
            return parse((self.directory / name).read_bytes())
        except FileNotFoundError:
            self.damaged.append(f"{name}: missing")
        except DamagedFileError as error:
            self.damaged.append(f"{name}: {error}")
        return None
