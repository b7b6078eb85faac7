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
        group_member = consumer._member.group_member  # type: ignore[union-attr]
        wait_for(lambda: not group_member.news, "nobody has told it anything")
        # As if the process had stood still for longer than its session: no clock has been looked at since.
        assert group_member._state is not None
        with consumer._member._changed:  # type: ignore[union-attr]
            group_member._state._valid_until_ms = 1
            group_member.holds_until_ns = 1_000_000
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
        group_member = consumer._member.group_member  # type: ignore[union-attr]
        assert group_member._state is not None
        group_member._state._valid_until_ms = 1
        group_member.holds_until_ns = records._look_ns = 1_000_000
        assert (await anext(records)).offset == 0
        assert len(lost) == 1
