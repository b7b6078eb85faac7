"""How long a broker that stops waits for others, whatever the API server answers meanwhile."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.core.replication.draining import Placed
from headrace.core.resources.kubernetes_objects import BrokerSet
from headrace.core.types import BrokerId, Seat
from headrace.kube.errors import ApiError, ApiUnavailableError, NotFoundError
from headrace_broker.cluster import membership
from headrace_broker.cluster.membership import Handover
from tests.support.partition_sets import partition_state, seat


class Client:
    """Answers in turn, the last one for ever."""

    def __init__(self, *answers: BrokerSet | ApiError) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def get(self, *_: object) -> BrokerSet:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ApiError):
            raise answer
        return answer


STAYING = cast("BrokerSet", SimpleNamespace(asks_for=lambda broker: False))
WANTED = cast("BrokerSet", SimpleNamespace(asks_for=lambda broker: True))


async def looks(client: Client, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often it asked until it went, where nobody takes anything and a look takes 100 s."""
    clock = SimpleNamespace(ms=0)
    monkeypatch.setattr(membership, "monotonic_ms", lambda: clock.ms)
    handover = Handover(
        seat(2), cast("Any", client), cast("Any", SimpleNamespace(cluster="x")), cast("Any", None), "ns"
    )

    async def is_over(*_: object) -> bool:
        clock.ms += 100_000
        return False

    monkeypatch.setattr(handover, "_is_over", is_over)
    monkeypatch.setattr(handover, "_held", lambda staying: SimpleNamespace(moving=1, needed=0, left=0))
    await handover._give_away()
    return client.asked


async def test_should_wait_by_time_and_go_on_waiting_where_an_answer_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = ApiUnavailableError("away")
    assert await looks(Client(STAYING, refused, STAYING, refused), monkeypatch) == 6, "ten minutes"
    assert await looks(Client(refused), monkeypatch) == 1, "it never learned that it is to leave"


@pytest.mark.parametrize("ends", [WANTED, NotFoundError("gone")], ids=["asked for again", "no StatefulSet"])
async def test_should_end_where_it_is_to_stay(ends: BrokerSet | ApiError, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await looks(Client(STAYING, ApiUnavailableError("away"), ends), monkeypatch) == 3


class Catching:
    """Brokers 0 and 1 are in sync and 2 is behind, of three; broker 0 stops. A look takes 100 s."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, catches_up_ms: int = 10_000_000) -> None:
        self.ms, self.looks, self.catches_up_ms = 0, 0, catches_up_ms
        self.ready: set[Seat] = {seat(1), seat(2)}
        monkeypatch.setattr(membership, "monotonic_ms", lambda: self.ms)
        monkeypatch.setattr(asyncio, "sleep", self.sleep)
        view: Any = SimpleNamespace(ready_seats=lambda now_ms: self.ready)
        self.handover = Handover(seat(0), cast("Any", None), view, cast("Any", None), "ns")
        monkeypatch.setattr(self.handover, "_placed", self.placed)

    async def sleep(self, _: float) -> None:
        self.ms, self.looks = self.ms + 100_000, self.looks + 1

    def placed(self) -> list[Placed]:
        isr = tuple(map(seat, range(3 if self.ms >= self.catches_up_ms else 2)))
        state = partition_state(leader=seat(1), replicas=tuple(map(BrokerId, range(3))), isr=isr)
        return [Placed(state, 2, topic="default/flights")]


async def test_should_stay_until_another_is_in_sync(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    catching = Catching(monkeypatch, catches_up_ms=200_000)
    with caplog.at_level(logging.INFO):
        await catching.handover._stay_in_sync(600_000)
    assert catching.looks == 2
    assert caplog.messages == ["draining: in sync until other replicas have caught up: default/flights/0"]


async def test_should_not_stay_for_ever_nor_for_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    catching = Catching(monkeypatch)
    await catching.handover._stay_in_sync(600_000)
    assert catching.looks == 6
    assert caplog.messages == ["stopping although too few replicas stay in sync: default/flights/0"]
    catching.ready = {seat(1)}
    await catching.handover._stay_in_sync(1_200_000)
    assert catching.looks == 6
