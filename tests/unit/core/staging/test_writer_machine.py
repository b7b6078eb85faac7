"""One decision for each batch of a writer, told and carried out only once it is committed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.coordinator import (
    Answer,
    Append,
    Committed,
    Coordinator,
    CoordinatorState,
    Deposed,
    Elected,
    LogEvent,
    Order,
    Read,
    ReadToEnd,
    Refuse,
    Ticked,
)
from headrace.core.errors import (
    CoordinatorLoadingError,
    HeadraceError,
    InvalidRequestError,
    NotCoordinatorError,
    NotReadyError,
    StagesGoneError,
    StaleBatchError,
    ThrottledError,
)
from headrace.core.limits import COMMIT_WAIT_MS_MAX, WRITER_REQUESTS_MAX
from headrace.core.staging.decisions import Clean, Decision, Share, Span, StagedBatch, WriterRecord
from headrace.core.staging.writer_machine import (
    WRITER_ONCE_RETENTION_MS,
    WRITER_RETENTION_MS,
    WRITERS_PER_COORDINATOR_MAX,
    CommitAsked,
    Look,
    Roll,
    RolledForward,
    SpansSeen,
    StagingSeen,
    StateAsked,
    Status,
    WriterEvent,
    WriterMachine,
    WriterNotice,
)
from headrace.core.staging.writers import WriterName
from headrace.core.types import Offset, PartitionId, PartitionKey, TopicUid
from tests.support.examples import examples

WRITER = WriterName("default", "query")
UID = TopicUid("staging")
STAGED = StagedBatch(PartitionId(0), Offset(10), Offset(19))
SHARE = Share("counts", PartitionKey(TopicUid("counts"), PartitionId(2)), (STAGED,))
ALL_THERE = {PartitionId(0): Span(Offset(0), Offset(1_000))}


def decision(batch: int, *shares: Share, once: bool = False) -> Decision:
    return Decision(batch, UID, shares or (SHARE,), 0, once=once)


def commit(request: int, batch: int, wait_ms: int = COMMIT_WAIT_MS_MAX, writer: WriterName = WRITER) -> CommitAsked:
    return CommitAsked(request, writer, decision(batch), wait_ms)


class Writers:
    """A coordinator of writers, and the writers that it has."""

    def __init__(self) -> None:
        self.machine = WriterMachine()
        self._coordinator: Coordinator[WriterRecord, WriterEvent, Status, WriterNotice] = Coordinator(self.machine)

    @property
    def state(self) -> CoordinatorState:
        return self._coordinator.state

    @property
    def writers(self) -> dict[WriterName, Decision]:
        return self.machine.writers

    def step(
        self, event: LogEvent[WriterRecord] | WriterEvent, now_ms: int
    ) -> list[Order[WriterRecord, Status, WriterNotice]]:
        return self._coordinator.step(event, now_ms)


def active(*entries: WriterRecord) -> Writers:
    coordinator = Writers()
    coordinator.step(Elected(), 0)
    coordinator.step(Read(entries), 0)
    coordinator.step(ReadToEnd(1_000), 0)
    return coordinator


def decided(coordinator: Writers, request: int, batch: int) -> list[Any]:
    """What comes of it once the decision is committed."""
    coordinator.step(commit(request, batch), 0)
    (append,) = coordinator.step(SpansSeen(request, ALL_THERE), 0)
    assert isinstance(append, Append)
    return list(coordinator.step(Committed(append.number), 0))


def finished(coordinator: Writers, batch: int, *dropped: str) -> list[Any]:
    orders = coordinator.step(RolledForward(WRITER, batch, dropped), 0)
    assert isinstance(orders[0], Append)
    return [*orders[1:], *coordinator.step(Committed(orders[0].number), 0)]


def refused(orders: list[Any]) -> HeadraceError:
    (refusal,) = orders
    assert isinstance(refusal, Refuse)
    return refusal.error


def test_should_decide_once_the_stages_are_seen_and_roll_once_that_is_committed() -> None:
    coordinator = active()
    (look,) = coordinator.step(commit(1, 0), 0)
    assert look == Look(1, frozenset({PartitionId(0)}), decision(0))

    (append,) = coordinator.step(SpansSeen(1, ALL_THERE), 0)
    assert isinstance(append, Append)
    assert append.entries[0].decision == Decision(0, UID, (SHARE,), 1_000, since_ms=1_000)

    (roll,) = coordinator.step(Committed(append.number), 0)
    assert isinstance(roll, Roll)
    assert finished(coordinator, 0) == [Answer(1, Status(0, is_done=True), "done")]
    assert coordinator.writers[WRITER].shares == ()


def test_should_say_what_was_dropped() -> None:
    coordinator = active()
    decided(coordinator, 1, 0)
    (answer,) = finished(coordinator, 0, "counts/2: made anew")
    assert answer.reply.dropped == ("counts/2: made anew",)


def test_should_answer_a_batch_that_is_done_without_looking() -> None:
    coordinator = active()
    decided(coordinator, 1, 5)
    finished(coordinator, 5)
    assert coordinator.step(commit(2, 5), 0) == [Answer(2, Status(5, is_done=True), "it is committed already")]


def share_of(topic: str, count: int, partition: int = 2) -> Share:
    """A share of as many records."""
    batch = StagedBatch(PartitionId(1), Offset(0), Offset(count - 1))
    return Share(topic, PartitionKey(TopicUid(topic), PartitionId(partition)), (batch,))


OTHERS = [
    (4, (SHARE,), "its last committed batch is 5"),
    (5, (share_of("counts", 9),), "with 10 records for counts, and now has 9 records for counts"),
    (5, (share_of("other", 10),), "with 10 records for counts, and now has 10 records for other"),
    (5, (SHARE, share_of("other", 1)), "and now has 10 records for counts and 1 records for other"),
    (5, (), "and now has no records"),
]


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize(("batch", "shares", "why"), OTHERS)
def test_should_refuse_another_batch_of_a_known_number(
    batch: int, shares: tuple[Share, ...], why: str, *, is_done: bool
) -> None:
    coordinator = active()
    decided(coordinator, 1, 5)
    if is_done:
        finished(coordinator, 5)
    error = refused(coordinator.step(CommitAsked(2, WRITER, Decision(batch, UID, shares, 0), 0), 0))
    assert isinstance(error, StaleBatchError)
    assert f"batch {batch} of writer default/query is refused" in error.message
    assert why in error.message
    assert error.details == {"lastBatch": 5}
    assert coordinator.writers[WRITER].batch == 5


def test_should_know_a_repetition_whose_records_are_divided_otherwise() -> None:
    coordinator = active()
    decided(coordinator, 1, 5)
    finished(coordinator, 5)
    shares = (share_of("counts", 4, partition=0), share_of("counts", 6, partition=1))
    answers = coordinator.step(CommitAsked(2, WRITER, Decision(5, UID, shares, 0), 0), 0)
    assert answers == [Answer(2, Status(5, is_done=True), "it is committed already")]


def test_should_take_the_last_batch_by_its_number_where_no_counts_were_written_down() -> None:
    """By a broker of before."""
    coordinator = active(WriterRecord(WRITER, Decision(5, UID, (), 0, is_done=True)))
    assert isinstance(coordinator.step(commit(1, 5), 0)[0], Answer)
    assert isinstance(refused(coordinator.step(commit(2, 4), 0)), StaleBatchError)


def test_should_let_a_repeated_commit_wait_with_the_first_one() -> None:
    coordinator = active()
    decided(coordinator, 1, 0)
    assert coordinator.step(commit(2, 0), 0) == []
    assert [answer.request for answer in finished(coordinator, 0)] == [1, 2]


def test_should_answer_who_has_waited_long_enough() -> None:
    coordinator = active()
    coordinator.step(commit(1, 0, wait_ms=500), 0)
    (append,) = coordinator.step(SpansSeen(1, ALL_THERE), 0)
    assert isinstance(append, Append)
    coordinator.step(Committed(append.number), 0)
    coordinator.step(commit(2, 0, wait_ms=900), 0)
    assert coordinator.step(Ticked(1_100), 100) == []
    (first,) = coordinator.step(Ticked(1_600), 600)
    assert first == Answer(1, Status(0, is_done=False), "decided, and still on its way")
    (second,) = coordinator.step(Ticked(2_000), 1_000)
    assert isinstance(second, Answer)
    assert second.request == 2


def test_should_commit_a_batch_without_rows_at_once() -> None:
    coordinator = active()
    (append,) = coordinator.step(CommitAsked(1, WRITER, Decision(0, UID, (), 0), 0), 0)
    assert isinstance(append, Append)
    assert coordinator.step(Committed(append.number), 0) == [
        Answer(1, Status(0, is_done=True), "there is nothing to write")
    ]


def test_should_keep_since_when_it_knows_a_writer() -> None:
    coordinator = active(WriterRecord(WRITER, Decision(4, UID, (), 300, is_done=True, since_ms=200)))
    decided(coordinator, 1, 5)
    assert coordinator.writers[WRITER].since_ms == 200
    finished(coordinator, 5)
    assert coordinator.writers[WRITER].since_ms == 200


def test_should_take_batches_one_after_the_other() -> None:
    coordinator = active()
    decided(coordinator, 1, 0)
    assert isinstance(refused(coordinator.step(commit(2, 1), 0)), NotReadyError)
    finished(coordinator, 0)
    coordinator.step(commit(3, 1), 0)
    assert isinstance(refused(coordinator.step(commit(4, 1), 0)), NotReadyError)


@pytest.mark.parametrize(
    ("spans", "error"),
    [
        ({PartitionId(0): Span(Offset(11), Offset(100))}, StagesGoneError),
        ({PartitionId(0): Span(Offset(0), Offset(19))}, InvalidRequestError),
        (NotReadyError("not now"), NotReadyError),
    ],
)
def test_should_refuse_what_is_not_there(spans: Any, error: type[HeadraceError]) -> None:
    coordinator = active()
    coordinator.step(commit(1, 0), 0)
    assert isinstance(refused(coordinator.step(SpansSeen(1, spans), 0)), error)
    assert not coordinator.writers


def test_should_go_on_where_a_coordinator_before_it_stopped() -> None:
    coordinator = Writers()
    coordinator.step(Elected(), 0)
    done = Decision(3, UID, (), 0, is_done=True)
    gone, other = WriterName("default", "gone"), WriterName("default", "other")
    entries = (WriterRecord(WRITER, decision(7)), WriterRecord(other, done), WriterRecord(gone, done))
    coordinator.step(Read(entries), 0)
    coordinator.step(Read((WriterRecord(gone, None),)), 0)
    (roll,) = coordinator.step(ReadToEnd(0), 0)
    assert isinstance(roll, Roll)
    assert (roll.writer, roll.decision.batch) == (WRITER, 7)
    assert set(coordinator.writers) == {WRITER, other}
    assert coordinator.machine.count == 2
    assert coordinator.step(RolledForward(WRITER, 6, ()), 0) == [], "of another batch"
    finished(coordinator, 7)
    assert coordinator.step(RolledForward(WRITER, 7, ()), 0) == [], "it is done"


def test_should_tell_nothing_that_is_not_committed() -> None:
    coordinator = active()
    coordinator.step(commit(1, 0), 0)
    coordinator.step(SpansSeen(1, ALL_THERE), 0)
    assert coordinator.step(StateAsked(2, WRITER), 0) == []
    told = coordinator.step(Committed(1), 0)
    assert [type(order) for order in told] == [Roll, Answer]
    orders = coordinator.step(StateAsked(3, WriterName("default", "nobody")), 0)
    assert orders == [Answer(3, Status(-1, is_done=True), "asked")]


def test_should_refuse_everybody_when_it_is_deposed() -> None:
    coordinator = active()
    coordinator.step(commit(1, 0), 0)
    coordinator.step(commit(2, 0, writer=WriterName("default", "other")), 0)
    coordinator.step(SpansSeen(2, ALL_THERE), 0)
    coordinator.step(StateAsked(3, WRITER), 0)
    orders = coordinator.step(Deposed("another leads"), 0)
    assert sorted(order.request for order in orders if isinstance(order, Refuse)) == [1, 2, 3]
    assert coordinator.state is CoordinatorState.IDLE
    assert coordinator.step(SpansSeen(1, ALL_THERE), 0) == [], "of the term before"
    assert coordinator.step(RolledForward(WRITER, 0, ()), 0) == []
    assert coordinator.step(Ticked(5_000), 5_000) == []
    assert isinstance(refused(coordinator.step(commit(4, 0), 0)), NotCoordinatorError)
    coordinator.step(Elected(), 0)
    assert isinstance(refused(coordinator.step(StateAsked(5, WRITER), 0)), CoordinatorLoadingError)


def test_should_answer_no_more_requests_than_it_may() -> None:
    coordinator = active()
    decided(coordinator, 0, 0)
    for request in range(1, WRITER_REQUESTS_MAX):
        coordinator.step(commit(request, 0), 0)
    assert isinstance(refused(coordinator.step(commit(WRITER_REQUESTS_MAX, 0), 0)), ThrottledError)


def test_should_refuse_at_once_while_it_waits_for_its_log() -> None:
    """Else refusals would pile up for as long as a follower lags."""
    coordinator = active()
    coordinator.step(commit(0, 0), 0)
    coordinator.step(SpansSeen(0, ALL_THERE), 0)
    for request in range(1, WRITER_REQUESTS_MAX - 1):
        assert coordinator.step(commit(request, 0), 0) == []
    assert isinstance(refused(coordinator.step(commit(WRITER_REQUESTS_MAX, 0), 0)), ThrottledError)


def test_should_look_at_stages_while_it_waits_for_its_log() -> None:
    coordinator = active()
    coordinator.step(commit(1, 0), 0)
    coordinator.step(SpansSeen(1, ALL_THERE), 0)
    (look,) = coordinator.step(commit(2, 0, writer=WriterName("default", "other")), 0)
    assert isinstance(look, Look)


def test_should_know_no_more_writers_than_it_may() -> None:
    done = Decision(0, UID, (), 0, is_done=True)
    names = (WriterName("default", f"w{number}") for number in range(WRITERS_PER_COORDINATOR_MAX))
    coordinator = active(*(WriterRecord(name, done) for name in names))
    assert isinstance(refused(coordinator.step(commit(1, 0), 0)), ThrottledError)


def test_should_forget_who_has_not_committed_for_long() -> None:
    query, job, going = (WriterName("default", name) for name in ("query", "job", "going"))
    coordinator = active(
        WriterRecord(query, Decision(0, UID, (), 0, is_done=True)),
        WriterRecord(job, Decision(0, UID, (), 0, is_done=True, once=True)),
        WriterRecord(going, decision(0)),
    )
    assert coordinator.step(Ticked(WRITER_ONCE_RETENTION_MS), 1_000) == []
    (append,) = coordinator.step(Ticked(WRITER_ONCE_RETENTION_MS), 61_000)
    assert isinstance(append, Append)
    assert append.entries == (WriterRecord(job, None),)
    (append,) = coordinator.step(Ticked(WRITER_RETENTION_MS), 200_000)
    assert isinstance(append, Append)
    assert append.entries == (WriterRecord(query, None),)
    assert set(coordinator.writers) == {going}


def test_should_delete_stages_once_nobody_needs_them() -> None:
    coordinator = active()
    spans = {PartitionId(0): Span(Offset(10), Offset(20))}
    coordinator.step(commit(1, 0), 0)
    assert coordinator.step(StagingSeen(spans), 0) == [], "it may be decided"
    coordinator.step(SpansSeen(1, spans), 0)
    coordinator.step(Committed(1), 0)
    assert coordinator.step(StagingSeen(spans), 0) == [], "it is pinned"
    coordinator.step(RolledForward(WRITER, 0, ()), 0)
    assert coordinator.step(StagingSeen(spans), 0) == [], "that it is done is not committed"
    orders = coordinator.step(Committed(2), 0)
    assert [type(order) for order in orders] == [Answer, Clean]


class World:
    """Coordinators one after the other over one log; partitions that take what is rolled forward."""

    def __init__(self) -> None:
        self.log: list[WriterRecord] = []
        self.written: dict[int, Decision] = {}
        self.acknowledged: set[int] = set()
        self._uncommitted: list[Append[WriterRecord]] = []
        self._rolling: list[Roll] = []
        self._request = 0
        self._elect()

    def commit(self, batch: int) -> None:
        """Another attempt, with stages of its own."""
        self._request += 1
        staged = StagedBatch(PartitionId(0), Offset(self._request), Offset(self._request))
        share = Share("counts", SHARE.key, (staged,))
        self._do(CommitAsked(self._request, WRITER, decision(batch, share), COMMIT_WAIT_MS_MAX))

    def replicate(self) -> None:
        for append in self._uncommitted[:1]:
            self.log += append.entries
            self._uncommitted.pop(0)
            self._do(Committed(append.number))

    def roll(self) -> None:
        for roll in self._rolling[:1]:
            self._rolling.pop(0)
            batch = roll.decision.batch
            assert self.written.setdefault(batch, roll.decision).shares == roll.decision.shares, "one attempt of each"
            assert batch == max(self.written), "in order"
            self._do(RolledForward(WRITER, batch, ()))

    def depose(self, *, kept: bool) -> None:
        """What was appended last may have been replicated all the same."""
        if kept and self._uncommitted:
            self.log += self._uncommitted[0].entries
        self._do(Deposed("elsewhere"))
        self._elect()

    def _elect(self) -> None:
        self._uncommitted, self._rolling = [], []
        self._coordinator = Writers()
        for event in (Elected(), Read(tuple(self.log)), ReadToEnd(0)):
            self._do(event)

    def _do(self, event: Any) -> None:
        for order in self._coordinator.step(event, 0):
            match order:
                case Append():
                    self._uncommitted.append(order)
                case Roll():
                    self._rolling.append(order)
                case Look(request):
                    self._do(SpansSeen(request, ALL_THERE))
                case Answer(_, status) if status.is_done:
                    self.acknowledged |= {*range(status.batch + 1)}
                case _:
                    pass


@examples(3)
@given(st.lists(st.sampled_from(["commit", "again", "replicate", "roll", "lost", "kept"]), max_size=60))
def test_should_write_one_attempt_of_each_batch_whatever_happens(steps: list[str]) -> None:
    world, batch = World(), 0
    for step in [*steps, "replicate", "roll", "replicate", "roll", "replicate"]:
        match step:
            case "commit":
                batch = max(world.acknowledged, default=-1) + 1
                world.commit(batch)
            case "again":
                world.commit(batch)
            case "replicate":
                world.replicate()
            case "roll":
                world.roll()
            case _:
                world.depose(kept=step == "kept")
    assert world.acknowledged <= set(world.written)
