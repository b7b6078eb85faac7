"""Which brokers have died, as far as their Pods tell: seconds before their Leases run out. Pure.

    a Pod that was there is gone, or is another of its name ─┐
    its container runs no longer, or is not the one that ran ├──> the process that ran until then is dead
    a container that does not run, the first time we look   ─┘
    a container that runs again after we saw it dead         ──> no news: its Lease says who lives

A dead broker is lost at once and until its Lease changes (`Liveness.died`), whatever the Lease says just then. A wrong
guess costs an election and no record, as with every failure detector. A Pod that is to be deleted is not dead: its
broker has been told to stop, and drains. One object per operator, told of all Pods at each of its looks.
"""

from collections.abc import Iterable, Mapping

from headrace.core.resources.pod import BrokerPod
from headrace.core.slotted import dataclass
from headrace.core.types import BrokerId


@dataclass(frozen=True, slots=True)
class _Look:
    pod: BrokerPod
    at_ms: int


class PodDeaths:
    def __init__(self) -> None:
        self._seen: dict[BrokerId, _Look] = {}

    def observe(self, pods: Iterable[BrokerPod], now_ms: int) -> Mapping[BrokerId, int]:
        """All Pods of brokers as they are just now -> who died since the last look, and when that look was.

        A life that began after that look may be a newer one. Of what was dead when it was first seen: this very moment.
        """
        present = {pod.broker: _Look(pod, now_ms) for pod in pods}
        gone = [broker for broker in self._seen if broker not in present]
        ended = [broker for broker, look in present.items() if self._has_ended(look.pod)]
        deaths = {broker: self._seen[broker].at_ms if broker in self._seen else now_ms for broker in (*gone, *ended)}
        self._seen = present
        return deaths

    def _has_ended(self, pod: BrokerPod) -> bool:
        before = self._seen.get(pod.broker)
        if before is None:
            return not pod.running
        if before.pod == pod:
            return False
        return before.pod.running or not pod.running
