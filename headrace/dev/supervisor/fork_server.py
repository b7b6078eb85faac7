"""The process that has loaded everything and forks programs: what they would all load is loaded once, and shared.

`forking.ForkServer` starts it and sends it orders. It has one thread, no event loop and no handlers for signals, and
draws no random numbers: each program that it forks is as pristine as one that was just executed.

    no order yet           ──> load the next module
    asked for a program    ──> load what that needs, fork twice, go on; nothing where the orderer has gone
    the one who asks ends  ──> end

    the process in between ──> ends at once, so that the kernel gives its child to the nearest ancestor that takes in
                               orphans: the one who asks, whose own child it is from then on
    the child              ──> dies with that parent; sends its pid, and goes on when that was acknowledged
    ... and no answer      ──> ends: no process would know that it is there

A program finds what it would find had it been executed: arguments, environment, directory, standard output and error,
a session of its own, no other open files, its own command line in `ps`.
"""

import ctypes
import gc
import importlib
import io
import json
import logging
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from types import ModuleType

from headrace.dev.supervisor.parent_death import die_with

ORDER_BYTES_MAX = 1 << 20
PID_BYTES_MAX = 16
DESCRIPTORS = 4
"""The number of descriptors that come with an order."""
GO = b"g"
_COMMAND_BYTES_SHOWN = 4096
"""The length above which command lines are cut in `ps`."""
_ARG_START, _ARG_END = 45, 46
"""The fields of /proc/self/stat, counted from the state, that hold the place of this process's command line."""
_log = logging.getLogger("headrace.dev")
"""No handler is configured in this process, so warnings go to standard error."""


@dataclass(frozen=True, slots=True)
class Order:
    """One program to be forked. Its directory, standard output and error, and a socket to the orderer come with it."""

    modules: tuple[str, ...]
    """The modules to load. `main` of the first one is the program."""
    command: tuple[str, ...]
    """The command line that `ps` shows."""
    arguments: tuple[str, ...]
    environment: dict[str, str]

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, text: bytes) -> "Order":
        raw = json.loads(text)
        return cls(tuple(raw["modules"]), tuple(raw["command"]), tuple(raw["arguments"]), raw["environment"])


def server_command(asking: int, parent: int, modules: Iterable[str]) -> list[str]:
    """Return the server's command line. Its last argument is blanks, over which longer command lines are written."""
    here = "headrace.dev.supervisor.fork_server"
    return [sys.executable, "-m", here, str(asking), str(parent), ",".join(modules), " " * _COMMAND_BYTES_SHOWN]


def serve(asking: socket.socket, parent: int, modules: Iterable[str]) -> Callable[[], None] | None:
    """Load `modules` and fork until the orderer is gone, and return None then. In each forked process, return the
    program to run."""
    left = deque(modules)
    while True:
        if left and not _is_readable(asking.fileno()):
            _load(left.popleft())
            continue
        message, received, _, _ = socket.recv_fds(asking, ORDER_BYTES_MAX, DESCRIPTORS)
        if not message:
            return None
        if len(received) != DESCRIPTORS:  # There is no room for more, and the orderer sees the line closed.
            _close(received)
            continue
        order = Order.parse(message)
        directory, output, errors, line = received
        for module in order.modules:
            _load(module)
        # The line would be closed, by its end, where the orderer waits no longer.
        if not _is_readable(line) and _forked_twice():
            asking.close()
            if not _is_known(line, parent):
                os._exit(1)
            return _become(order, directory, (output, errors))
        _close(received)


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _load(module: str) -> None:
    """Load a module in advance; a program that needs one that cannot be loaded will fail by itself, and log it."""
    try:
        importlib.import_module(module)
    except Exception as error:
        _log.warning("the fork server cannot load %s: %r", module, error)


def _is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def _forked_twice() -> bool:
    """Fork twice. Return True in the new process, whose parent is outside this server."""
    gc.freeze()  # A collection would write to pages that are shared.
    try:
        between = os.fork()
    except OSError as error:
        _log.warning("the fork server cannot fork: %s", error)
        return False
    if between:
        os.waitpid(between, 0)
        return False
    try:
        ending = os.pidfd_open(os.getpid())
        if os.fork():
            os._exit(0)
    except BaseException:  # Whatever the error is, this process must not continue as a second server.
        os._exit(1)
    select.select([ending], [], [])
    os.close(ending)
    return True


def _is_known(line: int, parent: int) -> bool:
    """Send this pid to `parent`, and return whether it has answered."""
    if not die_with(parent):
        return False
    os.setsid()
    with socket.socket(fileno=line) as telling:
        try:
            telling.send(str(os.getpid()).encode())
            return telling.recv(len(GO)) == GO
        except OSError:
            return False


def _become(order: Order, directory: int, outputs: tuple[int, int]) -> Callable[[], None]:
    os.fchdir(directory)
    os.close(directory)
    for standard, output in enumerate(outputs, start=1):
        os.dup2(output, standard)
        os.close(output)
    os.environ.clear()
    os.environ.update(order.environment)
    time.tzset()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=os.isatty(1))
    _show(order.command)
    gc.enable()
    return lambda: _run(order)


def _run(order: Order) -> None:
    module: ModuleType = importlib.import_module(order.modules[0])
    sys.modules["__main__"] = module
    sys.argv = [str(module.__file__), *order.arguments]
    module.main()


def _show(command: Iterable[str]) -> None:
    """Show the command line in `ps`, written over the one that this process was executed with."""
    with open("/proc/self/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    start, room = int(fields[_ARG_START]), int(fields[_ARG_END]) - int(fields[_ARG_START])
    text = b"\0".join(os.fsencode(argument) for argument in command)[: room - 1]
    if start:  # Otherwise the kernel does not show it.
        ctypes.memmove(start, text.ljust(room, b"\0"), room)


def _main(asking: int, parent: int, modules: str) -> None:
    if not die_with(parent):
        return
    _show([*sys.orig_argv[:-1]])
    gc.disable()  # The server's garbage is little, and programs collect their own.
    run = serve(socket.socket(fileno=asking), parent, modules.split(","))
    if run is not None:
        run()


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
