"""`headrace topic`: the commands that do with Topics what kubectl does, for those who have no kubectl at hand.

A topic that is created without --replicas gets three, or as many as the cluster is meant to have brokers. The number
that is meant counts, not the number that runs just now: a broker that is away for a minute must not cost a topic a
replica for good.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.commands import CommandGroup, examples
from headrace.cli.options import NEW_TOPIC, TOPIC, kube_options, output_option, topic_spec
from headrace.cli.output import age, notify, print_document, print_table, readable, readable_spec, waiting
from headrace.cli.servers import KubeOptions, with_kube
from headrace.core.errors import LocalError
from headrace.core.limits import FINALIZER_WAIT_MS
from headrace.core.resources.lease import CLUSTER_LABEL
from headrace.core.resources.metadata import DEFAULT_CLUSTER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.cli.replica_lag import Reports
    from headrace.core.resources.partition_set import PartitionSet, PartitionState
    from headrace.core.resources.topic import Topic
    from headrace.core.types import BrokerId
    from headrace.kube.client import KubeClient


REPLICAS_DEFAULT = 3
"""The default of the Topic resource itself."""
_READY_TIMEOUT_S = 30.0
# The operator lets a deleted topic go after this long at the latest; it needs a moment to do so.
_DELETE_TIMEOUT_S = FINALIZER_WAIT_MS / 1000 + 10


async def replicas_for(client: "KubeClient", cluster: str, wanted: int | None) -> int:
    """Return `wanted`, or REPLICAS_DEFAULT, but no more than the cluster is meant to have brokers; where that is not
    known, the default.

    Raises LocalError where more are wanted than there are meant to be brokers: such a topic would never be ready.
    """
    from headrace.kube.errors import ApiError

    try:
        brokers = await _brokers_asked_for(client, cluster) or await _brokers_ever_seen(client, cluster)
    except ApiError:
        brokers = 0
    if wanted is None:
        return min(REPLICAS_DEFAULT, brokers) if brokers else REPLICAS_DEFAULT
    if brokers and wanted > brokers:
        there_are = "is 1 broker" if brokers == 1 else f"are {brokers} brokers"
        raise LocalError(
            f"{wanted} replicas of each partition need as many brokers, and in cluster {cluster} there {there_are}:"
            f" give --replicas {brokers}, or start more with kubectl scale statefulset {cluster} --replicas {wanted}"
        )
    return wanted


async def _brokers_asked_for(client: "KubeClient", cluster: str) -> int:
    """Return the number in the StatefulSet, which is named as its cluster; 0 where there is none, or more than one."""
    from headrace.kube.resource import STATEFUL_SETS, raw_resource

    raw = raw_resource(STATEFUL_SETS.group, STATEFUL_SETS.version, STATEFUL_SETS.plural, STATEFUL_SETS.kind)
    found = [each for each in (await client.list(raw)).items if each["metadata"]["name"] == cluster]
    return STATEFUL_SETS.parse(found[0]).replicas if len(found) == 1 else 0


async def _brokers_ever_seen(client: "KubeClient", cluster: str) -> int:
    """Return the number of the brokers' Leases, which stay."""
    from headrace.kube.resource import LEASES

    return len((await client.list(LEASES, label_selector=f"{CLUSTER_LABEL}={cluster}")).items)


@examples(
    ("A topic of six partitions.", "headrace topic create orders --partitions 6"),
    ("Which topics are there?", "headrace topic list"),
)
@click.group(cls=CommandGroup)
def topic() -> None:
    """Create, list, describe and delete topics."""


@examples(
    ("Six partitions, everything else by default.", "headrace topic create orders --partitions 6"),
    ("One copy of each, for what can be had again.", "headrace topic create scratch --partitions 1 --replicas 1"),
    (
        "Keep records for ever, in small batches.",
        "headrace topic create audit --partitions 1 --set retention.time=unlimited --set maxMessageBytes=1Mi",
    ),
    ("In a script that may run twice.", "headrace topic create orders --partitions 6 --if-not-exists"),
)
@topic.command()
@click.argument("name", type=NEW_TOPIC)
@click.option("--partitions", type=int, required=True, metavar="N", help="How many; may grow later, never shrink.")
@click.option(
    "--replicas",
    type=int,
    metavar="N",
    help="Copies of each partition, each on another broker.  [default: 3, or as many as there are brokers]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Any other field of the spec, for example retention.time=7d; may be given several times.",
)
@click.option("--if-not-exists", is_flag=True, help="A topic of this name, whatever its settings, is as good.")
@kube_options
def create(
    name: str, partitions: int, replicas: int | None, settings: tuple[str, ...], if_not_exists: bool, **kube: str | None
) -> None:
    """Create a topic and wait until it is ready."""
    from headrace.cli.resources import create_topic, has_topic, wait_until_ready

    spec = topic_spec(partitions, replicas, settings)

    async def work(client: "KubeClient", namespace: str) -> None:
        copies = replicas
        if not (if_not_exists and await has_topic(client, name, namespace)):
            copies = await replicas_for(client, spec.get("cluster", DEFAULT_CLUSTER), replicas)
            await create_topic(client, name, namespace, {**spec, "replicas": copies}, or_take=if_not_exists)
        with waiting(f"waiting for topic {name}") as say:
            made = await wait_until_ready(client, name, namespace, timeout_s=_READY_TIMEOUT_S, heard=say)
        click.echo(f"topic {namespace}/{name} is ready")
        if replicas is None and copies is not None and made.spec.replicas == copies < REPLICAS_DEFAULT:
            click.echo(_few(name, copies), err=True)

    with_kube(KubeOptions(**kube), work)


@examples(
    ("Of the context's namespace.", "headrace topic list"),
    ("Of all namespaces.", "headrace topic list -A"),
    ("Names alone, for scripts.", "for name in $(headrace topic list -o name); do echo $name; done"),
    ("Headrace's own topics, too.", "headrace topic list -A --internal"),
)
@topic.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="Of every namespace.")
@click.option("--internal", is_flag=True, help="Headrace's own, too: what groups have read is kept in one.")
@output_option("table", "json", "yaml", "name")
@kube_options
def list_(all_namespaces: bool, internal: bool, output: str, **kube: str | None) -> None:
    """List topics."""
    from headrace.cli.resources import list_topics

    async def work(client: "KubeClient", namespace: str) -> "list[Topic]":
        return await list_topics(client, None if all_namespaces else namespace, internal=internal)

    found = with_kube(KubeOptions(**kube), work)
    if output == "name":
        for one in found:
            click.echo(str(one.full_name) if all_namespaces else one.metadata.name)
    elif output != "table":
        print_document([_summary(one) for one in found], output)
    elif found:
        print_table(*_table(found, all_namespaces))
    else:
        click.echo("no topics; create one with: headrace topic create NAME --partitions N", err=True)


@examples(
    ("For people.", "headrace topic describe orders"),
    (
        "For programs: spec, status, and each partition's leader, replicas and lag.",
        "headrace topic describe orders -o json",
    ),
)
@topic.command(short_help="Show a topic's settings, state and partitions.")
@click.argument("name", type=TOPIC)
@output_option("text", "json", "yaml")
@kube_options
def describe(name: str, output: str, **kube: str | None) -> None:
    """Show a topic's settings, its state, and where its partitions are.

    LAG names followers that are behind their leader, and by how many records; ? where a broker does not tell.
    """
    from headrace.cli.replica_lag import ask_brokers
    from headrace.cli.resources import describe_topic, unserved

    async def work(client: "KubeClient", namespace: str) -> "tuple[Topic, list[PartitionSet], str | None]":
        one, sets = await describe_topic(client, name, namespace)
        return one, sets, await unserved(client, one)

    options = KubeOptions(**kube)
    one, sets, unserved_said = with_kube(options, work)
    if unserved_said is not None:
        notify(f"headrace: {unserved_said}", fg="yellow")
    partitions = _partitions(sets)
    copies = {broker for p in partitions if len(p.replicas) > 1 for broker in p.replicas}
    reports = ask_brokers(options, copies) if copies else {}
    if output == "text":
        _print_description(one, partitions, reports)
    else:
        print_document(_description(one, partitions, reports), output)


@examples(
    ("One topic.", "headrace topic delete orders"),
    ("Several, whether they are there or not.", "headrace topic delete audit orders --if-exists"),
)
@topic.command(short_help="Delete topics and their records.")
@click.argument("names", type=TOPIC, nargs=-1, required=True, metavar="NAME...")
@click.option("--if-exists", is_flag=True, help="A topic that is not there is as good as deleted.")
@kube_options
def delete(names: tuple[str, ...], if_exists: bool, **kube: str | None) -> None:
    """Delete topics and, unless their deletionPolicy is Retain, their records. Asks nothing."""
    from headrace.cli.resources import delete_topic

    async def work(client: "KubeClient", namespace: str) -> None:
        for name in names:
            with waiting(f"deleting topic {name}"):
                was_there = await delete_topic(
                    client, name, namespace, timeout_s=_DELETE_TIMEOUT_S, must_exist=not if_exists
                )
            click.echo(
                f"topic {namespace}/{name} is deleted" if was_there else f"topic {namespace}/{name} is not there"
            )

    with_kube(KubeOptions(**kube), work)


def _few(name: str, brokers: int) -> str:
    copies, there_are = ("1 copy", "is 1 broker") if brokers == 1 else (f"{brokers} copies", f"are {brokers} brokers")
    return (
        f"there {there_are}, so each partition has {copies}; with more brokers:"
        f' kubectl patch topic {name} --type merge -p \'{{"spec": {{"replicas": {REPLICAS_DEFAULT}}}}}\''
    )


def _summary(one: "Topic") -> dict[str, Any]:
    from headrace.cli.resources import ready_condition

    return {
        "namespace": one.metadata.namespace,
        "name": one.metadata.name,
        "uid": one.uid,
        "partitions": one.spec.partitions,
        "replicas": one.spec.replicas,
        "leaders": one.status.get("leaders", ""),
        "inSync": one.status.get("inSync", ""),
        "ready": ready_condition(one)["status"],
        "created": one.metadata.creation_timestamp,
    }


def _table(found: "list[Topic]", all_namespaces: bool) -> tuple[list[str], list[list[object]]]:
    now = datetime.now(UTC)
    fields = ["name", "partitions", "replicas", "leaders", "inSync", "ready"]
    if all_namespaces:
        fields.insert(0, "namespace")
    rows = [[*(_summary(one)[f] for f in fields), age(one.metadata.creation_timestamp, now)] for one in found]
    return [*(f.upper() if f != "inSync" else "IN-SYNC" for f in fields), "AGE"], rows


def _description(one: "Topic", partitions: "list[PartitionState]", reports: "Reports") -> dict[str, Any]:
    from headrace.cli.replica_lag import lags

    return {
        "namespace": one.metadata.namespace,
        "name": one.metadata.name,
        "uid": one.uid,
        "created": one.metadata.creation_timestamp,
        "spec": readable_spec(one.spec.to_object()),
        "status": one.status,
        "partitions": [
            {
                "partition": p.id,
                "leader": None if p.leader is None else p.leader.broker,
                "leaderEpoch": p.leader_epoch,
                "replicas": list(p.replicas),
                "isr": [seat.broker for seat in p.isr],
                "lag": {str(broker): lag for broker, lag in lags(one.uid, p, reports).items()},
            }
            for p in partitions
        ],
    }


def _print_description(one: "Topic", partitions: "list[PartitionState]", reports: "Reports") -> None:
    from headrace.cli.replica_lag import lags

    click.echo(f"{one.full_name}   uid {one.uid}   created {one.metadata.creation_timestamp}")
    click.echo("\nSpec")
    for field, value in one.spec.to_object().items():
        parts = [f"{name} {readable(part)}" for name, part in value.items()] if isinstance(value, dict) else []
        shown = ", ".join(parts) or readable(value)
        click.echo(f"  {field}: {shown}")
    click.echo("\nConditions")
    for condition in one.status.get("conditions") or ():
        said = f": {condition['message']}" if condition.get("message") else ""
        click.echo(f"  {condition['type']}={condition['status']} {condition['reason']}{said}")
    click.echo()
    print_table(
        ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN-SYNC", "LAG"],
        [
            [
                p.id,
                "offline" if p.leader is None else p.leader.broker,
                p.leader_epoch,
                ",".join(map(str, p.replicas)),
                ",".join(str(seat.broker) for seat in p.isr),
                _lag(lags(one.uid, p, reports)),
            ]
            for p in partitions
        ],
    )


def _lag(lags: "Mapping[BrokerId, int | None]") -> str:
    """Return `1:350 2:?`: the followers that are behind; `0` where none is, `-` where there is none."""
    behind = [f"{broker}:{'?' if lag is None else lag}" for broker, lag in sorted(lags.items()) if lag != 0]
    return " ".join(behind) or ("0" if lags else "-")


def _partitions(sets: "list[PartitionSet]") -> "list[PartitionState]":
    return sorted((partition for each in sets for partition in each.partitions), key=lambda p: p.id)
