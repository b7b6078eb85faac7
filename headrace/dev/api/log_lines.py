"""Which lines of a log a reader asked for. Pure.

Our processes begin a line with the local time (`2026-11-21 09:00:00,123`); what does not, a traceback, belongs to the
line before it. The options are those of `kubectl logs`; the refusals are a kube-apiserver's and a kubelet's.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from headrace.core.slotted import dataclass
from headrace.dev.api.objects import GroupResource, Object
from headrace.dev.api.status import Cause, bad_request, forbidden_value, invalid, invalid_value

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\b")
_NUMBER = re.compile(r"[-+]?\d{1,18}")


@dataclass(frozen=True, slots=True)
class LogOptions:
    container: str = ""
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since: datetime | None = None
    timestamps: bool = False


def read_log_options(query: Mapping[str, str], pod: str, now: datetime) -> LogOptions:
    """Raises StatusError 400, 422."""
    tail, limit, seconds = (_number(query, name) for name in ("tailLines", "limitBytes", "sinceSeconds"))
    since = _moment(query.get("sinceTime"))
    causes = list(_causes(tail, limit, seconds, since))
    if "stream" in query:
        causes.append(forbidden_value("stream", "may not be specified"))
    if causes:
        raise invalid(GroupResource("", "PodLogOptions"), pod, causes)
    return LogOptions(
        container=query.get("container", ""),
        follow=_truth(query, "follow"),
        previous=_truth(query, "previous"),
        tail_lines=tail,
        limit_bytes=limit,
        since=since if seconds is None else _before(now, seconds),
        timestamps=_truth(query, "timestamps"),
    )


def check_container(pod: Object, options: LogOptions) -> None:
    """Raises StatusError 400 where it is not told which, is not there, or has no earlier life on record."""
    name, containers = pod["metadata"]["name"], [c.get("name", "") for c in pod["spec"].get("containers", ())]
    if options.container and options.container not in containers:
        raise bad_request(f"container {options.container} is not valid for pod {name}")
    if not options.container and len(containers) > 1:
        listed = " ".join(containers)
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")
    if options.previous:
        container = options.container or containers[0]
        raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')


class Shown:
    """What a reader sees of lines that are given in the order of the file."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._left_bytes = options.limit_bytes
        self._stamp: datetime | None = None

    @property
    def is_full(self) -> bool:
        return self._left_bytes == 0

    def of(self, lines: Iterable[bytes]) -> bytes:
        shown = b"".join(self._chosen(lines))
        if self._left_bytes is not None:
            shown = shown[: self._left_bytes]
            self._left_bytes -= len(shown)
        return shown

    def _chosen(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            self._stamp = _stamp_of(line) or self._stamp
            if self._options.since is None or (self._stamp is not None and self._stamp >= self._options.since):
                yield self._prefix() + line

    def _prefix(self) -> bytes:
        if not self._options.timestamps or self._stamp is None:
            return b""
        return self._stamp.strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()


def _stamp_of(line: bytes) -> datetime | None:
    found = _STAMP.match(line)
    if found is None:
        return None
    try:
        local = datetime.fromisoformat(found[1].decode()).replace(microsecond=1000 * int(found[2]))
    except ValueError:
        return None
    return local.astimezone(UTC)


def _causes(tail: int | None, limit: int | None, seconds: int | None, since: datetime | None) -> Iterator[Cause]:
    if tail is not None and tail < 0:
        yield invalid_value("tailLines", tail, "must be greater than or equal to 0")
    if limit is not None and limit < 1:
        yield invalid_value("limitBytes", limit, "must be greater than 0")
    if seconds is not None and since is not None:
        yield forbidden_value("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified")
    elif seconds is not None and seconds < 1:
        yield invalid_value("sinceSeconds", seconds, "must be greater than 0")


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def _truth(query: Mapping[str, str], name: str) -> bool:
    """As Kubernetes reads query parameters: there without a value is yes."""
    return name in query and query[name].lower() not in ("false", "0")


def _before(now: datetime, seconds: int) -> datetime | None:
    """None where that is before all time."""
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        return None


def _moment(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise bad_request(
            f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": an RFC 3339 time is wanted, as 2026-11-21T09:00:00Z'
        )
    return moment
