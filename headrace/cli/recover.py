"""`headrace cluster recover`: it brings back partitions that stay offline because the API server's data went back.

The command asks every broker what it holds, reads the API after that, shows what
`headrace.core.control.cluster_recovery` decides, asks, writes by compare-and-set, and waits until the brokers have
followed.
"""

import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click

from headrace.cli.commands import Command, examples
from headrace.cli.options import TOPIC, Where, broker_options
from headrace.cli.output import confirmed, waiting
from headrace.cli.servers import KubeOptions, with_kube
from headrace.core.control.cluster_recovery import Cluster, Recovered, RecoveryPlan, Stuck, plan_recovery
from headrace.core.errors import HeadraceError, LocalError

if TYPE_CHECKING:
    from headrace.client.transport.brokers import Brokers
    from headrace.core.control.broker_reports import BrokerReport
    from headrace.core.resources.partition_set import PartitionSet
    from headrace.core.resources.topic import Topic
    from headrace.core.types import BrokerId
    from headrace.kube.client import KubeClient

_TIMEOUT_MS = 10_000
_FOLLOW_TIMEOUT_S = 30.0
"""The time that brokers get to lead the partitions that were given to them."""
_LOOK_AGAIN_S = 0.3
_EXIT_FAILED = 1
_SILENT = {"Lost": "its Lease has run out", "Stopped": "it was stopped"}
"""States of brokers that need not be asked, and the text that replaces their answer."""
_EVENT_REASON = "PartitionRecovered"


@examples(
    ("Look at every topic; ask before anything is changed.", "headrace cluster recover"),
    ("Look at one topic, and go ahead.", "headrace cluster recover orders --yes"),
)
@click.command(cls=Command, short_help="Bring back partitions after the Kubernetes API's data went back.")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, type=TOPIC)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@broker_options
def recover(where: Where, topics: tuple[str, ...], yes: bool) -> None:
    """Bring back partitions that stay offline because the Kubernetes API's data went back.

    That happens when etcd is restored from a backup, or PartitionSets are deleted: brokers then refuse to lead in
    epochs below those of their records. For each such partition the broker with the latest records is made its leader,
    under epochs above all that any broker knows. Nothing is deleted. Without topics: all of them, in every namespace
    unless -n names one. Exit code 1: a partition stays offline.
    """
    from headrace.client.transport.brokers import Brokers

    found = where.find()
    kube = where.kube
    with closing(
        Brokers(found.server, found.namespace, timeout_ms=_TIMEOUT_MS, request_timeout_ms=_TIMEOUT_MS)
    ) as brokers:
        scope = _Scope(brokers, kube, topics, found.namespace if topics else where.namespace)
        plan = plan_recovery(scope.read_cluster())
        if plan.recovered:
            _show_recovered(plan.recovered)
            _show_offline(plan.stuck)
            count = len(plan.recovered)
            if not confirmed(f"Recover {'it' if count == 1 else f'these {count} partitions'}?", yes):
                raise LocalError("nothing was changed: say y, or give --yes")
            scope.write(plan)
            plan = scope.wait_until_followed([recovered.place for recovered in plan.recovered])
    _show_rest(plan)
    if plan.offline:
        raise click.exceptions.Exit(_EXIT_FAILED)


class _Scope:
    """The partitions of one run, and the connections for it."""

    def __init__(self, brokers: "Brokers", kube: KubeOptions, topics: Sequence[str], namespace: str | None) -> None:
        self._brokers = brokers
        self._kube = kube
        self._names = topics
        self._namespace = namespace
        """The namespace; None: all."""

    def read_cluster(self) -> Cluster:
        """Read the state, brokers first: what the API has must not be older than what they know. Raises LocalError,
        ApiError."""
        cluster = self._brokers.run(self._brokers.cluster())
        reports: dict[BrokerId, BrokerReport] = {}
        silent: dict[BrokerId, str] = {}
        for broker in cluster["brokers"]:
            try:
                reports[broker["id"]] = self._ask(broker)
            except HeadraceError as error:
                silent[broker["id"]] = error.message
        topics, sets = with_kube(self._kube, self._list)
        ours = [topic for topic in topics if topic.spec.cluster == cluster["cluster"]]
        return Cluster(self._wanted(ours), sets, reports, silent)

    def _ask(self, broker: "dict[str, object]") -> "BrokerReport":
        from headrace.core.control.broker_reports import BrokerReport

        if broker["state"] in _SILENT:
            raise LocalError(_SILENT[str(broker["state"])])
        return BrokerReport.parse(self._brokers.run(self._brokers.held_once(int(str(broker["id"])))))

    async def _list(self, client: "KubeClient", _: str) -> "tuple[Sequence[Topic], Sequence[PartitionSet]]":
        from headrace.kube.resource import PARTITION_SETS, TOPICS

        topics = await client.list(TOPICS, namespace=self._namespace)
        return topics.items, (await client.list(PARTITION_SETS, namespace=self._namespace)).items

    def _wanted(self, topics: "Sequence[Topic]") -> "list[Topic]":
        from headrace.cli.resources import no_topic

        existing = {topic.metadata.name for topic in topics}
        missing = [name for name in self._names if name not in existing]
        if missing:
            raise no_topic(missing[0], str(self._namespace))
        return [topic for topic in topics if not self._names or topic.metadata.name in self._names]

    def write(self, plan: RecoveryPlan) -> None:
        """Write the plan. Raises LocalError where another writer was faster, ApiError."""
        from headrace.core.resources.metadata import Metadata
        from headrace.kube.errors import ConflictError
        from headrace.kube.events import EventRecorder, EventType, Regarding
        from headrace.kube.resource import PARTITION_SETS, TOPICS

        async def work(client: "KubeClient", _: str) -> None:
            recorder = EventRecorder(client, "headrace-cluster-recover")
            for partition_set in plan.writes:
                try:
                    await client.replace(PARTITION_SETS, partition_set.to_object())
                except ConflictError as error:
                    name = partition_set.metadata.name
                    raise LocalError(f"{name} was changed meanwhile: run `headrace cluster recover` again") from error
            for recovered in plan.recovered:
                owner = Metadata(recovered.topic.name, recovered.topic.namespace, uid=recovered.uid)
                message = f"partition {recovered.state.id}: {'; '.join(_said_of(recovered))}"
                await recorder.record(Regarding(TOPICS, owner), EventType.WARNING, _EVENT_REASON, message)

        with_kube(self._kube, work)

    def wait_until_followed(self, places: Sequence[str]) -> RecoveryPlan:
        """Return the plan that is left once these partitions are online, or when the time is over."""
        deadline = time.monotonic() + _FOLLOW_TIMEOUT_S
        with waiting("waiting for the brokers"):
            while True:
                plan = plan_recovery(self.read_cluster())
                offline = {finding.place for finding in plan.offline}
                if offline.isdisjoint(places) or time.monotonic() > deadline:
                    return plan
                time.sleep(_LOOK_AGAIN_S)


def _said_of(recovered: Recovered) -> list[str]:
    state = recovered.state
    leader = f"broker {state.leader.broker} leads it" if state.leader is not None else "a replica may lead it"
    return [
        recovered.reason,
        f"{leader} under leader epoch {state.leader_epoch}",
        *(f"records may be missing: {loss}" for loss in recovered.losses),
    ]


def _show_recovered(found: Sequence[Recovered]) -> None:
    for recovered in found:
        click.echo(f"{recovered.place} can be recovered")
        for line in _said_of(recovered):
            click.echo(f"    {line}")


def _show_offline(findings: Sequence[Recovered | Stuck]) -> None:
    for finding in findings:
        reason = finding.reason if isinstance(finding, Stuck) else "no broker has followed yet"
        click.echo(f"{finding.place} is offline: {reason}")


def _show_rest(plan: RecoveryPlan) -> None:
    _show_offline(plan.offline)
    for left in plan.left_behind:
        held = f"offsets up to {left.log.log_end} (exclusive), leader epoch {left.log.last_epoch}"
        click.echo(f"{left.place}: broker {left.broker}, no replica of it, holds records that nobody reads: {held}")
    subject = "1 partition is" if plan.online == 1 else f"{plan.online} partitions are"
    for new in plan.never_placed:
        count = "1 partition was" if new.count == 1 else f"{new.count} partitions were"
        click.echo(f"{new.topic}: {count} never placed on a broker, nothing is to be recovered; {new.reason}")
    click.echo(f"{subject} online, {len(plan.offline)} offline")
