"""How often the streams of one client are written to: nobody waits for those of another."""

import asyncio

from headrace.core.holders import HolderRate
from headrace_broker.partition.fetch import OpenWatches
from tests.support.patience import patient

NEVER_MS = 1e9


async def test_should_keep_waiting_whoever_has_had_its_pieces_and_nobody_else() -> None:
    watches = OpenWatches(rate=HolderRate(2, NEVER_MS, 10))
    async with asyncio.timeout(patient(10)):
        for holder in ("10.0.0.1", "10.0.0.1", "10.0.0.2", None, None, None):
            await watches.turn(holder)
    third = asyncio.create_task(watches.turn("10.0.0.1"))
    async with asyncio.timeout(patient(10)):
        await watches.turn("10.0.0.2")
    await asyncio.sleep(0)  # It has begun.
    assert not third.done()
    third.cancel()
