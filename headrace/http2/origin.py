"""The origin that a URL names: the server to connect to, what to ask of it, and whom to trust for it over TLS.

A client trusts the authorities of a PEM bundle, or the system's. TLS contexts are made once and given to a transport;
one that is replaced keeps serving the connections that it made. Clients use them for their brokers, and brokers for
each other. Errors say in one sentence why a server cannot be reached or is not trusted.
"""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from headrace.core.errors import BrokerUnreachableError, InvalidRequestError, LocalError, UntrustedBrokerError
from headrace.http2.events import Fields
from headrace.http2.frames import Buffer
from headrace.http2.header_fields import request_fields

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SAFE_IN_TARGET = "/%?&=:@!$'()*+,;~[]"
"""The characters that stay as they are in a path and query; others are percent-encoded, an existing escape is kept."""
_REMEDY = "give the PEM file of the authority that signed the brokers' certificates"
_UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})
_OTHER_NAME = frozenset({62, 63, 64})


@dataclass(frozen=True, slots=True)
class Origin:
    """A server; connections are pooled by it."""

    scheme: str
    host: str
    port: int

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Return the authority, for `:authority` and for messages; always with the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_url(url: str) -> tuple[Origin, str]:
    """Return the origin and the request target (path and query, encoded). Raises `InvalidRequestError`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidRequestError(f"url {url!r} is not valid: {error}") from None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise InvalidRequestError(
            f"url {url!r} is not valid: it must be http://host:port/path or https://host:port/path"
        )
    if parts.username is not None:
        raise InvalidRequestError("a url must not carry a user or password: send an Authorization header")
    target = quote(parts.path or "/", safe=_SAFE_IN_TARGET)
    if parts.query:
        target += "?" + quote(parts.query, safe=_SAFE_IN_TARGET)
    return Origin(parts.scheme, parts.hostname, port or _DEFAULT_PORTS[parts.scheme]), target


@dataclass(slots=True)
class Attempts:
    """The failed attempts to connect to one server.

    A caller that waited for another's attempt shares its failure: tried one after the other, a server that does not
    answer would cost the last of them all time-outs in a row.
    """

    failures: int = 0
    _kind: type[BrokerUnreachableError] = BrokerUnreachableError
    _message: str = ""

    def failed(self, error: BrokerUnreachableError) -> None:
        self.failures += 1
        self._kind, self._message = type(error), error.message

    def check_since(self, failures: int) -> None:
        """Raise BrokerUnreachableError where an attempt has failed since `failures` was read."""
        if self.failures != failures:
            raise self._kind(self._message, unprocessed=True)


@dataclass(frozen=True, slots=True)
class Request:
    """A request, checked and ready to be sent."""

    origin: Origin
    fields: Fields
    name: str
    """The method and path, for messages."""


def parse_request(method: str, url: str, headers: Mapping[str, str], body_bytes: int | None) -> Request:
    """Check a request. `body_bytes` is None where the length of the body is not known yet.

    Raises `InvalidRequestError` for the URL, `LocalProtocolError` for method and headers.
    """
    origin, target = parse_url(url)
    fields = request_fields(method, origin.scheme, origin.authority, target, headers)
    announced = any(name == b"content-length" for name, _ in fields)
    if body_bytes is not None and not announced and (body_bytes or method.upper() in {"POST", "PUT", "PATCH"}):
        fields.append((b"content-length", str(body_bytes).encode("ascii")))
    return Request(origin, fields, f"{method.upper()} {target.partition('?')[0]}")


def whole_request(
    method: str, url: str, headers: Mapping[str, str] | None, body: Buffer | Sequence[Buffer]
) -> tuple[Request, list[Buffer]]:
    """Return a request whose body is all there, and the buffers of that. Raises what `parse_request` raises."""
    buffers = [body] if isinstance(body, (bytes, bytearray, memoryview)) else list(body)
    return parse_request(method, url, headers or {}, sum(memoryview(buffer).nbytes for buffer in buffers)), buffers


def unreachable(origin: Origin, reason: str) -> BrokerUnreachableError:
    """Return the error of a server to which nothing was sent; `reason` continues a sentence about the broker."""
    return BrokerUnreachableError(f"broker {origin.authority} {reason}", unprocessed=True)


def client_tls(ssl_context: ssl.SSLContext | None) -> ssl.SSLContext:
    """Return the context for `https` origins: the caller's, or one that trusts the system's roots. Offers `h2` by
    ALPN."""
    context = ssl_context or ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    return context


# What OpenSSL says in X509_verify_cert: the numbers are part of its interface (x509_vfy.h).
_NOT_YET_VALID, _EXPIRED = 9, 10


def trusting(ca_file: str | None) -> ssl.SSLContext:
    """Return a client's context that verifies servers against `ca_file`, a PEM bundle; None: against the system's
    roots.

    Raises LocalError where the file cannot be read or holds no certificate.
    """
    if ca_file is None:
        return ssl.create_default_context()
    try:
        bundle = Path(ca_file).read_bytes()
    except OSError as error:
        raise LocalError(f"CA file {ca_file} cannot be read: {error.strerror or error}; {_REMEDY}") from None
    return trusting_bundle(bundle, f"CA file {ca_file}")


def trusting_bundle(bundle: bytes, source: str) -> ssl.SSLContext:
    """Return the same for PEM bytes that are known already; `source` names them in the error."""
    # Text between the certificates of a bundle may be in any language; OpenSSL's text must be ASCII.
    text = bundle.decode("ascii", errors="ignore")
    try:
        context = ssl.create_default_context(cadata=text or "-")
    except ssl.SSLError:
        raise LocalError(f"{source} holds no certificate that can be read; {_REMEDY}") from None
    # Some builds of Python leave this to the system's configuration of OpenSSL.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Python 3.13's own default: an authority in the bundle is trusted whether or not its issuer is there too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def tls_error(origin: Origin, error: OSError) -> BrokerUnreachableError:
    """Return why TLS with `origin` failed, as the sentence that users read. A failure that cannot end by itself is
    untrusted."""
    broker = f"broker {origin.authority}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return UntrustedBrokerError(f"{broker} {why_untrusted(error, origin.host)}", unprocessed=True)
    if isinstance(error, ssl.SSLError) and error.reason in {"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG"}:
        reason = "does not speak TLS: write its URL with http://, or give the broker a certificate"
        return UntrustedBrokerError(f"{broker} {reason}", unprocessed=True)
    reason = getattr(error, "reason", None) or error.strerror or str(error) or type(error).__name__
    return BrokerUnreachableError(f"{broker} cannot be reached over TLS: {reason}", unprocessed=True)


def lost_reason(origin: Origin, *, heard: bool) -> str:
    """Return why a connection ended; `heard`: the server had sent something. A TLS server hangs up on what is no
    TLS."""
    if heard or origin.is_tls:
        return "closed the connection"
    return "closed the connection without a word: if it speaks TLS, write its URL with https://"


def why_untrusted(error: ssl.SSLCertVerificationError, host: str) -> str:
    """Return the reason as the rest of a sentence about the broker."""
    if error.verify_code in _OTHER_NAME:
        return (
            f"has a certificate that does not cover {host!r}: connect to a name that it covers,"
            " or add this one to its subjectAltName"
        )
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return (
            "has a certificate of an authority that is not trusted here:"
            " name its PEM file with --ca-file or HEADRACE_CA_FILE (between brokers with --tls-ca-file)"
        )
    if error.verify_code == _EXPIRED:
        return "has a certificate that has expired: renew it, brokers take the new one without a restart"
    if error.verify_code == _NOT_YET_VALID:
        return "has a certificate that is not valid yet: are the clocks of both machines right?"
    return f"has a certificate that is refused: {error.verify_message}"
