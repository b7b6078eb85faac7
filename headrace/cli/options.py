"""Options and arguments that several commands share, and how their texts are read.

The module owns where a command goes (`--server`, `--kubeconfig` and the like, as a `Where`), the names of topics and
groups (which `completion` completes), `--from` and `--set`. Wrong values raise click.BadParameter with a sentence that
names the remedy.

    --from   `earliest`, `latest`, an offset (`1200`), how long ago (`1h ago`, `30m ago`), or a time (ISO 8601)
    --set    `path=value`, a field of a topic's spec; within which bounds a value must be is for the API server to say

Every command loads this module: what only some of them need is imported in the function that needs it.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from headrace.core.errors import LocalError, UnknownTopicError
from headrace.core.resources.metadata import InvalidResourceError
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import group_name_problem, topic_name_problem
from headrace.core.units import MILLISECONDS, parse_duration_ms

if TYPE_CHECKING:
    from headrace.cli.servers import Found, KubeOptions


_AGO = " ago"
_SETTINGS_OF_KAFKA: Final = {
    "cleanup.policy": "cleanupPolicy=Compact, Delete or CompactDelete",
    "delete.retention.ms": "compaction.deleteRetention=24h",
    "max.message.bytes": "maxMessageBytes=1Mi",
    "message.timestamp.after.max.ms": "timestamps.afterMax=1h",
    "message.timestamp.before.max.ms": "timestamps.beforeMax=7d",
    "message.timestamp.type": "timestampType=LogAppendTime or CreateTime",
    "min.compaction.lag.ms": "compaction.minLag=1h",
    "min.insync.replicas": "minInsyncReplicas=2",
    "retention.ms": "retention.time=7d",
    "segment.ms": "segment.time=1d",
    "unclean.leader.election.enable": "uncleanLeaderElection=true",
}
_PATIENCE_S = 2.0
"""The time limit for requests that only make an error more precise."""
F = TypeVar("F", bound=Callable[..., Any])
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


def parse_start(text: str, now: datetime) -> str | int | datetime:
    """`text` as a Consumer's `start`. Raises click.BadParameter.

    A whole number is an offset whatever its size: what it means must not depend on that.
    """
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdecimal():
        return int(text)
    if text.endswith(_AGO):
        return _parse_ago(text.removesuffix(_AGO).strip(), now)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither earliest, latest, an offset such as 1200, nor a time such as '1h ago' or"
            " 2026-11-20T12:00:00Z (without a zone: UTC)."
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _parse_ago(text: str, now: datetime) -> datetime:
    try:
        return now - timedelta(milliseconds=parse_duration_ms(text))
    except ValueError:
        raise click.BadParameter(
            f"'{text} ago' is not how long ago: write a whole number and one of {', '.join(MILLISECONDS)}, for"
            " example '30m ago'."
        ) from None
    except OverflowError:
        raise click.BadParameter(f"'{text} ago' is before all time.") from None


def check_topic_name(name: str) -> None:
    """Raise click.BadParameter, with a name that would do, where Kubernetes would refuse `name`."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise click.BadParameter(f"{problem}.")


def topic_spec(partitions: int, replicas: int | None, settings: Iterable[str]) -> dict[str, Any]:
    """Return the spec, without `replicas` where that is None; `settings` are `path=value`.

    Raises click.BadParameter for an unknown path or a value of another kind. Whether a value is within its bounds is
    for the API server to say, which knows the rules.
    """
    spec: dict[str, Any] = {"partitions": partitions} | ({} if replicas is None else {"replicas": replicas})
    for setting in settings:
        path, separator, text = setting.partition("=")
        if not separator:
            raise _bad_setting(f"{setting!r} is no setting: write path=value, for example retention.time=7d")
        if path not in _SETTING_PATHS:
            ours = _SETTINGS_OF_KAFKA.get(path)
            there_are = f"there are {', '.join(sorted(_SETTING_PATHS))}" if ours is None else f"write {ours}"
            raise _bad_setting(f"{path!r} is no field of a topic; {there_are}")
        _put_setting(spec, path.split("."), _setting_value(path, text))
    try:
        TopicSpec.parse(spec)
    except InvalidResourceError as error:
        raise _bad_setting(str(error)) from None
    return spec


def _put_setting(spec: dict[str, Any], path: list[str], value: object) -> None:
    *parents, last = path
    for parent in parents:
        spec = spec.setdefault(parent, {})
    spec[last] = value


def _setting_value(path: str, text: str) -> object:
    kind = _SETTING_PATHS[path]
    if kind is bool:
        if text not in ("true", "false"):
            raise _bad_setting(f"{path} is {text!r}: it must be true or false")
        return text == "true"
    if kind is int:
        if not text.removeprefix("-").isdecimal():
            raise _bad_setting(f"{path} is {text!r}: it must be a whole number")
        return int(text)
    return text


def _bad_setting(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="--set")


def _flatten(spec: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, type]]:
    for name, value in spec.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", type(value)


_SETTING_PATHS: Final = dict(_flatten(TopicSpec.parse({"partitions": 1}).to_object()))
"""Every field of a spec, by its path, with the type of its value."""


@dataclass(frozen=True, slots=True)
class Where:
    """The place of the brokers, as the user gave it; None for what was not given."""

    server: str | None
    ca_file: str | None
    kubeconfig: str | None
    context: str | None
    namespace: str | None

    def find(self) -> "Found":
        """Find the brokers. Raises a sentence with the remedy where no way leads to brokers."""
        from headrace.cli.servers import find

        return find(self.server, self.ca_file, self.kubeconfig, self.context, self.namespace)

    @property
    def kube(self) -> "KubeOptions":
        """Return the options for requests to the Kubernetes API of the same place."""
        from headrace.cli.servers import KubeOptions

        return KubeOptions(self.kubeconfig, self.context, self.namespace)


class WholeNumber(click.IntRange):
    name = "whole number"


class TopicNameType(click.ParamType):  # type: ignore[type-arg]  # generic in new clicks only
    """The name of a topic: checked before any request, completed from the topics that there are (unless `new`)."""

    name = "topic"

    def __init__(self, *, new: bool = False) -> None:
        self._new = new

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        check_topic_name(value)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from headrace.cli.completion import topic_names

        if self._new:
            return []
        return [CompletionItem(name) for name in topic_names(ctx.params) if name.startswith(incomplete)]


class ConsumerGroupName(click.ParamType):  # type: ignore[type-arg]  # generic in new clicks only
    """The name of a consumer group: checked and completed like a topic's."""

    name = "group"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        problem = group_name_problem(value)
        if problem is not None:
            raise click.BadParameter(f"{problem}.")
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from headrace.cli.completion import group_names

        return [CompletionItem(name) for name in group_names(ctx.params) if name.startswith(incomplete)]


TOPIC, NEW_TOPIC, GROUP = TopicNameType(), TopicNameType(new=True), ConsumerGroupName()


@contextmanager
def naming_remedy(where: Where, namespace: str, *topics: str) -> Iterator[None]:
    """Explain an unknown topic in the block, which has the first request about topics: this is the most usual mistake
    of all.

    For brokers a topic of another cluster does not exist either: the Kubernetes API knows whether it is one.
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
    """Return the explanation for the first topic that no broker's cluster has."""
    import asyncio

    from headrace.cli.servers import with_kube

    async def work(client: Any, _: str) -> str | None:
        from headrace.cli.resources import unserved_topic

        async with asyncio.timeout(_PATIENCE_S):
            said = [await unserved_topic(client, topic, namespace) for topic in topics]
        return next((each for each in said if each is not None), None)

    try:
        return with_kube(kube, work)
    except Exception:  # A command that cannot ask there has already reported that there is no such topic.
        return None


def broker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--server`, `--ca-file`, `--kubeconfig`, `--context` and `-n`, for commands that talk to brokers.

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
    """Add `--kubeconfig`, `--context` and `-n`, for commands that talk to the Kubernetes API."""
    return _KUBECONFIG(_CONTEXT(_NAMESPACE(command)))


def output_option(*choices: str) -> Callable[[F], F]:
    """Return the option `-o`; the first choice is the default."""
    return click.option(
        "-o", "--output", type=click.Choice(choices), default=choices[0], show_default=True, help="Form of the output."
    )
