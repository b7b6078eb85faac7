"""Another broker, asked about itself: any broker passes such a request on, so that whoever reaches one reaches all."""

from headrace.core.errors import HeadraceError, NotReadyError, UnknownBrokerError
from headrace.core.slotted import dataclass
from headrace.core.types import BrokerId
from headrace_broker.serving import Serving


@dataclass(frozen=True, slots=True)
class Peer:
    """The broker that a request is passed on to."""

    broker: BrokerId
    url: str

    def error(self, why: str) -> HeadraceError:
        return NotReadyError(f"only broker {self.broker} can tell what it holds{why}; look whether it is running")


def peer_of(serving: Serving, broker: BrokerId) -> Peer | None:
    """None where it is this one. Raises NotReadyError, UnknownBrokerError."""
    serving.check_view()
    lease = serving.view.lease(broker)
    if lease is None:
        raise UnknownBrokerError(f"there is no broker {broker}; GET /v1/cluster names those that there are")
    return Peer(broker, lease.url) if broker != serving.me else None
