"""`headrace cluster`: the brokers as one of them sees them."""

import json
from contextlib import closing

import click

from headrace.cli.commands import Command, Lazy, LazyGroup, examples
from headrace.cli.options import Where, broker_options, output_option
from headrace.cli.output import print_table

_TIMEOUT_MS = 10_000
_COMMANDS = {
    "status": Lazy("headrace.cli.cluster:status", "Show every broker, and whether partitions are well."),
    "recover": Lazy("headrace.cli.recover:recover", "Bring back partitions after the Kubernetes API's data went back."),
}


@examples(("Is everything well?", "headrace cluster status"))
@click.group(cls=LazyGroup, lazy=_COMMANDS)
def cluster() -> None:
    """Look at the brokers, and bring partitions back."""


@examples(
    ("A line for each broker.", "headrace cluster status"),
    ("For scripts.", "headrace cluster status -o json"),
)
@click.command(cls=Command)
@output_option("table", "json")
@broker_options
def status(where: Where, output: str) -> None:
    """Show every broker: where it is, whether it is well, and how many partitions it leads and has replicas of.

    Under-replicated partitions have a replica that is not in sync; offline ones have no leader.
    """
    from headrace.client.transport.brokers import Brokers

    found = where.find()
    with closing(
        Brokers(found.server, found.namespace, timeout_ms=_TIMEOUT_MS, request_timeout_ms=_TIMEOUT_MS)
    ) as brokers:
        state = brokers.run(brokers.cluster())
    if output == "json":
        click.echo(json.dumps(state, indent=2))
        return
    fields = ("id", "url", "zone", "state", "incarnation", "leaders", "replicas")
    click.echo(f"cluster {state['cluster']}")
    print_table([field.upper() for field in fields], [[broker[f] for f in fields] for broker in state["brokers"]])
    partitions = state["partitions"]
    click.echo(
        f"partitions: {partitions['total']}, under-replicated: {partitions['underReplicated']},"
        f" offline: {partitions['offline']}"
    )
