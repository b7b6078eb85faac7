"""The SDK for event loops, used as `clients` uses the one for threads: each has a thread, and a loop in it."""

import asyncio
from typing import Final

from headrace import AsyncConsumer, AsyncProducer
from tests.faults.clients import DELIVERY_TIMEOUT_MS, PACE_S, WAITING_MAX, Reader, SdkWriter
from tests.faults.history import Poll, Row
from tests.faults.journal import now_s

_LOOK_S: Final = 0.5


class AsyncSdkWriter(SdkWriter):
    def _work(self) -> None:
        asyncio.run(self._write())

    async def _write(self) -> None:
        async with AsyncProducer(server=self._servers, **self._options) as producer:
            while not self._stopped.is_set():
                for partition, waiting in enumerate(self._waiting):
                    if len(waiting) < WAITING_MAX:
                        number, value, began_s = self._next(partition)
                        sending = await producer.send(self._journal.topic, value, partition=partition)
                        waiting.append((number, value, began_s, sending))
                    self._harvest(partition)
                await asyncio.sleep(PACE_S)
            everything = [sending for waiting in self._waiting for _, _, _, sending in waiting]
            await asyncio.gather(*everything, return_exceptions=True)
            for partition in range(len(self._waiting)):
                self._harvest(partition)


class AsyncSdkReader(Reader):
    """All partitions."""

    def _work(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        async with AsyncConsumer(self._journal.topic, server=self._servers, timeout_ms=DELIVERY_TIMEOUT_MS) as consumer:
            for partition, offset in self.position.items():
                await consumer.seek(partition, offset)
            reading = asyncio.create_task(self._take(consumer))
            while not self._stopped.is_set() and not reading.done():
                await asyncio.wait([reading], timeout=_LOOK_S)
            if reading.done():
                reading.result()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _take(self, consumer: AsyncConsumer) -> None:
        async for batch in consumer.batches():
            partition, offsets = batch.column("partition")[0].as_py(), batch.column("offset").to_pylist()
            rows = map(Row, offsets, batch.column("value").to_pylist())
            self._journal.polled(Poll(self.name, partition, now_s(), tuple(rows)))
            self.position[partition] = offsets[-1] + 1
