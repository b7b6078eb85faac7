"""A CA bundle is read, or refused with a sentence."""

import ssl
from pathlib import Path

import pytest
import trustme

from headrace.core.errors import LocalError
from headrace.http2.origin import trusting


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
