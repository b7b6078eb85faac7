"""How long a broker that leaves for good waits for others, whatever the API server answers meanwhile."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.core.resources.pod import BrokerSet
from headrace.kube.errors import ApiError, ApiUnavailableError, NotFoundError
from headrace_broker.coordination import handing_over
from headrace_broker.coordination.handing_over import Handover
from tests.support.partition_sets import seat


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
    monkeypatch.setattr(handing_over, "monotonic_ms", lambda: clock.ms)
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
