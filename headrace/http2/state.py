"""What both directions of one HTTP/2 connection share: streams, windows, allowances, and what there is to write.

Owned by one `Engine`, for its lifetime, and used by it and its `Receiver`. Credit is sent by the half window, so that
many small bodies cost few frames.

Invariants: a window that we gave out is never overrun unnoticed, and one that we were given is never overrun; the
stream that a reset concerns has no state afterwards.
"""

from headrace.core import limits
from headrace.http2 import frames, settings
from headrace.http2.events import ErrorCode
from headrace.http2.floods import idle_allowance, resets_allowance
from headrace.http2.frames import LENGTH_31_BITS
from headrace.http2.header_blocks import HeaderEncoder
from headrace.http2.output import Output
from headrace.http2.settings import RFC_WINDOW_BYTES, PeerSettings
from headrace.http2.streams import Streams


class ConnectionState:
    def __init__(self, *, is_server: bool) -> None:
        self.is_server = is_server
        self.settings = settings.OF_SERVERS if is_server else settings.OF_CLIENTS
        self.stream_window = self.settings[settings.INITIAL_WINDOW_SIZE]
        self.streams = Streams()
        self.open = self.streams.open
        self.output = Output()
        self.encoder = HeaderEncoder()
        self.peer = PeerSettings()
        self.send_window = RFC_WINDOW_BYTES
        self.receive_window = limits.H2_CONNECTION_WINDOW_BYTES
        self.last_request_id = 0
        """The highest stream that the client opened and the server took, on either side."""
        self.refused_above: int | None = None
        """Our own GOAWAY's last stream id; None before we sent one."""
        self.resets = resets_allowance()
        self.idle = idle_allowance()
        self._uncredited = 0

    # -- credit --------------------------------------------------------------------------------------------------

    def credit_stream(self, stream_id: int, count: int) -> None:
        stream = self.open.get(stream_id)
        if stream is None or not stream.receiving:
            return
        stream.uncredited += count
        if stream.uncredited >= stream.window // 2:
            self.output.put(frames.pack_window_update(stream_id, stream.uncredited))
            stream.receive_window += stream.uncredited
            stream.uncredited = 0

    def size_window(self, stream_id: int, window: int) -> None:
        stream = self.open.get(stream_id)
        if stream is not None:
            change, stream.window = window - stream.window, window
            self.credit_stream(stream_id, change)

    def credit_connection(self, count: int) -> None:
        self._uncredited += count
        if self._uncredited >= limits.H2_CONNECTION_WINDOW_BYTES // 2:
            self.output.put(frames.pack_window_update(0, self._uncredited))
            self.receive_window += self._uncredited
            self._uncredited = 0

    # -- the peer's windows ----------------------------------------------------------------------------------------

    def open_window(self, increment: int) -> bool:
        """The connection's; False where that is more than a window can be."""
        self.send_window += increment
        return self.send_window <= LENGTH_31_BITS

    def move_windows(self, change: int) -> bool:
        """The initial size of every stream's window has changed; False where one is now more than a window can be."""
        for stream in self.open.values():
            stream.send_window += change
        return all(stream.send_window <= LENGTH_31_BITS for stream in self.open.values())

    # -- the end of a stream ---------------------------------------------------------------------------------------

    def reset(self, stream_id: int, error_code: ErrorCode) -> None:
        """Give the stream up in both directions, and tell the peer."""
        self.open.pop(stream_id, None)
        self.streams.remember_reset(stream_id)
        self.output.put(frames.pack_reset(stream_id, error_code))
