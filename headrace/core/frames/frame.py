"""A frame of a session or a replication stream: a head of 48 bytes, then a payload. No I/O.

The head is the same for every frame, so that one `unpack` reads it. Its four numbers mean different things for each
kind (`session_messages` and `replication_messages` name them, docs/protocol.md has every byte). A payload is JSON or
whole batches. It is either never joined: its chunks are views of what arrived and keep that alive; or it is copied,
piece by piece, into memory that the reader's owner allocates for it.

A `FrameReader` cuts one direction of one stream into frames, for the lifetime of the stream. It is given the longest
payload of each kind that the other side may send, and refuses a frame by its head, before anything of it is kept.
After it has raised, the stream is over. Used by both sides.

A `MessageTable` lists the messages that one side of a protocol sends: the kind of frame of each, its longest payload
and how it is unpacked. It makes the readers of that direction and turns their frames into messages.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from headrace.core.errors import BrokenSessionError, HeadraceError, from_problem

HEAD_BYTES: Final = 48

STREAM: Final = 0
"""The channel of what concerns the session or the replication stream as a whole."""

_HEAD = struct.Struct("<BBHIIi4q")

Buffer = bytes | bytearray | memoryview
M = TypeVar("M")
_LENGTH_AT = 8
_ZEROS = (0, 0, 0, 0)
_NO_STATUS = 500


class Frame(NamedTuple):
    kind: int
    channel: int
    """The number of a channel, or `STREAM`."""
    leader_epoch: int
    first: int
    second: int
    third: int
    fourth: int
    payload: list[memoryview]
    """The chunks in order; none is empty, and there is one alone where the reader allocates."""


def pack_head(kind: int, channel: int, payload_bytes: int, leader_epoch: int = 0, *numbers: int) -> bytes:
    """Pack a head; `numbers` are the four of the kind, and those that are not given are 0."""
    return _HEAD.pack(kind, 0, 0, channel, payload_bytes, leader_epoch, *numbers, *_ZEROS[len(numbers) :])


def pack_batches(
    kind: int, channel: int, batches: Sequence[Buffer], leader_epoch: int = 0, *numbers: int
) -> list[Buffer]:
    """Pack a frame of batches, which are never joined."""
    size = sum(map(len, batches))
    return [_HEAD.pack(kind, 0, 0, channel, size, leader_epoch, *numbers, *_ZEROS[len(numbers) :]), *batches]


def pack_object(kind: int, channel: int, document: Mapping[str, object], leader_epoch: int = 0, *numbers: int) -> bytes:
    """Pack a frame whose payload is a JSON object."""
    payload = json.dumps(document, separators=(",", ":")).encode()
    return pack_head(kind, channel, len(payload), leader_epoch, *numbers) + payload


def read_object(payload: Iterable[memoryview]) -> dict[str, Any]:
    """Read the JSON object of a payload. Raises BrokenSessionError."""
    try:
        document = json.loads(b"".join(payload))
    except (ValueError, RecursionError) as error:
        raise BrokenSessionError(f"the payload is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise BrokenSessionError(f"the payload is the JSON of a {type(document).__name__}: must be an object")
    return document


def read_problem(payload: Iterable[memoryview]) -> HeadraceError:
    """Read the error that a payload carries. Raises BrokenSessionError."""
    problem = read_object(payload)
    status = problem.get("status")
    return from_problem(problem, status if isinstance(status, int) else _NO_STATUS)


class FrameReader:
    def __init__(
        self, payload_bytes_max: Mapping[int, int], allocate: Callable[[int], memoryview] | None = None
    ) -> None:
        """`payload_bytes_max` has each kind that may come. `allocate` gives memory of so many bytes for a payload.

        Without it, what is received must not change.
        """
        self._payload_bytes_max = payload_bytes_max
        self._allocate = allocate
        self._memory: memoryview | None = None
        """The memory that `allocate` gave for the payload under way."""
        self._head = bytearray()
        """The part of a head that has come so far."""
        self._frame: Frame | None = None
        """The frame under way: its head is read, and some of its payload."""
        self.missing_bytes = 0
        """The bytes that the payload of the frame under way still lacks."""
        self._begun = 0

    @property
    def is_between_frames(self) -> bool:
        """Return whether the stream may end here."""
        return self._frame is None and not self._head

    @property
    def kept(self) -> int:
        """The number of the frame whose payload has come in part, as views of what arrived; 0 where there is none."""
        return self._begun if self._frame is not None else 0

    def is_one_frame(self, chunk: bytes) -> bool:
        """Return whether a chunk is one whole frame, and nothing else."""
        return (
            self.is_between_frames
            and len(chunk) >= HEAD_BYTES
            and len(chunk) == HEAD_BYTES + int.from_bytes(chunk[_LENGTH_AT : _LENGTH_AT + 4], "little")
        )

    def receive(self, chunk: Buffer) -> Iterator[Frame]:
        """Return the frames that are whole now, in order. Raises BrokenSessionError.

        They are cut as they are asked for, since a chunk may have very many: all of them, before the next chunk.
        """
        view = memoryview(chunk).cast("B")
        at, end = 0, len(view)
        while at < end:
            if self._frame is None:
                at = self._read_head(view, at)
                if self._frame is None:
                    return
            taken = min(self.missing_bytes, end - at)
            if taken:
                if self._memory is None:
                    self._frame.payload.append(view[at : at + taken])
                else:
                    filled = len(self._memory) - self.missing_bytes
                    self._memory[filled : filled + taken] = view[at : at + taken]
                self.missing_bytes -= taken
                at += taken
            if not self.missing_bytes:
                frame, self._frame = self._frame, None
                yield frame

    def _read_head(self, view: memoryview, at: int) -> int:
        """Return where the payload begins; there is no frame as long as the head is not whole."""
        if self._head or len(view) - at < HEAD_BYTES:
            taken = min(HEAD_BYTES - len(self._head), len(view) - at)
            self._head += view[at : at + taken]
            if len(self._head) == HEAD_BYTES:
                self._begin(self._head, 0)
                self._head = bytearray()
            return at + taken
        self._begin(view, at)
        return at + HEAD_BYTES

    def _begin(self, buffer: bytearray | memoryview, at: int) -> None:
        (kind, flags, reserved, channel, size, leader_epoch, first, second, third, fourth) = _HEAD.unpack_from(
            buffer, at
        )
        most = self._payload_bytes_max.get(kind)
        if most is None:
            known = ", ".join(f"{each:#04x}" for each in self._payload_bytes_max)
            raise BrokenSessionError(f"frame type {kind:#04x} is unknown: send one of {known}")
        if flags or reserved:
            raise BrokenSessionError(f"flags are {flags:#04x} and reserved is {reserved:#06x}: both must be 0")
        if size > most:
            raise BrokenSessionError(
                f"length is {size} in a frame of type {kind:#04x}: send {most} bytes at most in one frame"
            )
        self._memory = self._allocate(size) if self._allocate is not None and size else None
        payload = [] if self._memory is None else [self._memory]
        self._frame = Frame(kind, channel, leader_epoch, first, second, third, fourth, payload)
        self.missing_bytes = size
        self._begun += 1


class MessageTable(Generic[M]):
    def __init__(
        self, rows: Mapping[int, tuple[int, Callable[[Frame], M]]], check: Callable[[Frame], None] | None = None
    ) -> None:
        """`rows` has the longest payload and the unpacking of each kind. `check` refuses a frame by its head."""
        self._payload_bytes_max = {int(kind): payload_bytes_max for kind, (payload_bytes_max, _) in rows.items()}
        self._unpack = {int(kind): unpack for kind, (_, unpack) in rows.items()}
        self._check = check

    def reader(self, allocate: Callable[[int], memoryview] | None = None) -> FrameReader:
        """Make the reader of one stream; `allocate` as `FrameReader` has it."""
        return FrameReader(self._payload_bytes_max, allocate)

    def message(self, frame: Frame) -> M:
        """Unpack a frame of such a reader. Raises BrokenSessionError, and what else the kind says."""
        if self._check is not None:
            self._check(frame)
        return self._unpack[frame.kind](frame)
