"""The command `headrace-broker`: options in, one broker process, exit code out (0 stopped, 1 failed, 2 wrong usage)."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import click

from headrace.core.errors import HeadraceError
from headrace.core.resources.metadata import DEFAULT_CLUSTER
from headrace.core.types import BrokerId
from headrace_broker.process import run
from headrace_broker.settings import Settings

_LEVELS = ("debug", "info", "warning", "error")


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--id", "broker", type=click.IntRange(min=0), required=True, help="Ordinal of this broker's pod.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), required=True, help="Data directory.")
@click.option("--cluster", default=DEFAULT_CLUSTER, help="Serve the topics of this cluster.")
@click.option("--namespace", default="", help="Of the brokers' Leases.", show_default="the kubeconfig's")
@click.option("--kubeconfig", default=None, help="Where the Kubernetes API is.", show_default="as kubectl finds it")
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=9701, help="Port to listen on; 0 picks a free one.")
@click.option("--advertised-url", default="", help="Where others reach this broker.", show_default="http://HOST:PORT")
@click.option("--zone", default="", help="Failure zone of this broker.")
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", help="Least severe events to log.")
def main(log_level: str, broker: int, **options: Any) -> None:
    """Run one Headrace broker until SIGTERM or Ctrl-C."""
    logging.basicConfig(
        stream=sys.stderr, level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    settings = Settings(broker=BrokerId(broker), **options)
    try:
        asyncio.run(run(settings))
    except HeadraceError as error:
        click.echo(f"headrace-broker: {error.message}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
