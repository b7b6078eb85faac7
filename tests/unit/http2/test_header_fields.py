"""The heads that HTTP/2 allows, case by case (RFC 9113 section 8).

Header fields: what may go out, and how they come in.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.http2.events import Fields, LocalProtocolError
from headrace.http2.header_fields import (
    MalformedError,
    Message,
    check_request,
    check_response,
    check_trailers,
    decode_fields,
    encode_fields,
    request_fields,
    response_head,
)
from tests.support.http2 import GET, OK, POST


def without(name: bytes) -> Fields:
    return [field for field in GET if field[0] != name]


def replaced(name: bytes, value: bytes) -> Fields:
    return [(each, value if each == name else old) for each, old in GET]


CONNECT: Fields = [(b":method", b"CONNECT"), (b":authority", b"there:1")]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (GET, Message(None)),
        ([*POST, (b"content-length", b"12"), (b"content-length", b"12")], Message(12)),
        ([*GET, (b"te", b"trailers"), (b"host", b"broker:1"), (b"x-empty", b""), (b"x", b"a b\tc")], Message(None)),
        ([*without(b":authority"), (b"host", b"broker:1")], Message(None)),
        ([*replaced(b":method", b"OPTIONS")[:3], (b":path", b"*")], Message(None)),
        (CONNECT, Message(None)),
        ([*GET, (b"x-" * 100, b"")], Message(None)),
    ],
)
def test_should_allow_requests(fields: Fields, message: Message) -> None:
    assert check_request(fields) == message


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([], "no :method"),
        (without(b":method"), "no :method"),
        (without(b":scheme"), "needs :scheme"),
        (without(b":path"), "needs :scheme, and a :path"),
        (replaced(b":path", b""), "begins with a slash"),
        (replaced(b":path", b"*"), "begins with a slash"),
        ([*GET, GET[0]], "a pseudo header twice"),
        ([*GET, (b":status", b"200")], "requests do not have"),
        ([(b":protocol", b"websocket"), *GET], "requests do not have"),
        ([GET[0], (b"x", b"1"), *GET[1:]], "needs :scheme"),
        ([*GET, (b"x", b"1"), (b":authority", b"late")], "pseudo header that comes too late"),
        ([*CONNECT, (b":path", b"/")], "CONNECT has"),
        ([*GET, (b"X-Upper", b"1")], "name of a header field"),
        ([*GET, (b"X-" * 100, b"")], "name of a header field"),
        ([*GET, (b"", b"1")], "name of a header field"),
        ([*GET, (b"a b", b"1")], "name of a header field"),
        ([*GET, (b"a\n", b"1")], "name of a header field"),
        ([*GET, (b"x", b"1\r\n")], "value of a header field"),
        ([*GET, (b"x", b"\0")], "value of a header field"),
        ([*GET, (b"x", b" 1")], "value of a header field"),
        ([*GET, (b"x", b"1\t")], "value of a header field"),
        (replaced(b":path", b"/a\nb"), "value of a header field"),
        ([*GET, (b"connection", b"close")], "HTTP/1.1 connections"),
        ([*GET, (b"transfer-encoding", b"chunked")], "HTTP/1.1 connections"),
        ([*GET, (b"te", b"gzip")], "HTTP/1.1 connections"),
        ([*GET, (b"host", b"other:2")], "host and its :authority differ"),
        ([*GET, (b"content-length", b"1"), (b"content-length", b"2")], "content-length"),
        ([*GET, (b"content-length", b"-1")], "content-length"),
        ([*GET, (b"content-length", b"9" * 19)], "content-length"),
    ],
)
def test_should_refuse_malformed_requests(fields: Fields, why: str) -> None:
    with pytest.raises(MalformedError, match=why):
        check_request(fields)


def test_should_tell_responses_apart() -> None:
    assert check_response([*OK, (b"content-length", b"3")]) == Message(3)
    assert check_response([(b":status", b"304"), (b"content-length", b"3")]) == Message(3, is_bodyless=True)
    assert check_response([(b":status", b"103")]).is_interim


@pytest.mark.parametrize("fields", [[], GET, [(b":status", b"101")], [(b":status", b"20")], [*OK, *OK], [*OK, *GET]])
def test_should_refuse_malformed_responses(fields: Fields) -> None:
    with pytest.raises(MalformedError, match=r"status|twice"):
        check_response(fields)


def test_should_refuse_pseudo_headers_in_trailers() -> None:
    check_trailers([(b"x-checksum", b"1")])
    check_trailers([])
    with pytest.raises(MalformedError, match="trailers have a pseudo header"):
        check_trailers(OK)


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
