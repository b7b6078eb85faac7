"""HPACK around the coder in Rust: what it would let through is refused, whatever else comes is an error of ours."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jh2.hpack.huffman_constants import REQUEST_CODES_LENGTH

from headrace.core import limits
from headrace.http2 import hpack
from headrace.http2.events import ErrorCode, Fields, RemoteProtocolError
from headrace.http2.header_fields import Message, check_request
from headrace.http2.hpack import (
    H2_HEADER_FIELDS_MAX,
    H2_HEADS_REMEMBERED_MAX,
    H2_REMEMBERED_HEAD_BYTES_MAX,
    HeaderDecoder,
    HeaderEncoder,
)
from tests.support.http2 import GET

names = st.from_regex(rb"[a-z-]{1,20}", fullmatch=True)
some_fields = st.lists(st.tuples(names, st.binary(max_size=60)), max_size=12)


def unchecked(fields: Fields) -> Message:
    return Message(None)


def decoder() -> HeaderDecoder:
    return HeaderDecoder(unchecked)


@given(st.lists(some_fields, max_size=6), st.lists(st.sampled_from([0, 40, 4096, 1 << 20]), max_size=6))
def test_should_carry_heads_whatever_the_peers_table(heads: list[Fields], tables: list[int]) -> None:
    encoder, decode = HeaderEncoder(), decoder().decode
    for index, fields in enumerate(heads):
        if index < len(tables):
            encoder.limit_table(tables[index])
        assert decode(encoder.encode(fields)).fields == fields


def test_should_remember_a_head_until_the_table_changes() -> None:
    encoder, heads = HeaderEncoder(), HeaderDecoder(check_request)
    first, again = (heads.decode(encoder.encode(GET)) for _ in range(2))
    assert first.message == Message(None)
    assert again is not first, "the first filled the table"
    assert heads.decode(encoder.encode(GET)) is again
    heads.decode(encoder.encode([*GET, (b"x-new", b"1")]))
    assert heads.decode(encoder.encode(GET)) == again
    assert heads.decode(encoder.encode([(b":method", b"GET")])).message is None, "it is malformed"


def test_should_remember_only_so_many_heads() -> None:
    heads = decoder()
    for count in range(3 * H2_HEADS_REMEMBERED_MAX):
        heads.decode(b"\x82" * count)
    assert 0 < len(heads._remembered) <= H2_HEADS_REMEMBERED_MAX
    long = HeaderEncoder().encode([(b"authorization", b"x" * H2_REMEMBERED_HEAD_BYTES_MAX)])
    assert heads.decode(long) is not heads.decode(long)


def test_should_keep_secrets_out_of_the_tables() -> None:
    encoder = HeaderEncoder()
    secret = [(b"authorization", b"Bearer x")]
    block = encoder.encode(secret)
    assert block[0] & 0xF0 == 0x10, "never indexed"
    assert encoder.encode(secret) == block


def test_should_know_the_huffman_code() -> None:
    assert list(hpack._CODE_BITS) == REQUEST_CODES_LENGTH[:256]


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xbe",  # beyond both tables
        b"\x82\x20",  # a table size update at the end
        b"\x3f\xe2\x1f\x82",  # a table larger than ours
        b"\x00",  # no name
        b"\x00\x01a",  # no value
        b"\x40\x01a\x05b",  # half a value
        b"\x1f",  # half an index
        b"\x7f\xff\xff\xff\xff\xff\xff\x01",  # an endless number
        b"\x00\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90",  # padded with zeros
        b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff",  # padded with more than seven bits
        b"\x00\x85\xf2\xb2\x4a\x84\xff\x87\xff\xff\xff\xff\xff\xff\xff",  # with the end of string in it
    ],
    ids=lambda block: block.hex(),
)
def test_should_refuse_a_damaged_block(block: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="a head that cannot be decompressed") as refused:
        decoder().decode(block)
    assert refused.value.details["error_code"] == ErrorCode.COMPRESSION_ERROR


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.lists(
                st.sampled_from([0, 1, 0x10, 0x1F, 0x20, 0x3F, 0x40, 0x7F, 0x80, 0x82, 0xBE, 0xFF]), max_size=12
            ).map(bytes),
        ),
        max_size=4,
    )
)
def test_should_raise_nothing_but_its_own_error(blocks: list[bytes]) -> None:
    """A panic of the coder in Rust would not even be an `Exception`."""
    heads = decoder()
    with suppress(RemoteProtocolError):
        for block in blocks:
            heads.decode(block)


def test_should_take_updates_at_the_front() -> None:
    assert decoder().decode(b"\x20\x3f\xe1\x1f\x82").fields == [(b":method", b"GET")]


@pytest.mark.parametrize(
    "fields",
    [
        [(b"x-long", b"z" * limits.H2_HEADER_LIST_BYTES_MAX)],
        [(b"x", b"y")] * (H2_HEADER_FIELDS_MAX + 1),
        [(b"x", b"y" * 3000)] * 30,
    ],
    ids=["one long", "very many", "one entry of the table again and again"],
)
def test_should_refuse_more_than_the_limit(fields: Fields) -> None:
    with pytest.raises(RemoteProtocolError, match="header fields") as refused:
        decoder().decode(HeaderEncoder().encode(fields))
    assert refused.value.details["error_code"] == ErrorCode.ENHANCE_YOUR_CALM
