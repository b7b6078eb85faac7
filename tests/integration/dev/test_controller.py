"""The controller against the embedded API, with brokers that are no processes: more than a test can start."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from headrace.core.limits import DEV_BROKERS_MAX
from headrace.core.resources.metadata import Object
from headrace.dev.supervisor.controller import STATEFUL_SETS, Controller
from headrace.dev.supervisor.pod_status import PodStatus
from headrace.dev.supervisor.workload import NAME, NAMESPACE, BrokerView
from headrace.kube.client import KubeClient
from headrace.kube.resource import EVENTS
from tests.support.api_server import embedded_api
from tests.support.kubeconfig import write_kubeconfig
from tests.support.patience import patient
from tests.support.waiting import eventually, observed

_SETTLE_S = patient(60)
_STARTED = "2026-11-21T09:00:00Z"


class _Brokers:
    """Each is ready from the start."""

    def __init__(self) -> None:
        self.pods: dict[int, str | None] = {}

    def views(self) -> tuple[BrokerView, ...]:
        return tuple(
            BrokerView(number, PodStatus(ready=True, restarts=0, started_at=_STARTED), port=9000 + number, pod_uid=uid)
            for number, uid in self.pods.items()
        )

    def add(self, broker: int) -> None:
        self.pods[broker] = None

    def remove(self, broker: int) -> None:
        del self.pods[broker]

    def restart(self, broker: int) -> None:
        """The next process is there at once."""

    def kill(self, broker: int) -> None:
        """As `restart`."""

    def set_pod(self, broker: int, uid: str | None) -> None:
        self.pods[broker] = uid


async def test_should_warn_at_the_stateful_set_of_replicas_that_will_never_come(tmp_path: Path) -> None:
    with embedded_api(tmp_path / "data") as api:
        path = write_kubeconfig(tmp_path / "kubeconfig", api.url)
        async with await KubeClient.connect(kubeconfig=str(path)) as client:
            brokers = _Brokers()
            controller = Controller(client, brokers)
            task = asyncio.create_task(controller.maintain())
            await asyncio.wait_for(controller.settled.wait(), _SETTLE_S)
            await client.patch(STATEFUL_SETS, NAME, NAMESPACE, {"spec": {"replicas": 99}})

            async def events() -> Sequence[Object]:
                return (await client.list(EVENTS, namespace=NAMESPACE)).items

            (event,) = await observed(events, bool, "an Event")
            await eventually(lambda: len(brokers.pods) == DEV_BROKERS_MAX, "as many brokers as there can be")
            task.cancel()
            await asyncio.wait([task])
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "TooManyReplicas", 1)
    assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("StatefulSet", NAME)
    assert "spec.replicas is 99, and headrace dev runs 16 brokers at most" in event["message"]
