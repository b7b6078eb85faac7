"""`kubectl logs`: the log file of the process behind a Pod, its end or all of it, and as it grows.

One response per request, until the reader leaves, the Pod is gone or the server stops. This process is not notified
when another one has written, so a follower polls every DEV_LOG_POLL_MS. A Pod whose process was started again shows all
of its lives: the file does.

Our processes begin a line with the local time (`2026-11-21 09:00:00,123`); a line that does not, as in a traceback,
belongs to the line before it. The options are those of `kubectl logs`; the refusals are a kube-apiserver's and a
kubelet's. A `Tail` owns the open file until `close`, goes on in the next file where it is rolled, and keeps only a
bounded piece of it in memory; a file that is not there yet is an empty one.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from headrace.dev.api.builtin import PODS
from headrace.dev.api.objects import GroupResource, Key, Object
from headrace.dev.api.operations import Operations
from headrace.dev.api.status import (
    Cause,
    bad_request,
    forbidden_value,
    invalid,
    invalid_value,
    method_not_allowed,
    not_found,
)
from headrace.http2.aiohttp_web import web

DEV_LOG_READ_BYTES = 64 << 10
"""The size of the pieces in which `kubectl logs` reads a file."""
DEV_LOG_LINE_BYTES_MAX = 1 << 20
"""The size of a line above which it is shown in parts."""
DEV_LOG_POLL_MS = 200
"""The interval at which `kubectl logs -f` checks whether a log has grown."""
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\b")
_NUMBER = re.compile(r"[-+]?\d{1,18}")
ORDINAL = "{ordinal}"
"""The placeholder of a Pod's number in the name of its log file."""
_ORDINAL_LABEL = "apps.kubernetes.io/pod-index"


class Tail:
    def __init__(self, path: Path, last: int | None) -> None:
        """Begin `last` lines before the end; None: at the beginning."""
        self._path = path
        self._file = _opened(path)
        self._rest = b""
        """The line that has no end yet."""
        if self._file is not None and last is not None:
            self._file.seek(start_of_last(self._file, last))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def new_lines(self) -> Iterator[list[bytes]]:
        """Yield whole lines that have come since the last call, in pieces."""
        yield from self._read()
        if self._was_left():
            self.close()
            self._file = _opened(self._path)
            yield [self.take_rest()]
            yield from self._read()

    def take_rest(self) -> bytes:
        """Return the beginning of a line without an end; it is not returned again."""
        rest, self._rest = self._rest, b""
        return rest

    def _read(self) -> Iterator[list[bytes]]:
        while self._file is not None and (piece := self._file.read(DEV_LOG_READ_BYTES)):
            *whole, self._rest = (self._rest + piece).split(b"\n")
            lines = [line + b"\n" for line in whole]
            if len(self._rest) > DEV_LOG_LINE_BYTES_MAX:
                lines.append(self.take_rest())
            yield lines

    def _was_left(self) -> bool:
        """Return whether the writer has begun another file under this name, or this one anew."""
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        if self._file is None:
            return True
        return now.st_ino != os.fstat(self._file.fileno()).st_ino or now.st_size < self._file.tell()


def start_of_last(file: BinaryIO, lines: int) -> int:
    """Return where the last so many lines begin, which may be fewer; a last line without an end is one."""
    end = at = file.seek(0, os.SEEK_END)
    if not lines or not end:
        return end
    file.seek(end - 1)
    wanted = lines + (file.read(1) == b"\n")
    while at > 0:
        at, before = max(0, at - DEV_LOG_READ_BYTES), at
        file.seek(at)
        piece = file.read(before - at)
        if (found := piece.count(b"\n")) >= wanted:
            ends = [index for index, byte in enumerate(piece) if byte == ord("\n")]
            return at + ends[-wanted] + 1
        wanted -= found
    return 0


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


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
    """Parse the options. Raises StatusError 400, 422."""
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
    """Raise StatusError 400 where the container is not named, is not there, or has no earlier life on record."""
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
    """A filter that yields what a reader sees of lines, which are given in the order of the file."""

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
    """Return a query parameter's truth as Kubernetes reads it: a parameter without a value is true."""
    return name in query and query[name].lower() not in ("false", "0")


def _before(now: datetime, seconds: int) -> datetime | None:
    """Return the time so many seconds before; None where that is before all time."""
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


class PodLogs:
    def __init__(self, operations: Operations, pattern: Path | None) -> None:
        """Take `pattern`, the path of the logs of the StatefulSet's Pods, with ORDINAL in it; None: nothing runs
        here."""
        self._operations = operations
        self._pattern = pattern

    def add_to(self, app: web.Application) -> None:
        """Add the routes; must come before the routes of the resources, whose paths look alike."""
        app.router.add_route("*", "/api/v1/namespaces/{namespace}/pods/{name}/log", self._handle)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            raise method_not_allowed()
        store = self._operations.store
        key = Key(PODS, request.match_info["namespace"], request.match_info["name"])
        options = read_log_options(request.query, key.name, self._operations.now())
        pod = store.get(key)
        if pod is None:
            raise not_found(PODS, key.name)
        check_container(pod, options)
        path = self._path(pod)
        if path is None:
            return web.Response(status=204)

        def is_over() -> bool:
            current = store.get(key)
            gone = current is None or current["metadata"]["uid"] != pod["metadata"]["uid"]
            return store.history.closed or gone or not options.follow

        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        with closing(Tail(path, options.tail_lines)) as tail:
            shown = Shown(options)
            async for lines in _pieces(tail, is_over):
                await response.write(shown.of(lines))
                if shown.is_full:
                    break
        await response.write_eof()
        return response

    def _path(self, pod: Object) -> Path | None:
        """Return the path; None where nothing runs yet. Raises StatusError 404 for a Pod on a node that is not
        there."""
        if "nodeName" not in pod["spec"]:
            return None
        ordinal = pod["metadata"].get("labels", {}).get(_ORDINAL_LABEL, "")
        if self._pattern is None or not ordinal.isdecimal():
            raise not_found(PODS, pod["spec"]["nodeName"])
        return self._pattern.with_name(self._pattern.name.replace(ORDINAL, ordinal))


async def _pieces(tail: Tail, is_over: Callable[[], bool]) -> AsyncIterator[list[bytes]]:
    """Yield lines as they come, until `is_over`."""
    while True:
        for lines in tail.new_lines():
            yield lines
        if is_over():
            yield [tail.take_rest()]
            return
        await asyncio.sleep(DEV_LOG_POLL_MS / 1000)
