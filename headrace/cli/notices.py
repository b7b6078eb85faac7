"""What the SDK says while it tries again, as one dim line each on stderr: whoever waits should know for what."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.cli.output import tell

_LOGGER = "headrace.client"


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell(f"headrace: {record.getMessage()}", dim=True)


@contextmanager
def notices() -> Iterator[None]:
    """For as long as a command runs."""
    handler = _Lines(logging.WARNING)
    logger = logging.getLogger(_LOGGER)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
