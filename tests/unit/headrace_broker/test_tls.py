"""The certificates that a broker accepts, and the sentence for each that it does not.

A new certificate replaces the one in use, whatever the moment at which it comes.

A Secret is read once the API server answers, whatever moment it was away at.
"""

import os
import resource
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from trustme import KeyType

from headrace.core.resources.kubernetes_objects import Secret
from headrace.core.resources.metadata import Metadata
from headrace.http2.async_transport import AsyncTransport
from headrace.kube.client import KubeClient
from headrace.kube.errors import ApiError, ApiUnavailableError, ForbiddenError, NotFoundError
from headrace_broker.tls import (
    Pem,
    TlsIdentity,
    TlsMaterial,
    UnreadableTls,
    UnusableTlsError,
    WatchedSecret,
    load_certificate,
)
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


def material_until(expires: str) -> TlsMaterial:
    secret = AUTHORITY.secret(expires=expires)
    return TlsMaterial(*(Pem(name, secret[name]) for name in ("tls.crt", "tls.key", "ca.crt")))


@contextmanager
def no_more_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class ShortOfFiles:
    """A source whose new certificate comes while this process can open no more files, and is there afterwards."""

    def __init__(self) -> None:
        self._new = material_until("2999-05-01")

    async def read(self) -> TlsMaterial | UnreadableTls:
        return material_until("2998-05-01")

    async def changes(self) -> AsyncGenerator[TlsMaterial | UnreadableTls, None]:
        with no_more_files():
            yield self._new
        yield self._new


async def test_should_take_a_certificate_once_there_are_files_for_it() -> None:
    registry = CollectorRegistry()
    async with AsyncTransport() as transport:
        identity = TlsIdentity(ShortOfFiles(), "localhost", transport, registry)
        await identity.take_on()
        await identity.keep_fresh()
    assert registry.get_sample_value("headrace_broker_tls_certificate_expiry_timestamp_seconds") == 32482512000
    assert registry.get_sample_value("headrace_broker_tls_reloads_total", {"outcome": "loaded"}) == 1


AWAY = ApiUnavailableError("nobody answers")
SECRET = Secret(Metadata(name="brokers-tls", namespace="default"), {"tls.crt": b"certificate", "tls.key": b"key"})


class Api:
    """Answers so, one after the other."""

    def __init__(self, *answers: Secret | ApiError) -> None:
        self.answers = list(answers)

    async def get(self, *_: object) -> Secret:
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


async def read(*answers: Secret | ApiError) -> TlsMaterial | UnreadableTls:
    api = Api(*answers)
    found = await WatchedSecret(cast("KubeClient", api), "default", "brokers-tls").read()
    assert api.answers == [], "it is read once"
    return found


async def test_should_wait_for_an_api_server_that_is_away() -> None:
    found = await read(AWAY, AWAY, SECRET)
    assert isinstance(found, TlsMaterial)
    assert (found.certificate.content, found.key.content, found.authority) == (b"certificate", b"key", None)


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (NotFoundError("no such Secret"), "Secret default/brokers-tls is not there"),
        (ForbiddenError("not for you"), "Secret default/brokers-tls cannot be read: not for you"),
    ],
)
async def test_should_wait_for_no_other_answer(refusal: ApiError, said: str) -> None:
    found = await read(AWAY, refusal)
    assert isinstance(found, UnreadableTls)
    assert found.reason.startswith(said)
