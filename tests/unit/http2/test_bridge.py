"""Request heads as aiohttp's parser would have them, whatever a client sends."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.http2.bridge import request_message
from headrace.http2.events import Fields
from tests.support.http2 import GET


def with_path(path: bytes, *more: tuple[bytes, bytes]) -> Fields:
    return [*GET[:3], (b":path", path), *more]


def test_should_give_method_url_and_headers() -> None:
    message = request_message(with_path(b"/a%20b/c?x=1&y=%2F#cut", (b"x-a", b"1"), (b"expect", b"100-continue")))
    assert message is not None
    assert (message.method, message.path, tuple(message.version)) == ("GET", "/a%20b/c?x=1&y=%2F#cut", (2, 0))
    assert (message.url.path, message.url.raw_query_string) == ("/a b/c", "x=1&y=%2F")
    assert dict(message.headers) == {"x-a": "1", "Host": "broker:1"}


@given(st.binary(max_size=30))
def test_should_never_raise_when_a_path_is_arbitrary(path: bytes) -> None:
    message = request_message(with_path(path))
    assert message is None or path.startswith(b"/")
    slashed = request_message(with_path(b"/" + path))
    assert slashed is None or slashed.url.raw_path.startswith("/")


def test_should_refuse_what_has_no_path() -> None:
    assert request_message(with_path(b"")) is None
    assert request_message(with_path(b"*")) is None
    assert request_message([(b":method", b"CONNECT"), (b":authority", b"broker:1")]) is None
    assert request_message([(b":path", b"/")]) is None
