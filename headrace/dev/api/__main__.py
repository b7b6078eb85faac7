"""`python -m headrace.dev.api`: serve the embedded Kubernetes API until SIGTERM or SIGINT.

The first line on stdout is the URL. Exit codes: 0 after a clean stop, 1 with a sentence where it cannot start.
"""

import asyncio
import signal
import sys
from pathlib import Path

import click

from headrace.dev.api.server import CannotServeError, serving
from headrace.dev.crds import CrdError, load_crds


@click.command()
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), required=True, help="Where state is kept.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=9700, show_default=True, help="0 takes a free port.")
@click.option("--crds", type=click.Path(file_okay=False, path_type=Path), help="Folder of the CRDs to serve.")
@click.option("--pod-logs", type=click.Path(path_type=Path), help="Log file of the Pod whose number is {ordinal}.")
@click.option(
    "--pod-ports",
    type=(click.IntRange(1, 65535), click.IntRange(1, 65535)),
    default=(1, 65535),
    metavar="FIRST LAST",
    help="The ports that Pods listen on: the proxy connects to no others.  [default: any]",
)
def main(
    data: Path, host: str, port: int, crds: Path | None, pod_logs: Path | None, pod_ports: tuple[int, int]
) -> None:
    """Serve a Kubernetes API for one machine."""
    try:
        asyncio.run(_serve(data, host, port, crds, pod_logs, range(pod_ports[0], pod_ports[1] + 1)))
    except (CannotServeError, CrdError) as error:
        click.echo(f"headrace: {error}", err=True)
        sys.exit(1)


async def _serve(data: Path, host: str, port: int, crds: Path | None, pod_logs: Path | None, pod_ports: range) -> None:
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    async with serving(data, host, port, load_crds(crds), pod_logs, pod_ports) as url:
        click.echo(url)
        await stop.wait()


if __name__ == "__main__":
    main()
