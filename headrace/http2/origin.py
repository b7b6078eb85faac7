"""Where a URL points: the server to connect to, and what to ask of it."""

import ssl
from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlsplit

from headrace.core.errors import BrokerUnreachableError, InvalidRequestError
from headrace.core.slotted import dataclass
from headrace.http2.events import Fields
from headrace.http2.fields import request_fields
from headrace.http2.output import Buffer

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SAFE_IN_TARGET = "/%?&=:@!$'()*+,;~[]"
"""What a path and query may hold as they are; all else is percent-encoded, an existing escape is kept."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A server, as connections are pooled by it."""

    scheme: str
    host: str
    port: int

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """For `:authority` and for messages; always with the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_url(url: str) -> tuple[Origin, str]:
    """The origin and the request target (path and query, encoded). Raises `InvalidRequestError`."""
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
    """How connecting to one server has failed.

    Whoever waited for somebody else's attempt shares its failure: tried one after the other, a server that does not
    answer would cost the last of them everybody's time-outs.
    """

    failures: int = 0
    _kind: type[BrokerUnreachableError] = BrokerUnreachableError
    _message: str = ""

    def failed(self, error: BrokerUnreachableError) -> None:
        self.failures += 1
        self._kind, self._message = type(error), error.message

    def check_since(self, failures: int) -> None:
        """Raises BrokerUnreachableError where an attempt has failed since `failures` was read."""
        if self.failures != failures:
            raise self._kind(self._message, unprocessed=True)


@dataclass(frozen=True, slots=True)
class Request:
    """A request, checked and ready for the wire."""

    origin: Origin
    fields: Fields
    name: str
    """Method and path, for messages."""


def parse_request(method: str, url: str, headers: Mapping[str, str], body_bytes: int | None) -> Request:
    """`body_bytes` is None where nobody knows yet how long the body will be.

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
    """A request whose body is all there, and the buffers of that. Errors as of `parse_request`."""
    buffers = [body] if isinstance(body, (bytes, bytearray, memoryview)) else list(body)
    return parse_request(method, url, headers or {}, sum(memoryview(buffer).nbytes for buffer in buffers)), buffers


def unreachable(origin: Origin, reason: str) -> BrokerUnreachableError:
    """Nothing was sent there; `reason` goes on from a sentence about the broker."""
    return BrokerUnreachableError(f"broker {origin.authority} {reason}", unprocessed=True)


def client_tls(ssl_context: ssl.SSLContext | None) -> ssl.SSLContext:
    """The context for `https` origins: the caller's, or one that trusts the system's roots. Offers `h2` by ALPN."""
    context = ssl_context or ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    return context
