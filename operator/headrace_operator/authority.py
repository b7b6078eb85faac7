"""The authorities that the operator trusts for brokers: those of a PEM file, which may change while the operator runs.

    file ──two readings agree──> usable ────> new connections are checked against it
                                 unusable ──> logged; the authority in use stays

It is read again and again, and compared by content, as brokers do with theirs: a mounted Secret changes by the swap of
a symbolic link, which neither the file's own time nor its inode need to show. There is one per process. Without a file
the system's roots are trusted, once and for all.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.core.errors import LocalError
from headrace.core.limits import TLS_FILE_BYTES_MAX, TLS_FILES_INTERVAL_MS
from headrace.http2.origin import trusting_bundle

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Reading:
    content: bytes = b""
    trouble: str = ""
    """The reason why there is no content just now."""


class Authority:
    def __init__(self, file: str | None) -> None:
        """Take a PEM file, or None for the system's roots. `take_on` comes next."""
        self._file = file
        self._judged = _Reading()

    def take_on(self) -> ssl.SSLContext | None:
        """Return the context that checks brokers for now; None: the system's roots, which a transport trusts by itself.

        Raises LocalError.
        """
        if self._file is None:
            return None
        self._judged = self._read(self._file)
        return self._context(self._judged)

    async def keep_fresh(self, trust: Callable[[ssl.SSLContext], None]) -> None:
        """Follow the file without end; `trust` is called with the context for new connections from then on."""
        if self._file is None:
            await asyncio.Event().wait()
            return
        before = self._judged
        while True:
            await asyncio.sleep(TLS_FILES_INTERVAL_MS / 1000)
            now = await asyncio.to_thread(self._read, self._file)
            # A file that is still being written is not read yet.
            if now == before != self._judged:
                self._judged = now
                self._replace(now, trust)
            before = now

    def _replace(self, reading: _Reading, trust: Callable[[ssl.SSLContext], None]) -> None:
        try:
            context = self._context(reading)
        except LocalError as error:
            _log.error("TLS: the authority in use stays, because the new one is refused: %s", error.message)
        else:
            trust(context)
            _log.info("TLS: new connections to brokers are checked against what CA file %s holds now", self._file)

    def _context(self, reading: _Reading) -> ssl.SSLContext:
        """Return the context. Raises LocalError."""
        if reading.trouble:
            raise LocalError(f"CA file {self._file} cannot be read: {reading.trouble}")
        return trusting_bundle(reading.content, f"CA file {self._file}")

    @staticmethod
    def _read(file: str) -> _Reading:
        try:
            with Path(file).open("rb") as opened:
                content = opened.read(TLS_FILE_BYTES_MAX + 1)
        except OSError as error:
            return _Reading(trouble=error.strerror or str(error))
        if len(content) > TLS_FILE_BYTES_MAX:
            return _Reading(trouble="it is too large")
        return _Reading(content)
