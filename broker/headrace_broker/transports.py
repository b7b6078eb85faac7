"""The ways from this broker to others: all of them trust the same authority, which may change while they are used.

One per process. What is proxied shares a transport; each replication stream has one of its own, so that neither holds
up the other.
"""

import ssl

from headrace.http2.async_transport import AsyncTransport


class Transports:
    def __init__(self, shared: AsyncTransport) -> None:
        self.shared = shared
        self._ssl_context: ssl.SSLContext | None = None

    def trust(self, ssl_context: ssl.SSLContext) -> None:
        """Verify new connections against this one; those that are open stay."""
        self._ssl_context = ssl_context
        self.shared.trust(ssl_context)

    def make(self) -> AsyncTransport:
        """A new one, which its owner closes."""
        return AsyncTransport(self._ssl_context)
