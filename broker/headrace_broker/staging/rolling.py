"""Carries committed batches from the staging topic into their partitions, for as long as it takes.

One task for each writer's batch, several partitions at a time (`slots`, of all coordinators of this broker). Each share
is written in order, as one producer with sequences from 0 (`core.staging.identity`): whatever was written before, by
this coordinator or one before it, is known again there, and what comes next goes on from it. What has an answer that no
retry changes is dropped, and told: the topic was deleted and made anew, or the stages are gone.
"""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from headrace.core.errors import (
    CorruptBatchError,
    HeadraceError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    StaleTopicError,
)
from headrace.core.limits import ROLL_BYTES, ROLL_RETRY_MS_MAX, ROLL_RETRY_MS_MIN
from headrace.core.records.header import ProducerNumbers
from headrace.core.records.raw import RawBatch, renumbered
from headrace.core.staging.decisions import Decision, Share, StagedBatch
from headrace.core.staging.writers import ProducerIdentity, WriterName, producer_of
from headrace.core.types import TopicName, TopicUid
from headrace_broker.requests import Place
from headrace_broker.staging.reach import Reach

_log = logging.getLogger(__name__)


class StagesLostError(Exception):
    """What was committed cannot be read any more."""


class Rolling:
    def __init__(self, reach: Reach, staging: TopicName, slots: asyncio.Semaphore) -> None:
        self._reach = reach
        self._staging = staging
        self._slots = slots

    async def roll(self, writer: WriterName, decision: Decision) -> tuple[str, ...]:
        """Until all of it is where it belongs; the partitions that were dropped, with reasons."""
        producer = producer_of(writer, decision.batch, decision.since_ms)
        shares = (self._give(writer, share, producer, decision.staging_uid) for share in decision.shares)
        return tuple(why for why in await asyncio.gather(*shares) if why)

    async def _give(self, writer: WriterName, share: Share, producer: ProducerIdentity, staging_uid: TopicUid) -> str:
        """Why it was dropped; empty where it was not."""
        place = Place(TopicName(writer.namespace, share.topic), share.key.partition)
        sequences = [0, *accumulate(batch.record_count for batch in share.batches)]
        at, pause_ms = 0, ROLL_RETRY_MS_MIN
        while at < len(share.batches):
            try:
                async with self._slots:
                    batches = await self._read(share.batches[at:], sequences[at:], producer, staging_uid)
                    await self._reach.produce(place, share.key.uid, batches)
            except StaleTopicError as error:
                return f"{place}: {error.message}"
            except StagesLostError as error:
                _log.error("%s: %d committed records are lost: %s", place, sequences[-1] - sequences[at], error)
                return f"{place}: {error}"
            except OutOfOrderSequenceError as error:
                at = self._resumed(place, error, sequences)
            except HeadraceError as error:
                _log.warning("%s: a committed batch of %s must wait: %s", place, writer, error.message)
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, ROLL_RETRY_MS_MAX)
            else:
                at, pause_ms = at + len(batches), ROLL_RETRY_MS_MIN
        return ""

    def _resumed(self, place: Place, error: OutOfOrderSequenceError, sequences: Sequence[int]) -> int:
        """Where the partition has come: the last batch that it has goes again, so that its acknowledgement is had."""
        expected = error.details.get("expectedSequence")
        assert isinstance(expected, int), "brokers say it"
        _log.info("%s: goes on from sequence %d", place, expected)
        return max(0, bisect_left(sequences, expected) - 1)

    async def _read(
        self, staged: Sequence[StagedBatch], sequences: Sequence[int], producer: ProducerIdentity, uid: TopicUid
    ) -> list[RawBatch]:
        """The next ones, as many as go into one request. Raises StagesLostError, and what reading raises."""
        batches: list[RawBatch] = []
        size = 0
        for batch, sequence in zip(staged, sequences, strict=False):
            if batches and size + batches[-1].nbytes > ROLL_BYTES:
                break
            batches.append(await self._read_one(batch, uid, ProducerNumbers(*producer, sequence)))
            size += batches[-1].nbytes
        return batches

    async def _read_one(self, batch: StagedBatch, uid: TopicUid, numbers: ProducerNumbers) -> RawBatch:
        place = Place(self._staging, batch.partition)
        try:
            return renumbered(await self._reach.read(place, uid, batch.base_offset), numbers)
        except (StaleTopicError, OffsetOutOfRangeError, CorruptBatchError) as error:
            raise StagesLostError(f"its stages are gone: {error.message}") from error
