"""Asks brokers for promises, at the URLs of their Leases. Whoever does not answer in time is asked again another time.

Decides nothing: what to ask `questions` says, what the answers mean `resort`. One per process.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import replace

from headrace.core.control.asking import Asking, Questions
from headrace.core.control.held import Epochs
from headrace.core.control.observed import Observed
from headrace.core.control.promises import Promises, ask
from headrace.core.errors import HeadraceError, RemoteError
from headrace.core.limits import PROMISES_BYTES_MAX, PROMISES_TIMEOUT_MS
from headrace.core.types import BrokerId, PartitionKey
from headrace.http2.client import AsyncTransport, Response

_log = logging.getLogger(__name__)
_TIMEOUT_S = PROMISES_TIMEOUT_MS / 1000
_HEADERS = {"content-type": "application/json", "accept": "application/json"}


class Reporter:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._asking = Asking()

    async def asked(self, observed: Observed, wanted: Questions) -> Observed:
        """`observed` with what the brokers answered, of as much as can be asked at once."""
        asked = self._asking.turn(wanted)
        answers = await asyncio.gather(*(self._ask(observed, broker, keys) for broker, keys in asked.items()))
        promises = {answer.seat.broker: answer for answer in answers if answer is not None}
        return replace(observed, promises=promises, silent=self._asking.heard(asked, promises))

    async def _ask(
        self, observed: Observed, broker: BrokerId, questions: Mapping[PartitionKey, Epochs]
    ) -> Promises | None:
        url = observed.brokers[broker].url
        body = json.dumps(ask(questions)).encode()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                path = f"{url}/v1/brokers/{broker}/promises"
                response = await self._transport.request(
                    "POST", path, headers=_HEADERS, body=body, timeout_s=_TIMEOUT_S
                )
                content = await _content(response)
            if response.status != 200:
                raise RemoteError(f"{response.status} {content[:200].decode(errors='replace')}")
            return Promises.parse(json.loads(content))
        except (HeadraceError, TimeoutError, ValueError, OSError) as error:
            _log.warning("broker %d at %s does not say what it holds: %s", broker, url, str(error) or repr(error))
            return None


async def _content(response: Response) -> bytes:
    """Raises RemoteError where there is no end of it."""
    content = bytearray()
    async for chunk in response.chunks():
        content += chunk
        if len(content) > PROMISES_BYTES_MAX:
            response.cancel()
            raise RemoteError(f"its answer is longer than {PROMISES_BYTES_MAX} bytes")
    return bytes(content)
