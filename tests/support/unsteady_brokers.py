"""Brokers that replicate, whose way to the API server goes through one that may behave as it is told."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from headrace.core.types import BrokerId
from tests.faults.unruly_api import Behaviour, UnrulyApi, unruly
from tests.support.cluster import Cluster
from tests.support.replicated_brokers import ReplicatedBrokers


@dataclass(slots=True)
class UnsteadyBrokers:
    cluster: Cluster
    api: UnrulyApi
    brokers: tuple[BrokerId, ...]

    def of(self, topic: str) -> ReplicatedBrokers:
        """As they hold this topic."""
        return ReplicatedBrokers(self.cluster, self.brokers, topic)

    def behave_once(self, topic: str, behaviour: Behaviour) -> Event:
        """For the next write of any broker to the topic's PartitionSet; set once that has come."""
        came = Event()

        def rule(method: str, path: str, query: str) -> Behaviour:
            if came.is_set() or method != "PUT" or not path.endswith(f"/partitionsets/{topic}-0"):
                return None
            came.set()
            return behaviour

        self.api.rule = rule
        return came


@contextmanager
def unsteady_brokers(
    home: Path, *, brokers: int = 3, options: Sequence[Sequence[str]] = ()
) -> Iterator[UnsteadyBrokers]:
    """Ready, without any topic; `options` are those of each broker."""
    home.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(home)
    try:
        cluster.start_api()
        with unruly(cluster.api_url) as api:
            go_through(cluster, f"http://127.0.0.1:{api.port}")
            given = [*options, *([()] * (brokers - len(options)))]
            started = [cluster.start_broker(broker, *given[broker], ready=False) for broker in range(brokers)]
            for program in started:
                cluster.wait_ready(program)
            yield UnsteadyBrokers(cluster, api, tuple(map(BrokerId, range(brokers))))
            cluster.close()
    finally:
        cluster.close()


def go_through(cluster: Cluster, url: str) -> None:
    """From now on what is started finds the API server there; the test itself goes around it."""
    cluster.kubeconfig.write_text(cluster.kubeconfig.read_text().replace(cluster.api_url, url))
