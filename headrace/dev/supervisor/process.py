"""The supervisor's own process: locks, log, signals. In the foreground of a terminal, or detached (`launcher`)."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator, Sequence

from headrace.dev.supervisor.forking import ForkServer
from headrace.dev.supervisor.layout import SupervisorOptions, lock_file
from headrace.dev.supervisor.state import DevState, hold_lock
from headrace.dev.supervisor.successor import Successor

_LOG_FORMAT = "%(asctime)s %(message)s"


def run(
    options: SupervisorOptions,
    on_ready: Callable[[DevState], None],
    successor: Successor | None,
    *logs: logging.Handler,
) -> signal.Signals | None:
    """Supervise until a signal comes, and return it. A second one does not wait for the children to stop gracefully.

    `successor` continues when this process is killed. Messages go to `logs`. Raises HeadraceError.
    """
    # The fork server comes first: it loads the programs while this process loads the rest of the supervisor.
    with ForkServer.running() as forks, _logging_to(logs), _alone(options):
        return asyncio.run(_until_signalled(options, on_ready, forks, successor))


@contextlib.contextmanager
def _alone(options: SupervisorOptions) -> Iterator[None]:
    """Hold the locks: one supervisor per home and per data directory, which may be the same. Raises
    AlreadyRunningError."""
    with contextlib.ExitStack() as stack:
        whats = {lock_file(options.home): "home", lock_file(options.layout.data): "data directory"}
        for path, what in whats.items():
            stack.enter_context(hold_lock(path, what, patient=options.takes_over))
        yield


@contextlib.contextmanager
def _logging_to(handlers: Sequence[logging.Handler]) -> Iterator[None]:
    logger = logging.getLogger("headrace")
    logger.setLevel(logging.INFO)
    for handler in handlers:
        handler.setFormatter(logging.Formatter(_LOG_FORMAT))
        logger.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()


async def _until_signalled(
    options: SupervisorOptions, on_ready: Callable[[DevState], None], forks: ForkServer, successor: Successor | None
) -> signal.Signals | None:
    from headrace.dev.supervisor.supervisor import supervise

    received: list[signal.Signals] = []
    task = asyncio.create_task(supervise(options, on_ready, forks, successor))

    def on_signal(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return received[0] if received else None
