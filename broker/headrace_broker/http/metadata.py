"""The routes that tell what the cluster is made of: brokers, topics, leaders. Any broker answers them from its view."""

from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from headrace.core.records.time_rules import TimeRules
from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.partition_set import PartitionState, census
from headrace.core.resources.topic import Topic
from headrace.core.types import PartitionId, PartitionKey, Seat
from headrace_broker.cluster.locator import OpenPartitions
from headrace_broker.cluster.view import ClusterView
from headrace_broker.http.json_bodies import json_answer
from headrace_broker.http.parameters import parse_no_query, parse_topic
from headrace_broker.partition.fetch import known_end

_LIVE = ("Ready", "Draining")


class MetadataRoutes:
    def __init__(self, view: ClusterView, partitions: OpenPartitions) -> None:
        self._view = view
        self._partitions = partitions

    async def cluster(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/cluster"""
        parse_no_query(request.query)
        self._view.check_complete()
        known = self._view.brokers()
        live = {Seat(lease.broker, lease.incarnation) for lease, state in known if state in _LIVE}
        found = census(self._view.states.values(), live)
        brokers = [
            {
                "id": lease.broker,
                "url": lease.url,
                "zone": lease.zone,
                "state": state,
                "incarnation": lease.incarnation,
                "leaders": found.leaders.get(lease.broker, 0),
                "replicas": found.replicas.get(lease.broker, 0),
            }
            for lease, state in known
        ]
        partitions = {
            "total": found.partitions,
            "offline": found.offline,
            "underReplicated": found.under_replicated,
        }
        return json_answer({"cluster": self._view.cluster, "brokers": brokers, "partitions": partitions})

    async def targets(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/prometheus/targets"""
        parse_no_query(request.query)
        self._view.check_complete()
        live = [lease for lease, state in self._view.brokers() if state in _LIVE and lease.url]
        return json_answer([_target(self._view.cluster, lease) for lease in live])

    async def topics(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/namespaces/{ns}/topics"""
        parse_no_query(request.query)
        self._view.check_complete()
        namespace = request.match_info["namespace"]
        topics = [topic for topic in self._view.topics() if topic.metadata.namespace == namespace]
        return json_answer({"topics": [_summary(topic) for topic in topics]})

    async def topic(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/namespaces/{ns}/topics/{t}"""
        parse_no_query(request.query)
        self._view.check_complete()
        topic = self._view.topic(parse_topic(request.match_info))
        rules = TimeRules.of_topic(topic.spec)
        return json_answer(
            {
                "namespace": topic.metadata.namespace,
                "name": topic.metadata.name,
                "uid": topic.uid,
                "maxMessageBytes": topic.spec.max_message_bytes,
                "timestampType": topic.spec.timestamp_type.value,
                "retentionMs": None if rules is None else rules.retention_ms,
                "partitions": [self._partition(topic, PartitionId(number)) for number in range(topic.spec.partitions)],
            }
        )

    def _partition(self, topic: Topic, number: PartitionId) -> dict[str, Any]:
        state = self._view.state(topic, number)
        partition = self._partitions.find(PartitionKey(topic.uid, number))
        offsets = None
        if partition is not None and partition.leads and (end := known_end(partition)) is not None:
            offsets = {"logStartOffset": partition.log.log_start_offset, "highWatermark": end}
        return {
            "partition": number,
            "leader": self._leader(state),
            "leaderEpoch": state.leader_epoch if state is not None else 0,
            "isr": [seat.broker for seat in state.isr] if state is not None else [],
            "replicas": list(state.replicas) if state is not None else [],
            "offsets": offsets,
        }

    def _leader(self, state: PartitionState | None) -> dict[str, Any] | None:
        if state is None or state.leader is None:
            return None
        return {"id": state.leader.broker, "url": self._view.url_of(state.leader.broker)}


def _target(cluster: str, lease: BrokerLease) -> dict[str, Any]:
    """Make a target of Prometheus' HTTP service discovery. Its series have the name of the pod, which stays."""
    url = urlsplit(lease.url)
    labels = {
        "__scheme__": url.scheme,
        "instance": f"{cluster}-{lease.broker}",
        "__meta_headrace_broker": str(lease.broker),
        "__meta_headrace_zone": lease.zone,
    }
    return {"targets": [url.netloc], "labels": labels}


def _summary(topic: Topic) -> dict[str, Any]:
    return {
        "namespace": topic.metadata.namespace,
        "name": topic.metadata.name,
        "uid": topic.uid,
        "partitions": topic.spec.partitions,
        "replicas": topic.spec.replicas,
    }
