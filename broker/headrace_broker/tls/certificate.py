"""From PEM bytes to contexts that TLS can use, or to the sentence that says why not.

A certificate is judged by what clients will do with it: a whole handshake is rehearsed in memory, so that one which is
expired, or not for servers, never gets in front of a client. OpenSSL reads keys from files alone: the bytes reach it
through files in memory, because what was checked must be what is used, and a Secret's key has no business on a disk.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from headrace.core.errors import LocalError
from headrace.http2.origin import trusting, trusting_bundle, why_untrusted
from headrace_broker.tls.material import Material, Pem, UnusableTlsError

_ALPN_PROTOCOLS = ["h2", "http/1.1"]
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: those that HTTP/2 allows (RFC 9113, section 9.2.2). TLS 1.3 has its own."""
_MISMATCHES = frozenset({"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})
"""The last one: there is no certificate for a key of this type."""
_FLIGHTS_MAX = 4
"""More than a handshake of TLS 1.2 or 1.3 takes."""


@dataclass(frozen=True, slots=True)
class Certificate:
    server: ssl.SSLContext
    trust: ssl.SSLContext
    """For this broker as a client of other brokers."""
    expires_s: int
    """Unix time."""
    doubt: str
    """Why other brokers will not accept it, as the rest of a sentence about this one; empty when they will."""


def load(material: Material, host: str) -> Certificate:
    """`host` is where clients reach this broker. Raises UnusableTlsError."""
    itself = _trust(material.certificate)
    itself.check_hostname = False
    itself.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Python 3.13's default; other clients are less strict.
    trust = trusting(None) if material.authority is None else _trust(material.authority)
    server = _server_context(material)
    try:
        seen = _rehearse(server, itself, host)
    except ssl.SSLCertVerificationError as error:
        raise UnusableTlsError(f"{material.certificate.name} cannot be used: {error.verify_message}") from None
    except ssl.SSLError as error:
        raise UnusableTlsError(f"{material.certificate.name} cannot be used: {error.reason}") from None
    return Certificate(server, trust, _expiry(seen), _doubt(server, trust, host))


def new_server_context() -> ssl.SSLContext:
    """A server's context without a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(_ALPN_PROTOCOLS)
    return context


def _trust(pem: Pem) -> ssl.SSLContext:
    try:
        return trusting_bundle(pem.content, pem.name)
    except LocalError:
        raise UnusableTlsError(f"{pem.name} holds no certificate that can be read: it must be PEM") from None


def _server_context(material: Material) -> ssl.SSLContext:
    context = new_server_context()
    with ExitStack() as files:
        certificate, key = (
            files.enter_context(_in_memory(pem.content)) for pem in (material.certificate, material.key)
        )
        try:
            # Without a password of our own OpenSSL would ask for one at the terminal.
            context.load_cert_chain(certificate, key, password="")
        except ssl.SSLError as error:
            raise UnusableTlsError(_why_not_loaded(material, error)) from None
    return context


def _why_not_loaded(material: Material, error: ssl.SSLError) -> str:
    certificate, key = material.certificate.name, material.key.name
    if error.reason in _MISMATCHES:
        return f"{key} does not belong to {certificate}: give the key that the certificate was made for"
    if error.reason:
        return f"{certificate} cannot be used: {error.reason}"
    return f"{key} holds no private key that can be read: it must be PEM without a passphrase"


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """The path of a file that only this process can see, and only for so long."""
    file = os.memfd_create("headrace-tls")
    try:
        os.write(file, content)
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)


def _rehearse(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """The client's end of a handshake between the two. Raises ssl.SSLError, on whichever side it fails."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(_FLIGHTS_MAX):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[0]


def _expiry(seen: ssl.SSLObject) -> int:
    described = seen.getpeercert()
    assert described is not None, "the handshake is over"
    not_after = described["notAfter"]
    assert isinstance(not_after, str), "RFC 5280 dates are text here"
    return int(ssl.cert_time_to_seconds(not_after))


def _doubt(server: ssl.SSLContext, trust: ssl.SSLContext, host: str) -> str:
    try:
        _rehearse(server, trust, host)
    except ssl.SSLCertVerificationError as error:
        return why_untrusted(error, host)
    return ""
