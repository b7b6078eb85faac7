"""Options and arguments that several commands share, spelled and explained once."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from headrace.cli.topic_spec import check_name
from headrace.core.errors import LocalError, UnknownTopicError
from headrace.core.resources.names import group_name_problem

if TYPE_CHECKING:
    from headrace.cli.kube import KubeOptions
    from headrace.cli.servers import Found

_PATIENCE_S = 2.0
"""For what only makes an error say more."""
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Where:
    """Where the brokers are, as the user said it; None where he did not."""

    server: str | None
    ca_file: str | None
    kubeconfig: str | None
    context: str | None
    namespace: str | None

    def find(self) -> "Found":
        """Raises a sentence with the remedy where nothing leads to brokers."""
        from headrace.cli.servers import find

        return find(self.server, self.ca_file, self.kubeconfig, self.context, self.namespace)

    @property
    def kube(self) -> "KubeOptions":
        """Of the same place, for what is asked of the Kubernetes API."""
        from headrace.cli.kube import KubeOptions

        return KubeOptions(self.kubeconfig, self.context, self.namespace)


class WholeNumber(click.IntRange):
    name = "whole number"


class TopicName(click.ParamType):  # type: ignore[type-arg]  # generic in new clicks only
    """The name of a topic: checked before anybody is asked, completed from the topics that there are (unless `new`)."""

    name = "topic"

    def __init__(self, *, new: bool = False) -> None:
        self._new = new

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        check_name(value)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from headrace.cli.completion import topic_names

        if self._new:
            return []
        return [CompletionItem(name) for name in topic_names(ctx.params) if name.startswith(incomplete)]


class ConsumerGroupName(click.ParamType):  # type: ignore[type-arg]  # generic in new clicks only
    """The name of a consumer group: checked and completed as a topic's."""

    name = "group"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        problem = group_name_problem(value)
        if problem is not None:
            raise click.BadParameter(f"{problem}.")
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from headrace.cli.completion import group_names

        return [CompletionItem(name) for name in group_names(ctx.params) if name.startswith(incomplete)]


TOPIC, NEW_TOPIC, GROUP = TopicName(), TopicName(new=True), ConsumerGroupName()


@contextmanager
def naming_remedy(where: Where, namespace: str, *topics: str) -> Iterator[None]:
    """Around the first question about topics: that one is not there is the most usual mistake of all.

    To brokers a topic of another cluster is not there either: the Kubernetes API says whether it is one.
    """
    try:
        yield
    except UnknownTopicError as error:
        elsewhere = _said_by_kubernetes(where.kube, namespace, topics)
        if elsewhere is not None:
            raise LocalError(elsewhere) from error
        if len(topics) != 1:
            raise LocalError(f"{error.message}: `headrace topic list -A` shows all that there are") from error
        place = "" if namespace == "default" else f" -n {namespace}"
        raise LocalError(
            f"there is no topic {topics[0]} in namespace {namespace}: `headrace topic create {topics[0]}{place}"
            " --partitions N` creates it, `headrace topic list -A` shows all"
        ) from error


def _said_by_kubernetes(kube: "KubeOptions", namespace: str, topics: Sequence[str]) -> str | None:
    """Return what is to be said of the first topic that no broker's cluster has."""
    import asyncio

    from headrace.cli.kube import with_kube

    async def work(client: Any, _: str) -> str | None:
        from headrace.cli.topics_api import unserved_topic

        async with asyncio.timeout(_PATIENCE_S):
            said = [await unserved_topic(client, topic, namespace) for topic in topics]
        return next((each for each in said if each is not None), None)

    try:
        return with_kube(kube, work)
    except Exception:  # Whoever cannot ask there has said already that there is no such topic.
        return None


def broker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--server`, `--ca-file`, `--kubeconfig`, `--context` and `-n`, for commands that talk to brokers.

    The command gets them as `where`, a `Where`.
    """

    @functools.wraps(command)
    def with_where(**options: Any) -> Any:
        return command(where=Where(**{field.name: options.pop(field.name) for field in fields(Where)}), **options)

    for option in reversed(
        [
            click.option(
                "--server",
                metavar="URL",
                help="Any broker; several, separated by commas.  [default: HEADRACE_SERVER, else the running `headrace"
                " dev`, else through the Kubernetes API of the kubeconfig]",
            ),
            click.option(
                "--ca-file",
                metavar="FILE",
                type=click.Path(dir_okay=False),
                help="PEM bundle that https brokers are verified against.  [default: HEADRACE_CA_FILE, else the"
                " system's roots]",
            ),
            _KUBECONFIG,
            _CONTEXT,
            _NAMESPACE,
        ]
    ):
        with_where = option(with_where)
    return with_where


def kube_options(command: F) -> F:
    """`--kubeconfig`, `--context` and `-n`, for commands that talk to the Kubernetes API."""
    return _KUBECONFIG(_CONTEXT(_NAMESPACE(command)))


def output_option(*choices: str) -> Callable[[F], F]:
    """`-o`; the first choice is the default."""
    return click.option(
        "-o", "--output", type=click.Choice(choices), default=choices[0], show_default=True, help="Form of the output."
    )


_KUBECONFIG: Callable[[F], F] = click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="[default: that of the running `headrace dev`, else KUBECONFIG, else ~/.kube/config]",
)
_CONTEXT: Callable[[F], F] = click.option(
    "--context", metavar="NAME", help="Context of the kubeconfig.  [default: its current one]"
)
_NAMESPACE: Callable[[F], F] = click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="Namespace of the topic or group.  [default: that of the context, else default]",
)
