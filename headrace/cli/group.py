"""`headrace group`: what `kafka-consumer-groups` does there, and kubectl does with ConsumerGroups."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.commands import Command, Lazy, LazyGroup, examples
from headrace.cli.options import GROUP, Where, broker_options, output_option
from headrace.cli.output import age, notify, print_document, print_table
from headrace.cli.servers import with_kube
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.core.resources.consumer_group import ConsumerGroup
    from headrace.kube.client import KubeClient

_COMMANDS = {
    "list": Lazy("headrace.cli.group:list_", "List consumer groups."),
    "describe": Lazy("headrace.cli.group:describe", "Show a group's members, and how far it has read."),
    "reset": Lazy("headrace.cli.group_changes:reset", "Move a group's offsets."),
    "delete": Lazy("headrace.cli.group_changes:delete", "Delete a group and its offsets."),
}


@examples(
    ("Who reads, and how far behind?", "headrace group list"),
    ("Partition by partition.", "headrace group describe billing"),
)
@click.group(cls=LazyGroup, lazy=_COMMANDS)
def group() -> None:
    """Show, reset and delete consumer groups.

    A group comes to be when its first member joins, for example by `headrace consume --group`.
    """


@examples(
    ("Of the context's namespace.", "headrace group list"),
    ("Of all namespaces.", "headrace group list -A"),
    ("Names alone, for scripts.", "for name in $(headrace group list -o name); do echo $name; done"),
)
@click.command("list", cls=Command)
@click.option("-A", "--all-namespaces", is_flag=True, help="Of every namespace.")
@output_option("table", "json", "yaml", "name")
@broker_options
def list_(where: Where, all_namespaces: bool, output: str) -> None:
    """List consumer groups.

    LAG counts records that are there to be read and that the group has not committed; `unknown` while a leader does not
    tell. The Kubernetes API is asked; where it is away, brokers say what they know.
    """
    found = _listed(where, all_namespaces)
    if output == "name":
        for one in found:
            click.echo(f"{one['namespace']}/{one['name']}" if all_namespaces else one["name"])
    elif output != "table":
        print_document(found, output)
    elif found:
        print_table(*_table(found, all_namespaces))
    else:
        click.echo("no groups; one comes to be with: headrace consume TOPIC --group NAME", err=True)


def _listed(where: Where, all_namespaces: bool) -> list[dict[str, Any]]:
    from headrace.cli.resources import list_groups

    async def work(client: "KubeClient", namespace: str) -> "list[ConsumerGroup]":
        return await list_groups(client, None if all_namespaces else namespace)

    try:
        return [_summary(one) for one in with_kube(where.kube, work)]
    except (HeadraceError, ModuleNotFoundError) as error:
        if all_namespaces:  # Brokers are asked about one namespace.
            raise
        return _listed_by_brokers(where, error)


def _listed_by_brokers(where: Where, error: Exception) -> list[dict[str, Any]]:
    """Ask brokers after the Kubernetes API has failed with `error`. Raises `error` where brokers fail as well."""
    from headrace.cli.group_view import brokers_of, namespace_of

    try:
        namespace = namespace_of(where)
        with brokers_of(where, namespace) as brokers:
            groups, unreachable = brokers.groups()
    except HeadraceError:
        raise error from None
    notify(f"headrace: the Kubernetes API is away ({error}): this is what brokers say", fg="yellow")
    if unreachable:
        notify(
            f"headrace: of groups that they do not know of: no answer from brokers {_joined(unreachable)}", fg="yellow"
        )
    return [
        {
            "namespace": namespace,
            "name": each.group,
            "type": each.type.value,
            "state": each.state.value,
            "members": each.members,
            "lag": None,
            "topics": None,
            "coordinator": each.coordinator,
            "created": None,
        }
        for each in groups
    ]


def _joined(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _summary(one: "ConsumerGroup") -> dict[str, Any]:
    status = one.status
    return {
        "namespace": one.metadata.namespace,
        "name": one.metadata.name,
        "type": one.spec.type.value,
        "state": "Unknown" if status.state is None else status.state.value,
        "members": len(status.members),
        "lag": int(status.lag) if status.state is not None and status.lag.isdecimal() else None,
        "topics": [topic.topic for topic in status.topics],
        "coordinator": status.coordinator,
        "created": one.metadata.creation_timestamp,
    }


def _table(found: list[dict[str, Any]], all_namespaces: bool) -> tuple[list[str], list[list[object]]]:
    now = datetime.now(UTC)
    fields = [*(["namespace"] if all_namespaces else []), "name", "type", "state", "members"]
    rows = [
        [
            *(one[field] for field in fields),
            "unknown" if one["lag"] is None else one["lag"],
            "unknown" if one["topics"] is None else ",".join(one["topics"]) or "-",
            age(one["created"], now),
        ]
        for one in found
    ]
    return [*(field.upper() for field in fields), "LAG", "TOPICS", "AGE"], rows


@examples(
    ("For people.", "headrace group describe billing"),
    (
        "For programs: members, and the offset, end and lag of each partition.",
        "headrace group describe billing -o json",
    ),
)
@click.command(cls=Command, short_help="Show a group's members, and how far it has read.")
@click.argument("name", type=GROUP)
@output_option("text", "json", "yaml")
@broker_options
def describe(where: Where, name: str, output: str) -> None:
    """Show who is in a group, what each member reads, and how far the group has read each partition.

    CURRENT-OFFSET is the next record that the group will read, `-` where it has committed none; LOG-END-OFFSET is the
    next one that will be written; LAG is what lies between. `unknown` where a partition's leader does not tell.

    Brokers are asked for what is so now, the Kubernetes API for the settings; where one of the two is away, the other's
    part is shown, with a line on stderr.
    """
    from headrace.cli.group_view import read_group

    view = read_group(where, name)
    for line in view.missing:
        notify(f"headrace: {line}", fg="yellow")
    if output != "text":
        print_document(view.document(), output)
        return
    click.echo(view.head())
    for title, lines in (("Spec", [*view.spec_lines()]), ("Conditions", [*view.condition_lines()])):
        if lines:
            click.echo("\n".join([f"\n{title}", *(f"  {line}" for line in lines)]))
    for table in (view.member_table(), view.partition_table()):
        if table[1]:
            click.echo()
            print_table(*table)
