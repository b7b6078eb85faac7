"""Requests of writers, answers of coordinators, and a coordinator's records are read as they were written.

Stages go when nobody can need them any more, and not before.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.coordinator import UnreadableRecordError
from headrace.core.errors import InvalidRequestError
from headrace.core.limits import COMMIT_WAIT_MS_MAX, COMMITS_PARTITIONS, STAGING_LOOK_INTERVAL_MS
from headrace.core.resources.internal_topics import (
    INTERNAL_TOPICS,
    STAGING_PARTITIONS,
    commits_manifest,
    staging_manifest,
)
from headrace.core.resources.topic import Topic
from headrace.core.staging.decisions import (
    STAGE_EXPIRY_MS,
    Clean,
    Cleaning,
    Decision,
    Share,
    Span,
    StagedBatch,
    WriterRecord,
    bytes_of,
    decode,
    encode,
)
from headrace.core.staging.requests import (
    STAGED_BATCHES_MAX,
    Staging,
    commit_body,
    parse_commit,
    parse_staging,
    parse_status,
    staging_object,
    status_object,
    writer_path,
)
from headrace.core.staging.writer_machine import Status
from headrace.core.staging.writers import (
    WRITER_NAME_LENGTH_MAX,
    WriterName,
    commits_partition,
    producer_of,
    staging_partitions,
    writer_name_problem,
)
from headrace.core.types import Offset, PartitionId, PartitionKey, TopicName, TopicUid

WRITER = WriterName("default", "query")
UID = TopicUid("uid-1")
MINE = staging_partitions(commits_partition(WRITER))
numbers = st.integers(0, 2**62)
staged = st.builds(StagedBatch, st.integers(0, 99).map(PartitionId), numbers.map(Offset), numbers.map(Offset))
shares = st.builds(
    Share,
    st.text(max_size=20),
    st.builds(PartitionKey, st.text(max_size=20).map(TopicUid), st.integers(0, 1023).map(PartitionId)),
    st.lists(staged, min_size=1, max_size=4).map(tuple),
)
decisions = st.builds(
    Decision,
    numbers,
    st.text(max_size=20).map(TopicUid),
    st.lists(shares, max_size=3).map(tuple),
    numbers,
    is_done=st.booleans(),
    once=st.booleans(),
    dropped=st.lists(st.text(max_size=20), max_size=2).map(tuple),
    since_ms=numbers,
    done_counts=st.none() | st.dictionaries(st.text(max_size=20), numbers, max_size=2).map(lambda d: tuple(d.items())),
)


@pytest.mark.parametrize(
    "decision",
    [
        Decision(
            4,
            UID,
            (Share("counts", PartitionKey(UID, PartitionId(1)), (StagedBatch(PartitionId(2), *([Offset(5)] * 2)),)),),
            9,
        ),
        Decision(4, UID, (), 9, is_done=True, once=True, dropped=("counts/1: it was made anew",)),
        Decision(4, UID, (), 9, is_done=True, done_counts=(("a", 3), ("counts", 10**12))),
        None,
    ],
)
def test_should_remember_what_was_decided(decision: Decision | None) -> None:
    entry = WriterRecord(WRITER, decision)
    key, value = encode(entry)
    assert decode(key, value) == entry
    assert len(key) + len(value or b"") <= bytes_of(entry)


@given(st.builds(WriterRecord, st.builds(WriterName, st.text(max_size=9), st.text(max_size=9)), st.none() | decisions))
def test_should_read_what_it_has_written_and_know_its_size(entry: WriterRecord) -> None:
    key, value = encode(entry)
    assert decode(key, value) == entry
    assert len(key) + len(value or b"") <= bytes_of(entry) + 4 * 6 * 60


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (b'["writer",2,"default","query"]', None, "update this broker"),
        (b'["reader",1,"default","query"]', None, "update this broker"),
        (b'["writer",1,"default","query"]', b'{"version":3}', "update this broker"),
        (b'["writer",1,"default"]', None, "is damaged"),
        (b"{", None, "is damaged"),
        (b'["writer",1,"default","query"]', b'{"version":1}', "is damaged"),
    ],
)
def test_should_refuse_records_that_it_does_not_know(key: bytes, value: bytes | None, message: str) -> None:
    with pytest.raises(UnreadableRecordError, match=message):
        decode(key, value)


def a_share(partition: int = 0, *batches: StagedBatch) -> Share:
    batches = batches or (StagedBatch(PartitionId(MINE.start), Offset(3), Offset(5)),)
    return Share("counts", PartitionKey(TopicUid("counts"), PartitionId(partition)), batches)


def body(*sent: Share, uid: TopicUid = UID) -> Any:
    return json.loads(commit_body(4, uid, sent, wait_ms=99_999_999, once=True))


def test_should_understand_a_commit() -> None:
    asked = parse_commit(body(a_share(0), a_share(1)), 7, WRITER, UID)
    assert (asked.request, asked.writer, asked.wait_ms) == (7, WRITER, COMMIT_WAIT_MS_MAX)
    assert asked.decision == Decision(4, UID, (a_share(0), a_share(1)), 0, once=True)
    assert [batch.record_count for batch in asked.decision.staged()] == [3, 3]
    assert parse_commit(body(uid=TopicUid("")), 7, WRITER, UID).decision.shares == (), "nothing was staged"


def with_batches(*batches: list[Any]) -> Any:
    sent = body(a_share())
    sent["shares"][0]["batches"] = list(batches)
    return sent


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (body(a_share(), uid=TopicUid("other")), "it was made anew"),
        (body(a_share(), a_share()), "name a partition twice"),
        (with_batches(), "one without batches"),
        (with_batches([MINE.start, 5]), r"send \[partition, baseOffset, lastOffset\]"),
        (with_batches([MINE.start, 5, 4]), r"send \[partition, baseOffset, lastOffset\]"),
        (with_batches([MINE.stop, 5, 6]), f"from {MINE.start} to {MINE.stop - 1}"),
        (with_batches([MINE.start, 5, "6"]), "batches of shares"),
        ({**with_batches(), "shares": [{"topic": "t", "topicUid": "u", "partition": 0, "batches": [5]}]}, "of lists"),
        (with_batches(*[[MINE.start, 0, 0]] * (STAGED_BATCHES_MAX + 1)), "stage larger ones"),
        ([], "send a JSON object"),
        ({"stagingUid": "u"}, "shares is missing"),
        ({"stagingUid": "uid-1", "shares": []}, "batch is missing"),
    ],
)
def test_should_say_what_is_wrong_with_a_commit(sent: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        parse_commit(sent, 1, WRITER, UID)


@pytest.mark.parametrize("status", [Status(-1, is_done=True), Status(3, is_done=False, dropped=("a", "b"))])
def test_should_understand_its_own_answers(status: Status) -> None:
    assert parse_status(status_object(status)) == status
    staging = Staging(TopicName("default", "headrace-staging"), UID, tuple(map(PartitionId, MINE)))
    assert parse_staging(staging_object(staging)) == staging


def test_should_give_each_coordinator_partitions_of_its_own() -> None:
    each = [staging_partitions(PartitionId(number)) for number in range(COMMITS_PARTITIONS)]
    assert sorted(number for some in each for number in some) == list(range(STAGING_PARTITIONS))
    assert writer_path(WriterName("team", "a/b")) == "/v1/namespaces/team/writers/a%2Fb"


def test_should_be_another_producer_for_each_batch() -> None:
    identities = {producer_of(WRITER, batch, 7) for batch in range(100_000)}
    assert len(identities) == 100_000
    assert all(0 <= each.producer_id < 2**63 and 0 <= each.producer_epoch < 2**15 for each in identities)
    assert producer_of(WRITER, 1, 7).producer_id == producer_of(WRITER, 2, 7).producer_id, (
        "later batches fence earlier ones"
    )
    assert producer_of(WriterName("default", "other"), 1, 7) not in identities
    assert producer_of(WRITER, 1, 8) not in identities, "it was forgotten, and begins anew"


def test_should_make_topics_that_lose_nothing() -> None:
    for made in (commits_manifest, staging_manifest):
        topic = Topic.parse({**made("home", "headrace", 3), "status": {}})
        assert topic.metadata.name in INTERNAL_TOPICS
        assert (topic.spec.replicas, topic.spec.min_insync_replicas) == (3, 2)
        assert topic.spec.retention_ms is None or topic.spec.cleanup_policy.value == "Compact"


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [("a", True), ("a.b-C_9", True), ("q" * WRITER_NAME_LENGTH_MAX, True)]
    + [(name, False) for name in ("", "-a", "a b", "ä", "q" * (WRITER_NAME_LENGTH_MAX + 1))],
)
def test_should_say_which_names_a_writer_can_have(name: str, *, is_allowed: bool) -> None:
    problem = writer_name_problem("txnAppId", name)
    assert (problem is None) == is_allowed
    assert problem is None or problem.startswith(f"txnAppId {name[:WRITER_NAME_LENGTH_MAX]!r}: must have 1 to 200")


P = PartitionId(3)
_WHY = "nobody can need it any more"


def staged_batch(base: int, last: int) -> StagedBatch:
    return StagedBatch(P, Offset(base), Offset(last))


def looked(cleaning: Cleaning, start: int, end: int, *pinned: StagedBatch, now_ms: int = 0) -> int | None:
    """Up to where it is cleaned."""
    orders = cleaning.look({P: Span(Offset(start), Offset(end))}, pinned, now_ms)
    if not orders:
        return None
    (order,) = orders
    assert order == Clean(P, order.before, _WHY)
    return order.before


def test_should_delete_a_run_of_stages_of_no_use_from_the_start() -> None:
    cleaning = Cleaning()
    cleaning.of_no_use([staged_batch(5, 9), staged_batch(0, 4), staged_batch(20, 29), staged_batch(5, 9)])
    assert looked(cleaning, 0, 100) == 10
    cleaning.of_no_use([staged_batch(10, 19)])
    assert looked(cleaning, 10, 100) == 30
    assert looked(cleaning, 30, 100) is None


def test_should_keep_what_is_pinned_and_what_comes_after_it() -> None:
    cleaning = Cleaning()
    cleaning.of_no_use([staged_batch(0, 49)])
    assert looked(cleaning, 0, 100, staged_batch(30, 31), staged_batch(20, 29)) == 20
    assert looked(cleaning, 20, 100) == 50


def test_should_delete_what_nobody_has_committed_for_long() -> None:
    cleaning = Cleaning()
    assert looked(cleaning, 0, 10) is None
    assert looked(cleaning, 0, 20, now_ms=STAGING_LOOK_INTERVAL_MS - 1) is None
    assert looked(cleaning, 0, 30, now_ms=STAGING_LOOK_INTERVAL_MS) is None
    assert looked(cleaning, 0, 99, now_ms=STAGE_EXPIRY_MS - 1) is None
    assert looked(cleaning, 0, 99, now_ms=STAGE_EXPIRY_MS) == 10
    assert looked(cleaning, 10, 99, now_ms=STAGE_EXPIRY_MS + STAGING_LOOK_INTERVAL_MS) == 30
