"""What a broker needs to speak TLS, as it was read: PEM bytes that nobody has looked at yet. Values to compare."""

from collections.abc import AsyncGenerator
from dataclasses import field
from typing import Protocol

from headrace.core.errors import LocalError
from headrace.core.slotted import dataclass


class UnusableTlsError(LocalError):
    """This certificate, key or CA bundle cannot be used; the message names the file or Secret and the remedy."""

    code = "UnusableTls"


@dataclass(frozen=True, slots=True)
class Pem:
    name: str
    """For messages: `certificate file /etc/tls/tls.crt`."""
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Material:
    certificate: Pem
    """The broker's own first, then those between it and the authority."""
    key: Pem
    authority: Pem | None
    """Whom this broker trusts when it asks other brokers; None: the system's roots."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """There is no material just now."""

    reason: str


class Source(Protocol):
    """Where material comes from, at the start and later."""

    async def read(self) -> Material | Unreadable: ...

    def changes(self) -> AsyncGenerator[Material | Unreadable, None]:
        """Endless: what there is now, whenever it may have changed. The same may come again."""
