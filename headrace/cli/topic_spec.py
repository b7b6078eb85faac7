"""From a command line to a Topic's spec: names, `--set` paths, and what people get wrong about them. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from headrace.core.resources.metadata import InvalidResourceError
from headrace.core.resources.names import topic_name_problem
from headrace.core.resources.topic import TopicSpec


def check_name(name: str) -> None:
    """Raises click.BadParameter, with a name that would do, where Kubernetes would refuse `name`."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise click.BadParameter(f"{problem}.")


def topic_spec(partitions: int, replicas: int | None, settings: Iterable[str]) -> dict[str, Any]:
    """The spec, without `replicas` where that is None; `settings` are `path=value`.

    Raises click.BadParameter for an unknown path or a value of another kind. Whether a value is within its bounds is
    for the API server to say, which knows the rules.
    """
    spec: dict[str, Any] = {"partitions": partitions} | ({} if replicas is None else {"replicas": replicas})
    for setting in settings:
        path, separator, text = setting.partition("=")
        if not separator:
            raise _bad(f"{setting!r} is no setting: write path=value, for example retention.time=7d")
        if path not in _PATHS:
            ours = _OF_KAFKA.get(path)
            there_are = f"there are {', '.join(sorted(_PATHS))}" if ours is None else f"write {ours}"
            raise _bad(f"{path!r} is no field of a topic; {there_are}")
        _put(spec, path.split("."), _value(path, text))
    try:
        TopicSpec.parse(spec)
    except InvalidResourceError as error:
        raise _bad(str(error)) from None
    return spec


def _put(spec: dict[str, Any], path: list[str], value: object) -> None:
    *parents, last = path
    for parent in parents:
        spec = spec.setdefault(parent, {})
    spec[last] = value


def _value(path: str, text: str) -> object:
    kind = _PATHS[path]
    if kind is bool:
        if text not in ("true", "false"):
            raise _bad(f"{path} is {text!r}: it must be true or false")
        return text == "true"
    if kind is int:
        if not text.removeprefix("-").isdecimal():
            raise _bad(f"{path} is {text!r}: it must be a whole number")
        return int(text)
    return text


def _bad(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="--set")


def _flatten(spec: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, type]]:
    for name, value in spec.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", type(value)


_OF_KAFKA: Final = {
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
_PATHS: Final = dict(_flatten(TopicSpec.parse({"partitions": 1}).to_object()))
"""Every field of a spec, by its path, with the type of its value."""
