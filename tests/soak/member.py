"""What all who use a cluster during a soak have in common: a place, a thread that outlives faults, plain requests."""

import json
import time
from dataclasses import dataclass
from typing import Any, Final

from headrace.core.errors import HeadraceError
from headrace.http2.blocking_transport import BlockingTransport
from headrace.http2.exchange import Response
from tests.support.hardy_clients import HardyClient, Troubles
from tests.support.world import BATCH

TIMEOUT_S: Final = 15


@dataclass(frozen=True, slots=True)
class Place:
    """A partition; `number` is its own among all partitions of the run."""

    topic: str
    number: int
    url: str
    """Of its records, at its leader."""


class Member(HardyClient):
    """One thread, with troubles of its own."""

    def __init__(self, place: Place) -> None:
        super().__init__(f"{type(self).__name__} {place.topic}", Troubles())
        self.place = place


def post(transport: BlockingTransport, place: Place, body: bytes) -> dict[str, Any] | None:
    """The answer; None where the broker refused, so that nothing was written or nobody knows."""
    url, headers = f"{place.url}?acks=all", {"content-type": BATCH}
    answer = transport.request("POST", url, headers=headers, body=body, timeout_s=TIMEOUT_S)
    return json.loads(answer.body) if answer.status == 200 else None


def fetch(transport: BlockingTransport, place: Place, offset: int) -> Response:
    """Batches from there on, or what the broker has to say instead."""
    url = f"{place.url}?offset={offset}&maxWaitMs=500"
    return transport.request("GET", url, headers={"accept": BATCH}, timeout_s=TIMEOUT_S)


def start_of(transport: BlockingTransport, place: Place) -> int | None:
    """The first offset that is kept; None where the broker does not say."""
    return edge_of(transport, place, "earliest")


def edge_of(transport: BlockingTransport, place: Place, edge: str) -> int | None:
    """The offset of `earliest` or `latest`; None where the broker does not say."""
    url = f"{place.url.removesuffix('/records')}/offsets?timestamp={edge}"
    try:
        answer = transport.request("GET", url, timeout_s=TIMEOUT_S)
    except HeadraceError:
        return None
    return int(json.loads(answer.body)["offset"]) if answer.status == 200 else None


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
