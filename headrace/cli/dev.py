"""`headrace dev`: the commands that start, show and stop a whole Headrace on this machine.

`--tls-cert-file`, `--tls-key-file` and `--tls-ca-file` go to its brokers. With --detach the supervisor is a process of
its own; without, it runs in this one, and is loaded only then.
"""

import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headrace.cli.commands import CommandGroup, examples
from headrace.cli.options import WholeNumber, output_option
from headrace.cli.output import print_table, waiting
from headrace.client.transport.discovery import CA_FILE_VARIABLE, headrace_home
from headrace.core.limits import DEV_BROKERS_MAX
from headrace.dev.supervisor.launcher import require_local_extra, start_detached, stop_supervisor
from headrace.dev.supervisor.layout import (
    DEFAULT_PORT,
    PORTS_TAKEN,
    BrokerTls,
    Layout,
    SupervisorOptions,
    free_port_run,
    keep_private,
)
from headrace.dev.supervisor.state import DevState, read_state

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_EXIT_INTERRUPTED = 130


def tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the TLS options; the command gets them as `tls`, None where none is given."""

    @functools.wraps(command)
    def with_tls(**options: Any) -> Any:
        files = (options.pop(f"tls_{name}_file") for name in ("cert", "key", "ca"))
        return command(tls=_tls_of(*(path and path.absolute() for path in files)), **options)

    for name, text in (
        ("ca", "Authority that the brokers trust in each other, PEM.  [default: the system's roots]"),
        ("key", "Its PEM key, without a passphrase."),
        ("cert", "Let the brokers speak TLS with this PEM certificate; it must cover 127.0.0.1."),
    ):
        with_tls = click.option(f"--tls-{name}-file", metavar="FILE", type=_FILE, help=text)(with_tls)
    return with_tls


def _tls_of(certificate: Path | None, key: Path | None, authority: Path | None) -> BrokerTls | None:
    if certificate and key:
        return BrokerTls(certificate, key, authority)
    if certificate or key or authority:
        raise click.UsageError("TLS takes a certificate and its key: give both --tls-cert-file and --tls-key-file")
    return None


@examples(
    ("Three brokers in the background.", "headrace dev --detach"),
    ("One broker, with the topics of a file, until Ctrl-C.", "headrace dev --brokers 1 -f topics.yaml"),
    ("Which processes run?", "headrace dev status"),
    ("Stop them; the data stays.", "headrace dev stop"),
)
@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option(
    "--brokers",
    type=WholeNumber(1, DEV_BROKERS_MAX),
    metavar="N",
    help="How many brokers to run.  [default: as last time, else 3]",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where topics and records are kept.  [default: dev in $HEADRACE_HOME, or ~/.headrace/dev]",
)
@click.option(
    "--port",
    type=WholeNumber(0, 65536 - PORTS_TAKEN),
    metavar="P",
    default=DEFAULT_PORT,
    show_default=True,
    help="Port of the Kubernetes API; broker N listens on PORT+1+N.  0 finds free ones.",
)
@click.option(
    "-f",
    "--filename",
    "manifests",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A YAML file with topics to apply; may be given several times.",
)
@tls_options
@click.option(
    "--detach",
    is_flag=True,
    help="Return when everything is ready, and leave it running; it comes back by itself when it is killed.",
)
@click.pass_context
def dev(context: click.Context, /, detach: bool, **options: Any) -> None:
    """Run a Kubernetes API, the operator and brokers on this machine.

    Topics and records survive a restart. Ctrl-C, or `headrace dev stop`, stops it.
    """
    if context.invoked_subcommand is not None:
        return
    require_local_extra()
    keep_private()
    chosen = _options(**options)
    if detach:
        with waiting("starting a Kubernetes API, the operator and brokers"):
            state = start_detached(chosen)
        click.echo(banner(state, chosen.layout, detached=True))
    else:
        _run_in_foreground(chosen)


@examples(
    ("A line for each process.", "headrace dev status"),
    ("For scripts: URLs, pids, the kubeconfig, where data is.", "headrace dev status -o json"),
)
@dev.command()
@output_option("table", "json")
def status(output: str) -> None:
    """Show the processes that run."""
    state = read_state(_home())
    if output == "json":
        click.echo(json.dumps(state.to_json(), indent=2))
        return
    rows = [("kubernetes api", state.api_pid, state.api_url), ("operator", state.operator_pid, "")]
    rows += [(f"broker {broker.id}", broker.pid, broker.url) for broker in state.brokers]
    print_table(["PROCESS", "PID", "URL"], [(name, pid or "restarting", url) for name, pid, url in rows])


@examples(("Stop everything that `headrace dev` started.", "headrace dev stop"))
@dev.command()
def stop() -> None:
    """Stop the running `headrace dev`; its data stays."""
    if stop_supervisor(_home()):
        click.echo("headrace dev has stopped")
    else:
        click.echo("headrace dev is not running")


@examples(
    ("Let kubectl talk to it.", "export KUBECONFIG=$(headrace dev kubeconfig) && headrace topic list"),
)
@dev.command()
def kubeconfig() -> None:
    """Print the path of the kubeconfig, for kubectl."""
    click.echo(read_state(_home()).kubeconfig)


def banner(state: DevState, layout: Layout, *, detached: bool) -> str:
    """Return what a person needs to know to go on."""
    brokers = "  ".join(broker.url for broker in state.brokers)
    count = "1 broker" if len(state.brokers) == 1 else f"{len(state.brokers)} brokers"
    ending = "stop it with: headrace dev stop" if detached else "Ctrl-C stops it; the data stays"
    trust = [f"  export {CA_FILE_VARIABLE}={layout.tls.authority}"] if layout.tls and layout.tls.authority else []
    return "\n".join(
        [
            f"Headrace is ready ({count}); {ending}",
            "",
            f"  kubernetes api  {state.api_url}",
            f"  brokers         {brokers}",
            "",
            "Next:",
            "",
            *trust,
            "  headrace topic create orders --partitions 6",
            "  echo hello | headrace produce orders && headrace consume orders",
            f"  export KUBECONFIG={state.kubeconfig}   # then: kubectl get topics,pods",
            "",
        ]
    )


def _run_in_foreground(options: SupervisorOptions) -> None:
    import logging
    import signal

    from headrace.dev.supervisor.process import run

    log = options.layout.log("dev")
    log.parent.mkdir(parents=True, exist_ok=True)
    logs = (logging.StreamHandler(), logging.FileHandler(log))

    received = run(options, lambda state: click.echo(banner(state, options.layout, detached=False)), None, *logs)
    if received is signal.SIGINT:
        raise click.exceptions.Exit(_EXIT_INTERRUPTED)


def _options(
    brokers: int | None, data: Path | None, port: int, manifests: tuple[Path, ...], tls: BrokerTls | None
) -> SupervisorOptions:
    first = port or free_port_run(PORTS_TAKEN, random.Random())
    home = _home()
    layout = Layout((data or home / "dev").absolute(), first, tls)
    return SupervisorOptions(home, layout, brokers, tuple(path.absolute() for path in manifests))


def _home() -> Path:
    return headrace_home().absolute()
