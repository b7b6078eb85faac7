"""A session by hand, with nothing but a socket: what docs/protocol.md and RFC 9113 say is enough to write a client.

`python raw_session.py PORT` opens a session and prints what the broker's body has, as it comes, in hexadecimal, one
line a DATA frame; each line of its standard input, in hexadecimal, is sent. It knows no window and sends little.
"""

import socket
import struct
import sys
import threading

_DATA, _HEADERS, _SETTINGS, _PING = 0, 1, 4, 6
_ACK, _END_HEADERS = 0x1, 0x4
_STREAM = 1
_HEAD = {
    ":method": "POST",
    ":scheme": "http",
    ":authority": "headrace",
    ":path": "/v1/sessions",
    "content-type": "application/vnd.headrace.session",
}


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: str, value: str) -> bytes:
    """A field that is not indexed (RFC 7541, 6.2.2); both have less than 127 bytes."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def say(sock: socket.socket) -> None:
    for line in sys.stdin:
        sock.sendall(frame(_DATA, 0, _STREAM, bytes.fromhex(line)))


def main() -> None:
    sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    fields = b"".join(literal(name, value) for name, value in _HEAD.items())
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(_SETTINGS, 0, 0, b"")
    sock.sendall(preface + frame(_HEADERS, _END_HEADERS, _STREAM, fields))
    threading.Thread(target=say, args=(sock,), daemon=True).start()
    reading = sock.makefile("rb")
    while head := reading.read(9):
        kind, flags = head[3], head[4]
        payload = reading.read(int.from_bytes(head[:3], "big"))
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            sock.sendall(frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind == _DATA:
            sys.stdout.write(payload.hex() + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
