"""The lag of a topic's replicas behind their leaders, as the brokers report it.

The Kubernetes API does not know it: ends of logs change with every record. So brokers are asked, each once and with a
short time limit; where one does not answer, the lag is not known. Called by `headrace topic describe`.
"""

from collections.abc import Collection, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from headrace.cli.servers import KubeOptions
from headrace.core.control.broker_reports import BrokerReport
from headrace.core.errors import HeadraceError
from headrace.core.resources.partition_set import PartitionState
from headrace.core.types import BrokerId, PartitionKey, TopicUid

if TYPE_CHECKING:
    from headrace.client.transport.brokers import Brokers

_TIMEOUT_MS = 2_000
_ANSWERING = ("Ready", "Draining")

Reports = Mapping[BrokerId, BrokerReport]


def ask_brokers(kube: KubeOptions, wanted: Collection[BrokerId]) -> Reports:
    """Return the reports of those of `wanted` that answer."""
    from headrace.cli.servers import find
    from headrace.client.transport.brokers import Brokers

    try:
        found = find(None, None, kube.kubeconfig, kube.context, kube.namespace)
        with closing(
            Brokers(found.server, found.namespace, timeout_ms=_TIMEOUT_MS, request_timeout_ms=_TIMEOUT_MS)
        ) as brokers:
            cluster = brokers.run(brokers.cluster())
            known = {BrokerId(each["id"]) for each in cluster["brokers"] if each["state"] in _ANSWERING}
            answers = {broker: _ask(brokers, broker) for broker in known & set(wanted)}
    except HeadraceError:
        return {}
    return {broker: report for broker, report in answers.items() if report is not None}


def _ask(brokers: "Brokers", broker: BrokerId) -> BrokerReport | None:
    try:
        return BrokerReport.parse(brokers.run(brokers.held_once(broker)))
    except HeadraceError:
        return None


def lags(uid: TopicUid, state: PartitionState, reports: Reports) -> dict[BrokerId, int | None]:
    """Return the records that each follower has yet to get; None where it, or the leader, has not answered."""
    key = PartitionKey(uid, state.id)
    ends = {broker: log.log_end for broker, report in reports.items() if (log := report.logs.get(key)) is not None}
    leader = state.leader.broker if state.leader is not None else None
    end = ends.get(leader) if leader is not None else None
    return {
        broker: None if end is None or broker not in ends else max(0, end - ends[broker])
        for broker in state.replicas
        if broker != leader
    }
