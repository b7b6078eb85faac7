"""Options that several commands share, spelled and explained once."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from headrace.client.discovery import SERVER_VARIABLE

F = TypeVar("F", bound=Callable[..., Any])


def server_option(command: F) -> F:
    return click.option(
        "--server",
        metavar="URL",
        envvar=SERVER_VARIABLE,
        help="Any broker; several, separated by commas. Default: the running `headrace dev`.  [env: HEADRACE_SERVER]",
    )(command)


def namespace_option(command: F) -> F:
    """For commands that talk to brokers."""
    return click.option(
        "-n", "--namespace", metavar="NAME", default="default", show_default=True, help="Namespace of the topic."
    )(command)


def kube_options(command: F) -> F:
    """`-n`, `--kubeconfig` and `--context`: which Kubernetes API, and which namespace in it."""
    command = click.option("--context", metavar="NAME", help="Context of the kubeconfig.")(command)
    command = click.option(
        "--kubeconfig",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="Default: that of the running `headrace dev`, else KUBECONFIG, else ~/.kube/config.",
    )(command)
    return click.option("-n", "--namespace", metavar="NAME", help="Default: the namespace of the context.")(command)


def output_option(*choices: str) -> Callable[[F], F]:
    """`-o`; the first choice is the default."""
    return click.option(
        "-o", "--output", type=click.Choice(choices), default=choices[0], show_default=True, help="Form of the output."
    )
