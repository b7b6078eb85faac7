"""`headrace group delete`: deletes the ConsumerGroup, with which its offsets go, and waits until it is gone."""

from typing import TYPE_CHECKING

import click

from headrace.cli.asking import confirmed
from headrace.cli.examples import Command, examples
from headrace.cli.group_look import brokers_of, look
from headrace.cli.group_view import GroupView
from headrace.cli.kube import with_kube
from headrace.cli.options import GROUP, Where, broker_options
from headrace.cli.output import after_interrupt, tell, waiting_aloud
from headrace.core.errors import HeadraceError, LocalError

if TYPE_CHECKING:
    from headrace.core.resources.consumer_group import ConsumerGroup
    from headrace.kube.client import KubeClient


@examples(
    ("Forget how far it has read.", "headrace group delete billing --yes"),
)
@click.command(cls=Command, short_help="Delete a group and its offsets.")
@click.argument("name", type=GROUP)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@broker_options
def delete(where: Where, name: str, yes: bool) -> None:
    """Delete a group that has no members, and its offsets. Records stay."""
    view = look(where, name)
    if view.members:
        raise LocalError(
            f"group {view.name} is not empty: stop {view.who} first (or wait until the session of what is dead is"
            " over); nothing was deleted"
        )
    if not confirmed(f"Delete group {view.name} and its offsets?", yes):
        raise LocalError("nothing was deleted: say y, or give --yes")
    if view.resource is not None:
        _delete(where, view.resource)
    else:
        _delete_at_brokers(where, view)
    click.echo(f"group {view.name} is deleted")


def _delete(where: Where, resource: "ConsumerGroup") -> None:
    from headrace.cli.groups_api import delete_group

    async def work(client: "KubeClient", _: str) -> None:
        with waiting_aloud(f"deleting group {resource.metadata.name}") as heard:
            await delete_group(client, resource, heard)

    try:
        with_kube(where.kube, work)
    except KeyboardInterrupt:
        after_interrupt()
        tell("headrace: interrupted: it is being deleted all the same, and goes once it can", fg="yellow")
        raise


def _delete_at_brokers(where: Where, view: GroupView) -> None:
    """Where it has no ConsumerGroup. Raises HeadraceError where that is not known, as one would bring it back."""
    if view.no_api:
        raise HeadraceError(f"{view.missing[0]}; nothing was deleted")
    with brokers_of(where, view.name.namespace) as brokers:
        brokers.delete(view.name.name)
