"""Compressed heads (HPACK, RFC 7541) around jh2's coder in Rust, with the checks that the coder leaves out.

Each connection has one `HeaderEncoder` and one `HeaderDecoder`, for its lifetime. Both keep a table that must not lose
step with the peer's, so every head passes through here, wanted or not, and one that cannot be decoded ends the
connection. Before the decoder sees a block, `_survey` walks over its representations (RFC 7541 section 6), because the
decoder panics where a string is missing, takes table size updates anywhere (section 4.2 has them at the front) and any
padding of Huffman codes (section 5.2), and has no limit for the number of fields.

Invariant: a block that does not change the table means the same as long as the table stays as it is; such heads are
remembered by their bytes until it changes. The engine and its receiver call it.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from jh2._hazmat import Decoder, Encoder, HPACKError, OversizedHeaderListError

from headrace.core import limits
from headrace.http2.events import ErrorCode, Fields, RemoteProtocolError
from headrace.http2.frames import connection_error
from headrace.http2.header_fields import MalformedError, Message

H2_HEADER_FIELDS_MAX = 256
H2_HEADS_REMEMBERED_MAX = 16
"""The number of decoded heads that a connection keeps by their bytes: clients send the same few again and again."""
H2_REMEMBERED_HEAD_BYTES_MAX = 2 << 10
"""The size of one of them: idle connections must stay cheap, whatever their heads were."""


_NEVER_INDEXED: Final = frozenset({b"authorization", b"cookie", b"proxy-authorization", b"set-cookie"})
"""Fields with secrets, which stay out of the tables of every hop (RFC 7541 section 7.1.3)."""
_CODE_BITS: Final = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a080b08060606"
    "0505050606060606060607080f060c0a0d06070707070707070707070707070707070707070707070807080d130d0e06"
    "0f05060506050606060507070606060506070605050607070707070f0b0e0d1c14161414161616171617171717171817"
    "181816171817171717151617161717181615141616171715171616181516171715151615171617171416161617161617"
    "1a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a1c1b1b1b14181415161515171616191918181a17"
    "1a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a"
)
"""The number of bits that each byte has in the Huffman code (RFC 7541 appendix B)."""
_INTEGER_BYTES_MAX: Final = 5
"""The number of bytes after the prefix (RFC 7541 section 5.1): more would be beyond every limit."""

_Coded = tuple[int, int, int, int]
"""A Huffman-coded string: number of its field, name (0) or value (1), coded bytes, the last of them."""


class HeaderEncoder:
    def __init__(self) -> None:
        self._encoder = Encoder()

    def limit_table(self, size: int) -> None:
        """Limit the peer's table to `size` bytes; ours never grows beyond our own limit."""
        self._encoder.header_table_size = min(size, limits.H2_HEADER_TABLE_BYTES)

    def encode(self, fields: Fields) -> bytes:
        # Without Huffman codes: they save a third of the few bytes that the table does not, for twice the time.
        marked = [(name, value, name in _NEVER_INDEXED) for name, value in fields]
        block: bytes = self._encoder.encode(marked, huffman=False)
        return block


class Head(NamedTuple):
    fields: Fields
    """The fields as they came; they must not be changed, as the next head may be the same object."""
    message: Message | None
    """The message that they describe; None where it is malformed."""


class HeaderDecoder:
    def __init__(self, check: Callable[[Fields], Message]) -> None:
        """Take `check` for the heads that the peer sends: requests or responses."""
        self._check = check
        self._decoder = Decoder(limits.H2_HEADER_LIST_BYTES_MAX)
        self._remembered: dict[bytes, Head] = {}

    def decode(self, block: bytes) -> Head:
        """Decode one block. Raises `RemoteProtocolError`; then this decoder cannot be used any more."""
        remembered = self._remembered.get(block)
        if remembered is not None:
            return remembered
        try:
            changes_table, coded = _survey(block)
            fields: Fields = [(name, value) for name, value, _ in self._decoder.decode(block, raw=True)]
        except (HPACKError, IndexError) as error:
            raise _damaged(str(error)) from error
        except OversizedHeaderListError as error:
            what = f"a head of more than {limits.H2_HEADER_LIST_BYTES_MAX} bytes of header fields"
            raise connection_error(what, ErrorCode.ENHANCE_YOUR_CALM) from error
        _check_padding(fields, coded)
        head = Head(fields, self._message(fields))
        if changes_table or len(self._remembered) >= H2_HEADS_REMEMBERED_MAX:
            self._remembered.clear()
        if not changes_table and _size(block, fields) <= H2_REMEMBERED_HEAD_BYTES_MAX:
            self._remembered[block] = head
        return head

    def _message(self, fields: Fields) -> Message | None:
        try:
            return self._check(fields)
        except MalformedError:
            return None


def _size(block: bytes, fields: Fields) -> int:
    return len(block) + sum([len(name) + len(value) for name, value in fields])


def _survey(block: bytes) -> tuple[bool, list[_Coded]]:
    """Return whether the block changes the table, and its Huffman-coded strings.

    Raises `RemoteProtocolError` for what the decoder would not notice, IndexError where the block ends too early.
    """
    at, end, count, changes_table = 0, len(block), 0, False
    coded: list[_Coded] = []
    while at < end:
        first = block[at]
        if first >= 0x80:  # Indexed field.
            at = at + 1 if first != 0xFF else _integer(block, at, 0x7F)[1]
        elif first & 0xE0 == 0x20:  # Dynamic table size update.
            if count:
                raise _damaged("a table size update comes after a field")
            changes_table = True
            at = _integer(block, at, 0x1F)[1]
            continue
        else:  # Literal field: with incremental indexing (01), without (0000), never indexed (0001).
            mask = 0x3F if first & 0x40 else 0x0F
            changes_table = changes_table or mask == 0x3F
            at = at + 1 if first & mask != mask else _integer(block, at, mask)[1]
            if not first & mask:
                at = _string(block, at, count, 0, coded)
            at = _string(block, at, count, 1, coded)
        count += 1
    if at > end:
        raise _damaged("it ends within a string")
    if count > H2_HEADER_FIELDS_MAX:
        what = f"a head of {count} header fields; at most {H2_HEADER_FIELDS_MAX} are taken"
        raise connection_error(what, ErrorCode.ENHANCE_YOUR_CALM)
    return changes_table, coded


def _string(block: bytes, at: int, count: int, part: int, coded: list[_Coded]) -> int:
    """Return where the string that begins at `at` ends."""
    first = block[at]
    length, at = (first & 0x7F, at + 1) if first & 0x7F != 0x7F else _integer(block, at, 0x7F)
    if first & 0x80 and length:
        coded.append((count, part, length, block[at + length - 1]))
    return at + length


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Return a number with a prefix of `mask`, and where it ends (RFC 7541 section 5.1)."""
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    for shift in range(0, 7 * _INTEGER_BYTES_MAX, 7):
        more = block[at]
        at += 1
        value += (more & 0x7F) << shift
        if more < 0x80:
            return value, at
    raise _damaged("a number in it is too large")


def _check_padding(fields: Fields, coded: list[_Coded]) -> None:
    """Check the padding (RFC 7541 section 5.2): fewer than eight bits, all ones."""
    for count, part, length, last in coded:
        padding = 8 * length - sum(fields[count][part].translate(_CODE_BITS))
        ones = (1 << padding) - 1 if 0 <= padding < 8 else 0x100
        if last & ones != ones:
            raise _damaged("a Huffman-coded string is padded wrongly")


def _damaged(why: str) -> RemoteProtocolError:
    return connection_error(f"a head that cannot be decompressed: {why}", ErrorCode.COMPRESSION_ERROR)
