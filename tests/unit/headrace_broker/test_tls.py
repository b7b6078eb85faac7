"""Which certificates a broker takes, and the sentence for each that it does not."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trustme import KeyType

from headrace_broker.tls import Pem, TlsMaterial, UnusableTlsError, load_certificate
from tests.support.certificates import Authority

AUTHORITY = Authority()


def material(secret: dict[str, bytes]) -> TlsMaterial:
    certificate, key, authority = (Pem(name, secret[name]) for name in ("tls.crt", "tls.key", "ca.crt"))
    return TlsMaterial(certificate, key, authority)


def test_should_take_a_good_one_and_know_when_it_expires() -> None:
    certificate = load_certificate(material(AUTHORITY.secret(expires="2999-05-01")), "localhost")
    assert (certificate.expires_s, certificate.doubt) == (32482512000, "")
    assert certificate.trust.get_ca_certs()


def test_should_leave_no_file_open() -> None:
    good = material(AUTHORITY.secret())
    before = len(os.listdir("/proc/self/fd"))
    load_certificate(good, "localhost")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"tls.crt": b"nonsense"}, "tls.crt holds no certificate that can be read: it must be PEM"),
        ({"tls.crt": b""}, "tls.crt holds no certificate that can be read: it must be PEM"),
        ({"ca.crt": b"nonsense"}, "ca.crt holds no certificate that can be read: it must be PEM"),
        ({"tls.key": b""}, "tls.key holds no private key that can be read: it must be PEM without a passphrase"),
        (
            {"tls.key": AUTHORITY.secret()["tls.key"]},
            "tls.key does not belong to tls.crt: give the key that the certificate was made for",
        ),
        (
            {"tls.key": AUTHORITY.secret(key_type=KeyType.RSA)["tls.key"]},
            "tls.key does not belong to tls.crt: give the key that the certificate was made for",
        ),
        (AUTHORITY.secret(expires="2020-01-01"), "tls.crt cannot be used: certificate has expired"),
    ],
)
def test_should_refuse_what_no_client_would_accept(change: dict[str, bytes], sentence: str) -> None:
    with pytest.raises(UnusableTlsError) as refused:
        load_certificate(material(AUTHORITY.secret() | change), "localhost")
    assert refused.value.message == sentence


@given(st.sampled_from(["tls.crt", "tls.key", "ca.crt"]), st.binary(max_size=200), st.integers(0, 600))
def test_should_refuse_with_a_sentence_whatever_the_bytes_are(name: str, noise: bytes, at: int) -> None:
    secret = AUTHORITY.secret()
    broken = secret[name][:at] + noise + secret[name][at + len(noise) :]
    with suppress(UnusableTlsError):  # Noise between two certificates does no harm.
        load_certificate(material(secret | {name: broken}), "localhost")


def test_should_refuse_a_key_with_a_passphrase_without_asking_for_it(tmp_path: Path) -> None:
    secret = AUTHORITY.secret()
    (tmp_path / "key").write_bytes(secret["tls.key"])
    command = ["openssl", "pkcs8", "-topk8", "-in", str(tmp_path / "key"), "-passout", "pass:secret"]
    locked = subprocess.run(command, capture_output=True, check=True).stdout
    with pytest.raises(UnusableTlsError, match=r"^tls\.key holds no private key .* without a passphrase$"):
        load_certificate(material(secret | {"tls.key": locked}), "localhost")


def test_should_refuse_a_key_that_is_too_weak(tmp_path: Path) -> None:
    command = "openssl req -x509 -newkey rsa:1024 -nodes -subj /CN=weak -keyout key -out crt"
    subprocess.run(command.split(), cwd=tmp_path, capture_output=True, check=True)
    weak = {"tls.crt": (tmp_path / "crt").read_bytes(), "tls.key": (tmp_path / "key").read_bytes()}
    with pytest.raises(UnusableTlsError, match=r"^tls\.crt cannot be used: EE_KEY_TOO_SMALL$"):
        load_certificate(material(AUTHORITY.secret() | weak), "localhost")


def test_should_refuse_a_certificate_that_is_for_clients_only(tmp_path: Path) -> None:
    command = (
        "openssl req -x509 -newkey ed25519 -nodes -subj /CN=c -addext extendedKeyUsage=clientAuth -keyout key -out crt"
    )
    subprocess.run(command.split(), cwd=tmp_path, capture_output=True, check=True)
    other = {"tls.crt": (tmp_path / "crt").read_bytes(), "tls.key": (tmp_path / "key").read_bytes()}
    with pytest.raises(
        UnusableTlsError, match=r"^tls\.crt cannot be used: un(supported|suitable) certificate purpose$"
    ):
        load_certificate(material(AUTHORITY.secret() | other), "localhost")


def test_should_doubt_one_that_other_brokers_will_not_accept() -> None:
    elsewhere = load_certificate(material(AUTHORITY.secret("broker-0.example")), "broker-1.example")
    assert elsewhere.doubt.startswith("has a certificate that does not cover 'broker-1.example'")
    another = load_certificate(material(AUTHORITY.secret() | {"ca.crt": Authority().pem}), "localhost")
    assert another.doubt.startswith("has a certificate of an authority that is not trusted here")
