"""One connection of the blocking transport: its socket, its exchanges, and the thread that waits for the network.

A `BlockingTransport` owns it from connecting until it is lost or closed; any thread may call it. Callers write to the
socket themselves as far as it takes bytes without waiting; the thread reads, and writes the rest. A caller that waits
alone, again and again, reads for itself (`ReadingTurn`), which saves two hand-overs between threads.

    thread's turn ── read several times while exactly one caller waited ──> callers' turn
       ^── another waits too, or what one waits for does not come, or no caller has read for a while ──┘

Invariants: socket and protocol state are touched only under the connection's lock, and no thread waits for the network
while holding it; one thread at a time calls listeners, in the order of arrival; a time-out or an interrupt resets that
one stream, and an interrupt never tears apart what a caller reads or writes. Threads do not survive a fork: a child
process that closes the connection that it inherited says nothing to the parent's server.
"""

import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from headrace.core import limits
from headrace.core.errors import HeadraceError
from headrace.http2.events import RemoteProtocolError
from headrace.http2.exchange import Decode, Exchange, Exchanges
from headrace.http2.frames import Buffer
from headrace.http2.interrupts import HeldInterrupts
from headrace.http2.origin import Origin, Request, lost_reason, unreachable

H2_READS_BEFORE_CALLERS_READ = 8
"""The number of reads for one caller alone, after which the caller reads for itself instead of the thread."""
H2_CALLER_READS_MS_MAX = 10
"""The longest time that a caller reads without getting what it waits for; then the thread reads again."""
H2_THREAD_LOOKS_MS = 10
"""The interval at which the thread checks whether callers still read: an answer without a waiter may be late by twice
this."""
_CLOSE_TIMEOUT_S = 1.0
"""The time that a server gets to take our last bytes."""
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class ReadingTurn:
    def __init__(self) -> None:
        self.is_callers = False
        """True while callers read: the thread leaves the socket alone, and checks now and then that it is still
        read."""
        self._waiting = 0
        self._is_reading = False
        """True while a caller reads."""
        self._is_used = False
        """True where a caller has read, or the turn has gone to the callers, since the thread checked."""
        self._reads_for_one = 0
        """The number of reads that the thread has done in a row for one caller."""
        self._unread_sends = 0
        """The number of sends since a caller last read."""

    def come(self) -> bool:
        """Note a caller that waits, and return whether it is to read."""
        self._waiting += 1
        if not self.is_callers or self._is_reading:
            return False
        self._is_reading = self._is_used = True
        self._unread_sends = 0
        return True

    def sent(self) -> bool:
        """Note that something is sent. Return whether the thread must be woken: no caller waited for the answer to what
        was sent before."""
        self._unread_sends += 1
        if not self.is_callers or self._is_reading or self._unread_sends == 1:
            return False
        self.is_callers = False
        return True

    def stop(self, *, was_served: bool) -> bool:
        """Note that the caller reads no longer. Return whether the thread must be woken to read again."""
        self._is_reading = False
        self.is_callers = was_served and self._waiting == 1
        return not self.is_callers

    def leave(self) -> None:
        """Note that a caller waits no longer."""
        self._waiting -= 1

    @property
    def is_caller_reading(self) -> bool:
        return self._is_reading

    def thread_read(self) -> None:
        self._reads_for_one = self._reads_for_one + 1 if self._waiting == 1 else 0
        self.is_callers = self._is_used = self._reads_for_one >= H2_READS_BEFORE_CALLERS_READ

    def thread_checked(self) -> None:
        """Give the turn back to the thread where no caller has used it since the last check."""
        if self.is_callers and not self._is_used and not self._is_reading:
            self.is_callers = False
            self._reads_for_one = 0
        self._is_used = False


class BlockingExchange(Exchange):
    """An exchange that one thread can wait for. All of it is guarded by the connection's lock."""

    __slots__ = ("_wakes_at_bytes", "condition", "listen")

    def __init__(self, request: Request, body: Sequence[Buffer]) -> None:
        super().__init__(request, body, self._wake)
        self.condition: threading.Condition | None = None
        self.listen: Callable[[], None] | None = None
        """A function that notifies the connection that its listener wants to be called."""
        # One call for each frame of a whole response would be a thread switch each, which costs more than the bytes.
        self._wakes_at_bytes = limits.H2_STREAM_WINDOW_BYTES // 4

    def begin_stream(self, decode: Decode | None) -> None:
        """Make the body open-ended: its reader wants every piece at once."""
        self.body_ended = False
        self.decode = decode
        self._wakes_at_bytes = 0

    def _wake(self) -> None:
        if self.listen is not None:
            self.listen()
        if self.condition is not None and (self.is_over or self.buffered_bytes >= self._wakes_at_bytes):
            self.condition.notify()


class BlockingConnection:
    def __init__(self, origin: Origin, sock: socket.socket) -> None:
        self._origin = origin
        self._sock = sock
        self._sock.settimeout(0.0)
        self._exchanges = Exchanges(origin.authority)
        self._lock = threading.Lock()
        self._unsent: list[memoryview] = []
        self._closing = False
        self._heard = False
        self.is_lost = False
        self._to_call: dict[Callable[[], None], None] = {}
        """The listeners of streams on which something has happened: the thread that reads calls them, without the
        lock."""
        self._calling = threading.Lock()
        self._turn = ReadingTurn()
        self._buffer = memoryview(bytearray(limits.H2_READ_BYTES))
        self._callers_poll = select.poll()
        self._callers_poll.register(self._sock, select.POLLIN)
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.settimeout(0.0)
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"headrace-{origin.authority}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # No thread is to be had; Python 3.12 starts none while it ends.
            self._drop()
            raise unreachable(origin, f"cannot be reached: {error}") from error

    # -- the side of callers ---------------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        return self._exchanges.is_usable

    def start(self, exchange: Exchange) -> None:
        with HeldInterrupts(), self._lock:
            self._exchanges.start(exchange)
            self._write()

    def call_on_change(self, exchange: BlockingExchange, listener: Callable[[], None]) -> None:
        """Have the reading thread call `listener` whenever something has arrived, and when the exchange is over."""
        exchange.listen = lambda: self._to_call.setdefault(listener)

    def send(self, exchange: Exchange, buffers: Sequence[Buffer], *, ended: bool) -> None:
        with HeldInterrupts(), self._lock:
            self._exchanges.send(exchange, buffers, ended=ended)
            self._write()
            if self._turn.sent():
                self._wake()

    def take(self, exchange: Exchange) -> list[Any]:
        with HeldInterrupts(), self._lock:
            chunks = self._exchanges.take(exchange)
            self._write()
            return chunks

    def receive(self, exchange: BlockingExchange, timeout_s: float | None) -> list[Any]:
        """Wait for what arrives and return it; an empty list when it is over. Raises TimeoutError, and then nothing
        else has changed."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with HeldInterrupts() as interrupts, self._lock:
            exchange.condition = exchange.condition or threading.Condition(self._lock)
            while not (chunks := self._exchanges.take(exchange)) and not exchange.is_over:
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise TimeoutError(f"{exchange.request.name}: nothing came within {timeout_s:g} s")
                interrupts.allowing(exchange.condition.wait, left_s)
            self._write()
            return chunks

    def wait_with(self, is_done: Callable[[], bool], wait: Callable[[], None], timeout_s: float | None) -> None:
        """Wait until `is_done`, which some listener brings about: by reading here if it is our turn, else by `wait`."""
        with HeldInterrupts() as interrupts:
            with self._lock:
                reads = self._turn.come()
            try:
                if not (reads and self._read_until(is_done, timeout_s, interrupts)):
                    interrupts.allowing(wait)
            finally:
                with self._lock:
                    self._turn.leave()

    def _read_until(self, is_done: Callable[[], bool], timeout_s: float | None, interrupts: HeldInterrupts) -> bool:
        """Read in the caller's thread until `is_done`. Return False where it took too long and the thread reads
        again."""
        served = False
        try:
            longest_s = H2_CALLER_READS_MS_MAX / 1000
            deadline = time.monotonic() + (longest_s if timeout_s is None else min(timeout_s, longest_s))
            while not (served := is_done()) and not self.is_lost:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not interrupts.allowing(self._callers_poll.poll, left_s * 1000):
                    break
                with self._lock:
                    self._read()
                    if not self._to_call:  # Listeners take what has come, and that writes.
                        self._write()
                self._call_listeners()
        finally:
            with self._lock:
                must_wake = self._turn.stop(was_served=served)
            if must_wake:
                self._wake()
        return served

    def result(self, exchange: BlockingExchange, timeout_s: float | None) -> bytes:
        """Return the whole body."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        chunks: list[bytes] = []
        with HeldInterrupts() as interrupts, self._lock:
            exchange.condition = threading.Condition(self._lock)
            try:
                chunks += self._exchanges.take(exchange)
                while not exchange.is_over:
                    self._write()
                    wait = partial(interrupts.allowing, exchange.condition.wait)
                    self._wait(exchange, wait, deadline, timeout_s)
                    chunks += self._exchanges.take(exchange)
            except BaseException:  # An interrupt, too, must not leave the server sending.
                self._cancel(exchange, "was not waited for")
                raise
        if exchange.error is not None:
            raise exchange.error
        return b"".join(chunks)

    def _wait(
        self, exchange: Exchange, wait: Callable[..., bool], deadline: float | None, timeout_s: float | None
    ) -> None:
        left_s = None if deadline is None else deadline - time.monotonic()
        if left_s is not None and (left_s <= 0 or not wait(left_s)) and not exchange.is_over:
            raise self._cancel(exchange, f"did not answer within {timeout_s:g} s")
        if left_s is None:
            wait()

    def cancel(self, exchange: Exchange, reason: str) -> None:
        with HeldInterrupts(), self._lock:
            self._cancel(exchange, reason)

    def _cancel(self, exchange: Exchange, reason: str) -> HeadraceError:
        error = self._exchanges.cancel(exchange, reason)
        self._write()
        if self._to_call:
            self._wake()
        return error

    def close_when_idle(self) -> None:
        """Close a connection that is not usable any more; the thread ends it."""
        self._wake()

    def close(self) -> None:
        if self._pid != os.getpid():
            self._drop()
            return
        with HeldInterrupts(), self._lock:
            if not self.is_lost and not self._closing:
                self._exchanges.close()
                self._exchanges.fail("was left: this client closed")
                self._write()
            self._closing = True
        self._wake()
        self._thread.join(_CLOSE_TIMEOUT_S)
        if self._thread.is_alive():  # The server takes nothing: do not wait for it.
            with HeldInterrupts(), self._lock:
                self.is_lost = True
            self._wake()
            self._thread.join()

    def _drop(self) -> None:
        """Release the descriptors, and send nothing."""
        for each in (self._sock, self._wake_receiver, self._wake_sender):
            each.close()

    # -- the network, under the lock -------------------------------------------------------------------------------

    def _write(self) -> None:
        """Send what the socket takes now, as much as is fair to others who want the lock; the thread sends the rest."""
        had_backlog = bool(self._unsent)
        try:
            for _ in range(limits.H2_WRITES_PER_TURN):
                if not self._has_unsent():
                    return
                self._send_some()
        except _WOULD_BLOCK:
            pass
        except OSError as error:
            self._lose(f"{lost_reason(self._origin, heard=self._heard)}: {error.strerror or error}")
        if self._has_unsent() and not had_backlog:
            self._wake()

    def _send_some(self) -> None:
        """Send as much of `_unsent` as the socket takes, at least one byte."""
        is_tls = isinstance(self._sock, ssl.SSLSocket)
        sent = self._sock.send(self._unsent[0]) if is_tls else self._sock.sendmsg(self._unsent)
        whole = 0
        while whole < len(self._unsent) and sent >= len(self._unsent[whole]):
            sent -= len(self._unsent[whole])
            whole += 1
        del self._unsent[:whole]
        if sent:
            self._unsent[0] = self._unsent[0][sent:]

    def _has_unsent(self) -> bool:
        if not self._unsent and not self.is_lost:
            self._unsent = [memoryview(each) for each in self._exchanges.data_to_send(limits.H2_WRITE_BYTES)]
        return bool(self._unsent) and not self.is_lost

    def _read(self) -> None:
        try:
            while count := self._sock.recv_into(self._buffer):
                self._heard = True
                self._exchanges.receive_data(self._buffer[:count], int(time.monotonic() * 1000))
                if not isinstance(self._sock, ssl.SSLSocket):
                    return  # TLS may hold decrypted bytes that poll cannot see; a plain socket cannot.
            self._lose(lost_reason(self._origin, heard=self._heard))
        except _WOULD_BLOCK:
            return
        except RemoteProtocolError as error:
            self._write()
            self._lose(error.message)
        except OSError as error:
            self._lose(f"{lost_reason(self._origin, heard=self._heard)}: {error.strerror or error}")

    def _lose(self, reason: str) -> None:
        self.is_lost = True
        self._exchanges.fail(reason)
        self._wake()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._wake_receiver, select.POLLIN)
        with self._sock, self._wake_receiver, self._wake_sender:
            while True:
                self._call_listeners()
                with self._lock:
                    if self._is_done() and not self._turn.is_caller_reading:
                        self.is_lost = True
                        self._exchanges.fail("closed the connection")
                        break
                    patience_ms = self._register(poll)
                ready = dict(poll.poll(patience_ms))
                if self._wake_receiver.fileno() in ready:
                    self._wake_receiver.recv(4096)
                with self._lock:
                    if ready.get(self._sock.fileno(), 0) & ~select.POLLOUT:
                        self._read()
                        self._turn.thread_read()
                    self._write()

        self._call_listeners()

    def _register(self, poll: select.poll) -> int | None:
        """Register what the thread waits for now, and return for how many milliseconds."""
        self._turn.thread_checked()
        reads = not self._turn.is_callers
        interest = (select.POLLIN if reads else 0) | (select.POLLOUT if self._unsent else 0)
        if interest:
            poll.register(self._sock, interest)
        else:
            with suppress(KeyError):  # The caller may be out already.
                poll.unregister(self._sock)
        return None if reads else H2_THREAD_LOOKS_MS

    def _call_listeners(self) -> None:
        """Call the listeners, also of streams that have failed in another thread's hands: that thread has woken this
        one."""
        while self._to_call:
            with self._calling:
                with self._lock:
                    listeners, self._to_call = self._to_call, {}
                for listener in listeners:
                    listener()

    def _is_done(self) -> bool:
        served = not self._exchanges.is_usable and self._exchanges.is_idle
        return self.is_lost or ((self._closing or served) and not self._unsent)

    def _wake(self) -> None:
        with suppress(OSError):  # The thread may have ended.
            self._wake_sender.send(b"\0")
