"""The brokers as an asyncio client sees them, and its sessions with leaders: the face of `brokers` for an event loop.

`AsyncBrokers` owns the transport and what is known of topics and URLs, for the lifetime of one producer or consumer.
Every await may be cancelled: the request is reset, and nothing is known that was not known before.

`AsyncSessions` is the base of the producer's and the consumer's sessions. One task reads each session; nothing is
awaited between a step of the session and the news of it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Generic, TypeVar

from headrace.client.clock import now_ms
from headrace.client.record import TopicPartition
from headrace.client.transport import calls
from headrace.client.transport.calls import Buffers, Call, Calls, Directory, Fetched, as_namespace
from headrace.client.transport.discovery import Servers, find_servers
from headrace.client.transport.leader_session import KnownSessions, LeaderSession
from headrace.client.transport.metadata import TopicLayout
from headrace.client.transport.retry import Retries, Trouble, changes_layout
from headrace.core.errors import BrokerUnreachableError, HeadraceError, LocalError
from headrace.core.frames.session_messages import SESSION_MEDIA_TYPE
from headrace.core.limits import OFFSET_REQUESTS_MAX
from headrace.http2.async_transport import AsyncStream, AsyncTransport
from headrace.http2.blocking_transport import Response
from headrace.http2.exchange import Decode
from headrace.http2.origin import Attempts

T = TypeVar("T")


class AsyncBrokers:
    def __init__(
        self,
        server: str | Servers | None,
        namespace: str | None,
        *,
        ca_file: str | None = None,
        timeout_ms: int,
        request_timeout_ms: int,
    ) -> None:
        """Raises NoServerError with the remedy; connects to nobody yet, and needs no running loop."""
        self.directory = Directory(find_servers(server, ca_file))
        self.trouble = Trouble()
        self._closed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.namespace = as_namespace(namespace)
        self.request_timeout_ms = request_timeout_ms
        self._calls = Calls(self.namespace, request_timeout_ms)
        self._timeout_ms = timeout_ms
        self._random = Random()
        self._transport = AsyncTransport(self.directory.servers.ssl_context)
        self._reading_metadata = asyncio.Lock()
        self._metadata_attempts = Attempts()

    async def close(self) -> None:
        self._closed.set()
        await self._transport.close()

    def check_loop(self) -> None:
        """Raises LocalError on another loop than the first, and where there is none RuntimeError."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif loop is not self._loop:
            raise LocalError("this client belongs to another event loop: make one for each loop")

    async def retrying(
        self, what: str, once: Callable[[], Awaitable[T]], topic: str | None = None, *, timeout_ms: int | None = None
    ) -> T:
        """`once()` until it succeeds or the retry policy gives up; between attempts `topic`'s metadata is dropped.

        Without `timeout_ms` the client's own time limit counts.
        """
        retries = Retries(what, self._timeout_ms if timeout_ms is None else timeout_ms, now_ms(), self.trouble)
        while True:
            try:
                return await once()
            except HeadraceError as error:
                again = retries.failed(error, now_ms(), self._random)
            if again.refresh and topic is not None:
                self.directory.forget(topic)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0, again.at_ms - now_ms()) / 1000):
                    await self._closed.wait()
            if self._closed.is_set():
                raise LocalError(f"{what}: closed meanwhile")

    # -- metadata ----------------------------------------------------------------------------------------------------

    async def layout(self, topic: str) -> TopicLayout:
        """What is known of `topic`; asks a broker, for as long as the time limit allows, when nothing is."""
        known = self.directory.fresh(topic, now_ms())
        if known is not None:
            return known
        return await self.retrying(f"the metadata of {topic}", lambda: self.layout_once(topic))

    async def layout_once(self, topic: str) -> TopicLayout:
        """As `layout`, with one attempt. Raises UnknownTopicError, BrokerUnreachableError."""
        known = self.directory.fresh(topic, now_ms())
        if known is not None:
            return known
        failures = self._metadata_attempts.failures
        async with self._reading_metadata:
            known = self.directory.fresh(topic, now_ms())  # Another task may have asked meanwhile.
            if known is not None:
                return known
            self._metadata_attempts.check_since(failures)
            try:
                answer = await self._request(self._calls.topic(topic))
            except BrokerUnreachableError as error:
                self._metadata_attempts.failed(error)
                raise
            return self.directory.learn(topic, answer, now_ms())

    async def ask_who_leads(self, topic: str) -> None:
        """Read the metadata anew, once, whatever is known; what is known stays until then. Raises as `layout_once`."""
        self.directory.learn(topic, await self._request(self._calls.topic(topic)), now_ms())

    # -- partitions --------------------------------------------------------------------------------------------------

    async def produce_once(self, partition: TopicPartition, batch: Buffers, acks: str) -> int:
        """Write one encoded batch; its base offset, -1 with acks=0."""
        layout = await self.layout_with(partition)
        return calls.base_offset(await self._request(self._calls.produce(layout, partition.partition, batch, acks)))

    async def open_session(self, url: str, decode: Decode) -> AsyncStream:
        headers = {**self.directory.servers.headers, "content-type": SESSION_MEDIA_TYPE}
        try:
            return await self._transport.open("POST", url + calls.SESSIONS_PATH, headers=headers, decode=decode)
        except BrokerUnreachableError as error:
            raise self.directory.unreachable(url, error, now_ms()) from error.__cause__

    async def fetch_once(self, partition: TopicPartition, offset: int, *, max_bytes: int, wait_ms: int) -> Fetched:
        """Whole batches from `offset` on; empty when nothing new came within `wait_ms`."""
        layout = await self.layout_with(partition)
        call = self._calls.fetch(layout, partition.partition, offset, max_bytes=max_bytes, wait_ms=wait_ms)
        return calls.fetched(await self._request(call), partition)

    async def offsets(self, partitions: Sequence[TopicPartition], timestamp: str | int) -> dict[TopicPartition, int]:
        """Of the first record at or after `timestamp` (`earliest`, `latest`, or ms) in each; the end where none is."""
        turn = asyncio.Semaphore(OFFSET_REQUESTS_MAX)

        async def look_up(partition: TopicPartition) -> int:
            async with turn:
                return await self.offset(partition, timestamp)

        tasks = [asyncio.create_task(look_up(partition)) for partition in partitions]
        try:
            return dict(zip(partitions, await asyncio.gather(*tasks), strict=True))
        finally:  # The first failure ends the others, as a cancellation does.
            for task in tasks:
                task.cancel()

    async def offsets_once(
        self, partitions: Sequence[TopicPartition], timestamp: str | int, timeout_ms: int
    ) -> dict[TopicPartition, int | HeadraceError]:
        """As `offsets`, with one attempt for each, and no longer than this; where that failed, why."""
        turn = asyncio.Semaphore(OFFSET_REQUESTS_MAX)

        async def look_up(partition: TopicPartition) -> int | HeadraceError:
            async with turn:
                try:
                    return await self._offset_or_end_once(partition, timestamp, timeout_ms)
                except HeadraceError as error:
                    if changes_layout(error):
                        self.directory.forget(partition.topic)
                    return error

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(look_up(partition)) for partition in partitions]
        return {partition: task.result() for partition, task in zip(partitions, tasks, strict=True)}

    async def offset(self, partition: TopicPartition, timestamp: str | int) -> int:
        """As `offsets`, of one partition."""
        once = partial(self._offset_or_end_once, partition, timestamp, self.request_timeout_ms)
        return await self.retrying(f"the offsets of {partition}", once, partition.topic)

    async def _offset_or_end_once(self, partition: TopicPartition, timestamp: str | int, timeout_ms: int) -> int:
        found = await self._offset_once(partition, timestamp, timeout_ms)
        return await self._offset_once(partition, "latest", timeout_ms) or 0 if found is None else found

    async def _offset_once(self, partition: TopicPartition, timestamp: str | int, timeout_ms: int) -> int | None:
        layout = await self.layout_with(partition)
        call = self._calls.offset(layout, partition.partition, timestamp)
        return calls.offset(await self._request(replace(call, timeout_ms=min(call.timeout_ms, timeout_ms))))

    async def layout_with(self, partition: TopicPartition) -> TopicLayout:
        layout = await self.layout_once(partition.topic)
        self.directory.check_partition(layout, partition)
        return layout

    async def request_once(self, call: Call) -> Response:
        """With one attempt."""
        return await self._request(call)

    async def _request(self, call: Call) -> Response:
        url = self.directory.url_for(call, now_ms())
        try:
            answer = await self._exchange(url, call)
        except BrokerUnreachableError as error:
            raise self.directory.unreachable(url, error, now_ms()) from error.__cause__
        self.directory.answered(url, answer)
        return answer

    async def _exchange(self, url: str, call: Call) -> Response:
        """The whole response within the call's time limit."""
        headers = self.directory.headers_of(call)
        try:
            async with asyncio.timeout(call.timeout_s):
                head = await self._transport.request(
                    call.method, url + call.path, headers=headers, body=call.body, timeout_s=call.timeout_s
                )
                return Response(head.status, head.headers, await head.read())
        except TimeoutError:
            raise BrokerUnreachableError(f"{url} did not answer within {call.timeout_s:g} s") from None


S = TypeVar("S", bound=LeaderSession[Any, Any])


class AsyncSessions(KnownSessions[S, AsyncStream], ABC, Generic[S]):
    def __init__(self, brokers: AsyncBrokers, make_session: Callable[[str], S]) -> None:
        super().__init__(brokers.directory, make_session)
        self._brokers = brokers
        self._opening: dict[str, asyncio.Lock] = {}
        self._readers: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Nothing more is read."""
        readers = list(self._readers)
        for task in readers:
            task.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    @abstractmethod
    def _hear(self, session: S, news: list[Any]) -> None: ...

    @abstractmethod
    def _cancelled(self, session: S) -> None:
        """Somebody has ended the task that reads it: `close`, or somebody from outside."""

    def look_elsewhere(self) -> set[str]:
        """Leave leaders that others have replaced -> topics whose leaders are silent: `AsyncBrokers.ask_who_leads`."""
        silent: set[str] = set()
        for session, _ in list(self._streams.values()):
            silent |= self._silent(session, now_ms())
            if news := session.leave_moved(self._directory.newest):
                self._hear(session, news)
        return silent

    async def _session(self, url: str) -> tuple[S, AsyncStream]:
        """May connect."""
        async with self._opening.setdefault(url, asyncio.Lock()):
            known = self._known(url)
            if known is not None:
                return known
            session = self._make_session(url)
            stream = await self._brokers.open_session(url, session.decode)
            self._streams[url] = session, stream
            task = asyncio.get_running_loop().create_task(self._read(session, stream), name="headrace-session")
            self._readers.add(task)
            task.add_done_callback(partial(self._done, session))
            return session, stream

    def _done(self, session: S, task: asyncio.Task[None]) -> None:
        """A task may be cancelled before it has begun: it says nothing then."""
        self._readers.discard(task)
        if task.cancelled():
            self._cancelled(session)

    async def _read(self, session: S, stream: AsyncStream) -> None:
        refusal: list[bytes] = []
        try:
            while chunks := await stream.receive(None):
                if stream.status >= 400:
                    refusal += chunks
                else:
                    self._hear(session, session.receive(chunks))
        except HeadraceError as error:
            self._end(session, error)
        else:
            self._end(session, self._why(session, stream, refusal))

    def _end(self, session: S, error: HeadraceError) -> None:
        self._hear(session, session.end(self._told(session, error)))
