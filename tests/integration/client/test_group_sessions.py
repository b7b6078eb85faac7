"""Nothing is handed out once a session is over, within a batch too, before anybody in the background knows."""

from tests.support.client_bench import Bench
from tests.support.waiting import wait_for


def test_should_hand_out_nothing_beyond_its_session(bench: Bench) -> None:
    bench.create()
    with bench.producer() as producer:
        for number in range(50):
            producer.send(bench.topic, str(number))
    lost: list[object] = []
    with bench.consumer(group=bench.topic, on_lost=lost.extend, auto_commit=False) as consumer:
        records = iter(consumer)
        assert [next(records).offset for _ in range(5)] == [0, 1, 2, 3, 4]
        seat = consumer._attendance.seat  # type: ignore[union-attr]
        wait_for(lambda: not seat.news, "nobody has told it anything")
        # As if the process had stood still for longer than its session: no clock has been looked at since.
        assert seat._state is not None
        with consumer._attendance._changed:  # type: ignore[union-attr]
            seat._state._valid_until_ms = 1
            seat.holds_until_ns = 1_000_000
        again = next(records)
        assert len(lost) == 1
        assert again.offset == 0, "it joined again, and the group has committed nothing"


async def test_should_hand_out_nothing_beyond_its_session_on_a_loop(bench: Bench) -> None:
    bench.create()
    async with bench.async_producer() as producer:
        for number in range(50):
            await producer.send(bench.topic, str(number))
    lost: list[object] = []
    async with bench.async_consumer(group=bench.topic, on_lost=lost.extend, auto_commit=False) as consumer:
        records = aiter(consumer)
        assert [(await anext(records)).offset for _ in range(5)] == [0, 1, 2, 3, 4]
        seat = consumer._attendance.seat  # type: ignore[union-attr]
        assert seat._state is not None
        seat._state._valid_until_ms = 1
        seat.holds_until_ns = records._look_ns = 1_000_000
        assert (await anext(records)).offset == 0
        assert len(lost) == 1
