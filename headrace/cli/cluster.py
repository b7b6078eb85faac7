"""`headrace cluster`: the brokers as one of them sees them."""

import json
from contextlib import closing

import click

from headrace.cli.options import output_option, server_option
from headrace.cli.output import print_table

_TIMEOUT_MS = 10_000


@click.group()
def cluster() -> None:
    """Look at the brokers."""


@cluster.command()
@output_option("table", "json")
@server_option
def status(output: str, server: str | None) -> None:
    """Show every broker: where it is and whether it is well.

    \b
    headrace cluster status
    headrace cluster status -o json --server http://127.0.0.1:9701
    """
    from headrace.client.brokers import Brokers

    with closing(Brokers(server, None, timeout_ms=_TIMEOUT_MS, request_timeout_ms=_TIMEOUT_MS)) as brokers:
        state = brokers.cluster()
    if output == "json":
        click.echo(json.dumps(state, indent=2))
        return
    fields = ("id", "url", "zone", "state", "incarnation")
    click.echo(f"cluster {state['cluster']}")
    print_table([field.upper() for field in fields], [[broker[f] for f in fields] for broker in state["brokers"]])
