"""Header fields: what may go out, and how they come in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.http2.events import LocalProtocolError
from headrace.http2.header_fields import decode_fields, encode_fields, request_fields, response_head


def test_should_lower_names_and_drop_connection_headers() -> None:
    headers = {
        "X-A": "1",
        "Connection": "close",
        "Transfer-Encoding": "chunked",
        "Host": "elsewhere",
        "Keep-Alive": "5",
    }
    assert encode_fields(headers.items()) == [(b"x-a", b"1")]


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("x a", "1", "name"),
        ("", "1", "name"),
        (":path", "/", "name"),
        ("x", "a\r\nb: c", "value"),
        ("x", " a", "value"),
    ],
)
def test_should_name_the_header_when_it_is_invalid(name: str, value: str, word: str) -> None:
    with pytest.raises(LocalProtocolError, match=word):
        encode_fields([(name, value)])


def test_should_refuse_headers_when_a_peer_would_not_take_them() -> None:
    with pytest.raises(LocalProtocolError, match="at most 32768"):
        encode_fields([("x", "y" * 40_000)])


@pytest.mark.parametrize("method", ["", "GET /", "GÉT"])
def test_should_refuse_a_method_when_it_is_not_letters(method: str) -> None:
    with pytest.raises(LocalProtocolError, match="method"):
        request_fields(method, "http", "a:1", "/", {})


@given(st.lists(st.tuples(st.sampled_from([b"x-a", b"x-b", b"cookie"]), st.binary(max_size=20))))
def test_should_decode_any_bytes(fields: list[tuple[bytes, bytes]]) -> None:
    decoded = decode_fields(fields)
    plain = [(name, value) for name, value in fields if name != b"cookie"]
    assert [(n.encode(), v.encode("utf-8", "surrogateescape")) for n, v in decoded if n != "cookie"] == plain


def test_should_join_cookies_and_repeated_headers() -> None:
    assert decode_fields([(b"cookie", b"a=1"), (b"x", b"y"), (b"cookie", b"b=2")])[-1] == ("cookie", "a=1; b=2")
    assert response_head([(b":status", b"204"), (b"x", b"1"), (b"x", b"2")]) == (204, {"x": "1, 2"})
