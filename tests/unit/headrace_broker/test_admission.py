"""What a broker holds for clients is counted, bounded and given back, and the bound follows its memory."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.core.errors import ThrottledError
from headrace.core.limits import (
    BUDGET_BYTES_MIN,
    JSON_MEMORY_FACTOR,
    REQUEST_BODY_BYTES_MAX,
    REQUEST_BYTES_IN_FLIGHT_MAX,
)
from headrace_broker.admission import (
    ANSWER_BYTES_IN_FLIGHT_MAX,
    ANSWER_BYTES_MIN,
    Admission,
    Budget,
    Requests,
    memory_limit_bytes,
)

MIB = 1 << 20


def test_should_hold_so_many_bytes_and_no_more() -> None:
    budget = Budget("request bodies", MIB)
    budget.take(MIB)
    with pytest.raises(ThrottledError, match="as many request bodies as it may; wait and try again"):
        budget.take(1)
    assert budget.refused == 1
    budget.give_back(1)
    budget.take(1)


def test_should_grant_half_of_what_is_left_and_something_to_the_last() -> None:
    budget = Budget("answers", MIB)
    assert budget.grant(MIB) == MIB // 2
    assert budget.grant(100) == 100
    while budget.left_bytes >= ANSWER_BYTES_MIN:
        assert budget.grant(MIB) >= ANSWER_BYTES_MIN
    with pytest.raises(ThrottledError):
        budget.grant(MIB)


def test_should_give_back_all_of_a_share_when_its_request_is_over() -> None:
    budget = Budget("answers", MIB)
    with budget.share(None) as share:
        assert share.grant(100) == 100
        share.resize(2 * MIB)
        assert budget.left_bytes == -MIB, "one batch that is larger than what was granted"
    assert budget.left_bytes == MIB


async def test_should_wake_who_waits_for_room() -> None:
    budget = Budget("answers", MIB)
    budget.take(MIB)
    assert not await budget.room(0.001)
    waiting = asyncio.ensure_future(budget.room(30))
    await asyncio.sleep(0)
    budget.give_back(1)
    assert not waiting.done()
    budget.give_back(ANSWER_BYTES_MIN)
    assert await waiting


def test_should_plan_with_the_memory_there_is() -> None:
    small, ample = Admission.for_memory(512 * MIB), Admission.for_memory(1 << 50)
    assert small.bodies.limit_bytes == small.answers.left_bytes == small.conversions.left_bytes
    # A fifth of what is left by the broker itself, the process that compacts, and its keys.
    assert small.bodies.limit_bytes == (512 - 128 - 96 - 32) * MIB // 5
    share = small.bodies.limit_bytes
    assert (small.body_bytes_max, small.json_body_bytes_max) == (share // 2, share // JSON_MEMORY_FACTOR)
    assert ample.body_bytes_max == ample.json_body_bytes_max == REQUEST_BODY_BYTES_MAX
    assert Admission.for_memory(MIB).bodies.limit_bytes == BUDGET_BYTES_MIN
    assert ample.bodies.limit_bytes == REQUEST_BYTES_IN_FLIGHT_MAX
    assert ample.answers.limit_bytes == ANSWER_BYTES_IN_FLIGHT_MAX


def test_should_refuse_one_request_too_many() -> None:
    admission = Admission(clients=Requests(1))
    with admission.clients.one_more("10.0.0.1"):
        with pytest.raises(ThrottledError, match="1 requests under way"), admission.clients.one_more("10.0.0.2"):
            pass
        assert (admission.requests, admission.requests_refused) == (1, 1)
    assert (admission.requests, len(admission.clients.holders)) == (0, 0)


def test_should_let_nobody_have_all_places() -> None:
    places = Requests(8, "streams open")
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(places.one_more("10.0.0.1"))
        with pytest.raises(
            ThrottledError, match=r"10\.0\.0\.1 has 4 streams open at this broker, as many as one address"
        ):
            stack.enter_context(places.one_more("10.0.0.1"))
        for _ in range(2):
            stack.enter_context(places.one_more("10.0.0.2"))
        with pytest.raises(ThrottledError, match=r"10\.0\.0\.2 has 2"):
            stack.enter_context(places.one_more("10.0.0.2"))
        for _ in range(2):
            stack.enter_context(places.one_more(None))
        with pytest.raises(ThrottledError, match="8 streams open, as many as it may"):
            stack.enter_context(places.one_more(None))
    assert places.under_way == 0


def test_should_let_nobody_hold_all_bytes() -> None:
    budget = Budget("request bodies", 16 * MIB)
    with budget.share("10.0.0.1") as hog, budget.share("10.0.0.2") as other:
        for _ in range(8):
            hog.take(MIB)
        with pytest.raises(ThrottledError, match=r"10\.0\.0\.1 has 8388608 bytes of request bodies under way"):
            hog.take(1)
        for _ in range(4):
            other.take(MIB)
        with pytest.raises(ThrottledError):
            other.check(1)
        assert budget.room_bytes("10.0.0.3") == 4 * MIB
    assert (budget.left_bytes, len(budget.holders)) == (16 * MIB, 0)


async def test_should_make_json_wait_for_its_turn() -> None:
    admission = Admission.for_memory(MIB)
    entered = asyncio.Event()

    async def convert() -> None:
        async with admission.converting(MIB):
            entered.set()

    async with admission.converting(REQUEST_BODY_BYTES_MAX):
        assert admission.conversions.left_bytes == 0, "the largest goes alone"
        other = asyncio.create_task(convert())
        await asyncio.sleep(0)
        assert not entered.is_set()
    await other
    assert admission.conversions.left_bytes == BUDGET_BYTES_MIN


@pytest.mark.parametrize(
    ("name", "text", "limit"),
    [
        ("memory.max", "1048576\n", MIB),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "2097152", 2 * MIB),
    ],
)
def test_should_find_the_limit_of_a_container(tmp_path: Path, name: str, text: str, limit: int | None) -> None:
    machine = memory_limit_bytes(tmp_path)
    assert machine > 64 * MIB
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert memory_limit_bytes(tmp_path) == (limit or machine)
