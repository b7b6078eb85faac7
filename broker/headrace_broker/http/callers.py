"""The senders of requests, and what each of them takes of the load that this broker accepts.

A client is known by its address. Another broker brings the key of its Lease: it asks for itself, and is counted with
nobody, or it passes on the request of a client, which is counted for the address that the broker says. A sender with a
key that no Lease has is taken for a client, whatever it says. One per process.
"""

from ipaddress import ip_address

from aiohttp import web

from headrace.core.holders import holder_of
from headrace_broker.admission import Admission, BudgetShare
from headrace_broker.clock import monotonic_ms
from headrace_broker.cluster.view import ClusterView

PROXIED_HEADER = "Headrace-Proxied"
"""A header with the address of the client, where there is one."""
PEER_KEY_HEADER = "Headrace-Peer-Key"
"""A header with the key of the sender's Lease, which nobody but brokers, operators and administrators reads."""


class Callers:
    def __init__(self, view: ClusterView, admission: Admission) -> None:
        self._view = view
        self._admission = admission

    def is_broker(self, request: web.Request) -> bool:
        """Tell whether another broker of this cluster sends it, be it for a client."""
        key = request.headers.get(PEER_KEY_HEADER)
        return key is not None and self._view.has_peer_key(key)

    def address(self, request: web.Request) -> str:
        """Return the first sender's address: as another broker says it, which must be an address, or the sender's."""
        return (passed_on_for(request) if self.is_broker(request) else None) or request.remote or "1"

    def holder(self, request: web.Request) -> str | None:
        """Return the client in whose share the request is counted; None where another broker asks for itself."""
        if not self.is_broker(request):
            return holder_of(request.remote or "unknown")
        address = passed_on_for(request)
        return holder_of(address) if address is not None else None

    def body_share(self, request: web.Request) -> BudgetShare:
        """Return the share of what bodies of requests may take."""
        return self._admission.bodies.share(self.holder(request))

    def answer_share(self, request: web.Request) -> BudgetShare:
        """Return the share of what answers may take."""
        return self._admission.answers.share(self.holder(request))

    def take_new_group(self, request: web.Request) -> None:
        """Count one more new group of this client's. Raises ThrottledError."""
        self._admission.newcomers.take(self.holder(request), monotonic_ms())


def passed_on_for(request: web.Request) -> str | None:
    """Return the address of the client that another broker asks for; None where it says none."""
    said = request.headers.get(PROXIED_HEADER, "")
    try:
        return str(ip_address(said))
    except ValueError:
        return None
