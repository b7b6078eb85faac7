"""`python -m e2e.lab build | api | run COMMAND... | up | images | down`: the lab, for make and CI."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from e2e.lab.api_server import api_server
from e2e.lab.build import build_missing
from e2e.lab.cluster import bring_up, running
from e2e.lab.errors import LabError
from e2e.lab.images import build_images, image_name, import_images, sizes
from e2e.lab.teardown import take_down

CHECKOUT = Path(__file__).parents[2]
KUBECONFIG_VARIABLE = "HEADRACE_CONTRACT_KUBECONFIG"
"""Names the API server that the contract tests run against."""


@click.group()
def lab() -> None:
    """A real Kubernetes for the tests, without Docker."""


@lab.command()
def build() -> None:
    """Build the programs that are missing (Go modules; minutes the first time, a second when all is there)."""
    build_missing(click.echo)


@lab.command()
def api() -> None:
    """Run etcd and kube-apiserver until Ctrl-C."""
    with api_server() as server:
        click.echo(
            f"kube-apiserver is ready; use it with:\n\n  export KUBECONFIG={server.kubeconfig}\n\nCtrl-C stops it"
        )
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


@lab.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(command: tuple[str, ...]) -> None:
    """Run COMMAND beside a fresh kube-apiserver that KUBECONFIG and HEADRACE_CONTRACT_KUBECONFIG name."""
    started = time.monotonic()
    with api_server() as server:
        click.echo(f"kube-apiserver is ready ({time.monotonic() - started:.1f} s)")
        kubeconfig = str(server.kubeconfig)
        environment = {**os.environ, "KUBECONFIG": kubeconfig, KUBECONFIG_VARIABLE: kubeconfig}
        result = subprocess.run(command, env=environment, check=False)
    sys.exit(result.returncode)


@lab.command()
def up() -> None:
    """Start a whole Kubernetes of one node, and leave it running. Needs root."""
    cluster = bring_up(click.echo)
    click.echo(f"use it with:\n\n  export KUBECONFIG={cluster.kubeconfig}\n\nmake lab-down takes it down")


@lab.command()
def images() -> None:
    """Build the project's images, and bring them into the lab, if it is up."""
    tag = build_images(CHECKOUT, click.echo)
    if running() is not None:
        import_images(tag, click.echo)
    for target, size in sizes(tag).items():
        click.echo(f"{image_name(target, tag)}  {size}")


@lab.command()
def down() -> None:
    """Take it down, with all that was in it; logs stay."""
    take_down(click.echo)


if __name__ == "__main__":
    try:
        lab.main(prog_name="python -m e2e.lab")
    except LabError as error:
        sys.exit(f"lab: {error}")
