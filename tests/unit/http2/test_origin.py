"""URLs: where they point, and what is asked there.

A CA bundle is read, or refused with a sentence.
"""

import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
import trustme

from headrace.core.errors import InvalidRequestError, LocalError
from headrace.http2.frames import Buffer
from headrace.http2.origin import Origin, parse_request, parse_url, trusting, whole_request


@pytest.mark.parametrize(
    ("url", "origin", "target"),
    [
        ("http://broker:9701/v1/cluster", Origin("http", "broker", 9701), "/v1/cluster"),
        ("https://broker", Origin("https", "broker", 443), "/"),
        ("http://[::1]:80/a?b=c%20d&e=f g#part", Origin("http", "::1", 80), "/a?b=c%20d&e=f%20g"),
        ("http://a/ä", Origin("http", "a", 80), "/%C3%A4"),
    ],
)
def test_should_find_origin_and_target(url: str, origin: Origin, target: str) -> None:
    assert parse_url(url) == (origin, target)


@pytest.mark.parametrize(
    "url", ["broker:9701", "ftp://broker/", "http:///x", "http://broker:99999/", "http://u:p@broker/"]
)
def test_should_say_what_a_url_must_be_when_it_is_not(url: str) -> None:
    with pytest.raises(InvalidRequestError, match="url"):
        parse_url(url)


def test_should_put_brackets_around_an_ipv6_address() -> None:
    assert Origin("http", "::1", 9701).authority == "[::1]:9701"


@pytest.mark.parametrize(
    ("method", "headers", "size", "length"),
    [("GET", {}, 0, None), ("POST", {}, 0, b"0"), ("PUT", {}, 7, b"7"), ("POST", {"Content-Length": "7"}, 7, b"7")],
)
def test_should_announce_the_length_once(method: str, headers: dict[str, str], size: int, length: bytes | None) -> None:
    fields = parse_request(method, "http://a/", headers, size).fields
    assert [value for name, value in fields if name == b"content-length"] == ([length] if length is not None else [])


@pytest.mark.parametrize("body", [b"flight", bytearray(b"flight"), [b"fl", memoryview(b"ight")], (), b""])
def test_should_take_a_body_in_one_piece_or_in_several(body: Buffer | Sequence[Buffer]) -> None:
    request, buffers = whole_request("POST", "http://a/b?c", None, body)
    whole = b"".join(buffers)
    assert (request.name, whole) == ("POST /b", b"flight" if body else b"")
    assert (b"content-length", str(len(whole)).encode()) in request.fields


def test_should_trust_what_the_bundle_holds_and_nothing_else(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    authorities = [trustme.CA(), trustme.CA()]
    pem = b"".join("# Autorität\n".encode() + authority.cert_pem.bytes() for authority in authorities)
    bundle.write_bytes(pem)
    context = trusting(str(bundle))
    assert len(context.get_ca_certs()) == 2
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_should_trust_the_system_when_no_bundle_is_named() -> None:
    assert trusting(None).verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("content", [b"", b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_should_say_so_when_a_bundle_holds_no_certificate(tmp_path: Path, content: bytes) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(content)
    with pytest.raises(LocalError, match=rf"^CA file {bundle} holds no certificate that can be read; give the PEM"):
        trusting(str(bundle))


def test_should_say_so_when_there_is_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"ca\.pem cannot be read: No such file or directory; give the PEM file"):
        trusting(str(tmp_path / "ca.pem"))
