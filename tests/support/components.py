"""The objects that a broker's HTTP application is made of, as its process makes them, for a test without a process."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headrace.core.control.broker_reports import BrokerReport, Epochs, Promises
from headrace.core.resources.internal_topics import InternalTopics
from headrace.core.types import PartitionKey, Seat, TopicUid
from headrace_broker.admission import Admission
from headrace_broker.cluster.locator import Locator, OpenPartitions
from headrace_broker.cluster.view import ClusterView
from headrace_broker.coordinators.coordinators import GroupCoordinators, WriterCoordinators
from headrace_broker.coordinators.writer_coordinator import PartitionAccess
from headrace_broker.http.app import Components, Readiness
from headrace_broker.http.callers import Callers
from headrace_broker.http.proxy import Proxy
from headrace_broker.http.uploads import Questions
from headrace_broker.metrics import Metrics
from headrace_broker.partition.fetch import OpenWatches
from headrace_broker.partition.partition import Partition
from headrace_broker.replication.open_streams import ServedStreams, StreamMetrics
from headrace_broker.sessions.open_sessions import OpenSessions


class NoPartitions:
    """No partition is open here."""

    def find(self, key: PartitionKey) -> Partition | None:
        return None


@dataclass(frozen=True, slots=True)
class NoReports:
    """A broker without a disk of its own: it holds and promises nothing."""

    seat: Seat

    async def report(self, uids: Collection[TopicUid] | None = None) -> BrokerReport:
        return BrokerReport(self.seat, {}, {})

    async def promises(self, asked: Mapping[PartitionKey, Epochs]) -> Promises:
        return Promises(self.seat, {})


def components(
    me: Seat,
    view: ClusterView,
    partitions: OpenPartitions,
    proxy: Proxy,
    metrics: Metrics,
    catch_up_rate: int | None = None,
) -> Components:
    """Make the components of a broker that takes requests at once."""
    admission, locator, namespace = Admission(), Locator(me.broker, view, partitions), "default"
    callers, access = Callers(view, admission), PartitionAccess(locator.locate, proxy)
    return Components(
        me=me.broker,
        view=view,
        partitions=partitions,
        locator=locator,
        internal=InternalTopics(namespace),
        reports=NoReports(me),
        proxy=proxy,
        metrics=metrics,
        readiness=Readiness(""),
        admission=admission,
        callers=callers,
        questions=Questions(callers, admission.control_bodies),
        watches=OpenWatches(),
        groups=GroupCoordinators(me.broker, namespace, view, partitions),
        writers=WriterCoordinators(me.broker, namespace, view, partitions, access, metrics.registry),
        sessions=OpenSessions.for_memory(admission.bodies.limit_bytes),
        served_streams=ServedStreams(StreamMetrics(metrics.registry), catch_up_rate),
    )
