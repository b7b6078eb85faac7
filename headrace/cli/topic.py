"""`headrace topic`: what kubectl does with Topics, for those who have no kubectl at hand."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.kube import KubeOptions, with_kube
from headrace.cli.options import kube_options, output_option
from headrace.cli.output import age, print_table, readable, stderr
from headrace.cli.topic_spec import check_name, topic_spec
from headrace.core.limits import FINALIZER_WAIT_MS

if TYPE_CHECKING:
    from headrace.core.resources.partition_set import PartitionSet
    from headrace.core.resources.topic import Topic
    from headrace.kube.client import KubeClient

_READY_TIMEOUT_S = 30.0
# The operator lets a deleted topic go after this long at the latest; it needs a moment to do so.
_DELETE_TIMEOUT_S = FINALIZER_WAIT_MS / 1000 + 10


@click.group()
def topic() -> None:
    """Create, list, describe and delete topics."""


@topic.command()
@click.argument("name")
@click.option("--partitions", type=int, required=True, metavar="N", help="How many; may grow later, never shrink.")
@click.option(
    "--replicas",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="Copies of each partition. Only 1 works until replication is there.",
)
@click.option("--set", "settings", multiple=True, metavar="PATH=VALUE", help="Any other field of the spec.")
@kube_options
def create(name: str, partitions: int, replicas: int, settings: tuple[str, ...], **kube: str | None) -> None:
    """Create a topic and wait until it is ready.

    \b
    headrace topic create orders --partitions 6
    headrace topic create audit --partitions 1 --set retention.time=unlimited --set maxMessageBytes=1Mi
    """
    from headrace.cli.topics_api import create_topic, wait_until_ready

    check_name(name)
    spec = topic_spec(partitions, replicas, settings)

    async def work(client: "KubeClient", namespace: str) -> None:
        await create_topic(client, name, namespace, spec)
        with stderr.status(f"waiting for topic {name}") as status:
            await wait_until_ready(client, name, namespace, timeout_s=_READY_TIMEOUT_S, heard=status.update)
        click.echo(f"topic {namespace}/{name} is ready")

    with_kube(KubeOptions(**kube), work)


@topic.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="Of every namespace.")
@output_option("table", "json")
@kube_options
def list_(all_namespaces: bool, output: str, **kube: str | None) -> None:
    """List topics.

    \b
    headrace topic list -A
    """
    from headrace.cli.topics_api import list_topics

    async def work(client: "KubeClient", namespace: str) -> "list[Topic]":
        return await list_topics(client, None if all_namespaces else namespace)

    found = with_kube(KubeOptions(**kube), work)
    if output == "json":
        click.echo(json.dumps([_summary(one) for one in found], indent=2))
    elif found:
        print_table(*_table(found, all_namespaces))
    else:
        click.echo("no topics; create one with: headrace topic create NAME --partitions N", err=True)


@topic.command(short_help="Show a topic's settings, state and partitions.")
@click.argument("name")
@kube_options
def describe(name: str, **kube: str | None) -> None:
    """Show a topic's settings, its state, and where its partitions are.

    \b
    headrace topic describe orders
    """
    from headrace.cli.topics_api import describe_topic

    async def work(client: "KubeClient", namespace: str) -> "tuple[Topic, list[PartitionSet]]":
        return await describe_topic(client, name, namespace)

    _print_description(*with_kube(KubeOptions(**kube), work))


@topic.command(short_help="Delete a topic and its records.")
@click.argument("name")
@kube_options
def delete(name: str, **kube: str | None) -> None:
    """Delete a topic and, unless its deletionPolicy is Retain, its records.

    \b
    headrace topic delete orders
    """
    from headrace.cli.topics_api import delete_topic

    async def work(client: "KubeClient", namespace: str) -> None:
        with stderr.status(f"deleting topic {name}"):
            await delete_topic(client, name, namespace, timeout_s=_DELETE_TIMEOUT_S)
        click.echo(f"topic {namespace}/{name} is deleted")

    with_kube(KubeOptions(**kube), work)


def _summary(one: "Topic") -> dict[str, Any]:
    from headrace.cli.topics_api import ready_condition

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


def _print_description(one: "Topic", sets: "list[PartitionSet]") -> None:
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
    partitions = [partition for each in sets for partition in each.partitions]
    print_table(
        ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN-SYNC"],
        [
            [
                p.id,
                "offline" if p.leader is None else p.leader.broker,
                p.leader_epoch,
                ",".join(map(str, p.replicas)),
                ",".join(str(seat.broker) for seat in p.isr),
            ]
            for p in sorted(partitions, key=lambda p: p.id)
        ],
    )
