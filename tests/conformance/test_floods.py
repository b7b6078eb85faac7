"""Floods against a real broker: the connection that floods is told to calm down and closed, all others are served."""

import socket
import ssl
from collections.abc import Callable, Iterator
from itertools import count
from urllib.parse import urlsplit

import pytest

from headrace.core import limits
from headrace.http2 import frames
from headrace.http2.connection_state import H2_IDLE_FRAMES_MAX
from headrace.http2.events import ErrorCode, Fields
from headrace.http2.frames import END_HEADERS, END_STREAM, pack_frame
from headrace.http2.hpack import HeaderEncoder
from tests.conformance.conftest import Served
from tests.support.cluster import http

HELLO = frames.PREFACE + frames.pack_settings({})
GET: Fields = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"broker"), (b":path", b"/healthz")]
POST: Fields = [(b":method", b"POST"), *GET[1:3], (b":path", b"/v1/namespaces/default/topics/x/partitions/0/records")]
FRAMES_MAX = 2 * H2_IDLE_FRAMES_MAX
AT_ONCE = 100
RECEIVE_BYTES_MIN = 2304
"""The smallest receive buffer that Linux gives: answers wait in the broker's socket."""


def repeated(frame: bytes, *, on_stream: bool = False) -> Iterator[bytes]:
    """The same frame again and again; `on_stream`: of an upload that was begun."""
    if on_stream:
        yield pack_frame(frames.HEADERS, END_HEADERS, 1, HeaderEncoder().encode(POST))
    while True:
        yield frame


def requests(*parts: bytes, fields: Fields = POST) -> Iterator[bytes]:
    """Streams, each of them followed by `parts`, which are made for stream 1."""
    encoder = HeaderEncoder()
    for stream_id in count(1, 2):
        number = stream_id.to_bytes(4, "big")
        head = pack_frame(frames.HEADERS, END_HEADERS, stream_id, encoder.encode(fields))
        yield head + b"".join(part[:5] + number + part[9:] for part in parts)


def endless_head() -> Iterator[bytes]:
    yield pack_frame(frames.HEADERS, 0, 1)
    yield from repeated(pack_frame(frames.CONTINUATION, 0, 1))


BODY, SHORT = pack_frame(frames.DATA, END_STREAM, 1, b"x"), [*POST, (b"content-length", b"5")]
FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "PING": lambda: repeated(pack_frame(frames.PING, 0, 0, bytes(8))),
    "SETTINGS": lambda: repeated(frames.pack_settings({4: 1})),
    "PRIORITY": lambda: repeated(pack_frame(frames.PRIORITY, 0, 3, bytes(5))),
    "WINDOW_UPDATE": lambda: repeated(frames.pack_window_update(0, 1)),
    "unknown frames": lambda: repeated(pack_frame(0xEE, 0, 0)),
    "empty DATA": lambda: repeated(pack_frame(frames.DATA, 0, 1), on_stream=True),
    "padding": lambda: repeated(pack_frame(frames.DATA, frames.PADDED, 1, b"\x09" + bytes(9)), on_stream=True),
    "CONTINUATION": endless_head,
    "rapid reset": lambda: requests(frames.pack_reset(1, ErrorCode.CANCEL)),
    "made reset by windows": lambda: requests(frames.pack_window_update(1, 0)),
    "made reset by lengths": lambda: requests(BODY, fields=SHORT),
    "made reset by late data": lambda: requests(BODY, BODY),
    "malformed": lambda: requests(fields=POST[1:]),
    "many header bytes": lambda: requests(fields=[*GET, (b"x-long", b"z" * limits.H2_HEADER_LIST_BYTES_MAX)]),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_should_end_a_flood_and_serve_everybody_else(served: Served, flood: str) -> None:
    with connected(served) as sock:
        sock.sendall(HELLO)
        said = answers(sock, FLOODS[flood]())
    assert ErrorCode.ENHANCE_YOUR_CALM in goaways(said)
    assert http("GET", f"{served.url}/healthz", tls=served.cluster.tls).status == 200


def test_should_tell_a_client_that_reads_late_why_it_must_go(served: Served) -> None:
    with connected(served, receive_bytes=RECEIVE_BYTES_MIN) as sock:
        sock.sendall(HELLO)
        said = answers(sock, FLOODS["PING"](), frames_max=10 * FRAMES_MAX)  # It sends on long after it was told.
    assert ErrorCode.ENHANCE_YOUR_CALM in goaways(said)


def connected(served: Served, *, receive_bytes: int | None = None) -> socket.socket:
    parts = urlsplit(served.url)
    plain = socket.socket()
    plain.settimeout(30)
    if receive_bytes is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    plain.connect((parts.hostname, parts.port))
    if served.cluster.tls is None:
        return plain
    trust = served.cluster.tls
    trust.set_alpn_protocols(["h2"])
    secure = trust.wrap_socket(plain, server_hostname=parts.hostname)
    trust.set_alpn_protocols(["http/1.1"])  # Others use it, too.
    return secure


def answers(sock: socket.socket, flood: Iterator[bytes], *, frames_max: int = FRAMES_MAX) -> bytes:
    """What the broker says until it closes the connection."""
    said = b""
    try:
        for _ in range(0, frames_max, AT_ONCE):
            sock.sendall(b"".join(part for part, _ in zip(flood, range(AT_ONCE), strict=False)))
    except (ConnectionError, ssl.SSLError):
        pass  # It has closed the connection while we were still at it.
    try:
        while chunk := sock.recv(1 << 20):
            said += chunk
    except ConnectionError:
        pass  # Reset, because of what it left unread.
    return said


def goaways(said: bytes) -> list[int]:
    """Error codes."""
    reader = frames.Http2FrameReader(b"")
    return [
        frames.unpack_goaway(payload)[1]
        for kind, _, _, payload in reader.frames(memoryview(said))
        if kind == frames.GOAWAY
    ]
