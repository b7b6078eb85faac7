"""The shell carries out in the right order, answers each waiter once, and begins nothing once it is closed."""

import subprocess
import sys

import pytest

from headrace.core.errors import (
    DiskFullError,
    DivergedLogError,
    FencedEpochError,
    NotLeaderError,
    RequestTimedOutError,
    StorageFailedError,
    ThrottledError,
)
from headrace.core.log.epochs import EpochEnd
from headrace.core.replication.events import CutRefused, SyncFailed, Truncated, WriteFailed
from headrace.core.replication.isr import Ends
from headrace.core.resources.topic import Durability
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.partition import shell
from tests.support.shell_ports import ALL, LEADER, ME, NONE, OTHER, ShellBench


@pytest.fixture
def leading() -> ShellBench:
    bench = ShellBench()
    bench.elect(ME)
    bench.take_told()
    return bench


def following(bench: ShellBench) -> ShellBench:
    """It agrees with its leader."""
    bench.elect(OTHER, isr=(OTHER,))
    bench.shell.stream_opened(bench.epoch)
    if bench.log.epochs.starts:
        bench.shell.epoch_answered(bench.epoch, EpochEnd(bench.log.epochs.latest, bench.log.log_end_offset))
    bench.take_told()
    return bench


def send(bench: ShellBench, at: int, records: int, *, high_watermark: int = 0, epoch: int | None = None) -> None:
    data = [(at, bench.epoch, records)] if records else []
    sent_in = LeaderEpoch(bench.epoch if epoch is None else epoch)
    bench.shell.received(sent_in, data, Offset(high_watermark), Offset(0))


def test_should_know_nothing_of_event_loops() -> None:
    loaded = "import sys, headrace_broker.partition.shell; print({'asyncio', 'aiohttp'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True).strip() == "set()"


def test_should_answer_after_the_sync_that_covers_the_append(leading: ShellBench) -> None:
    leading.produce("a")
    leading.produce("b")
    assert leading.take_told() == ["append 1", "sync 1", "append 1"]
    leading.synced()
    assert leading.take_told() == ["sync 2", "answer a"]
    leading.synced()
    assert leading.take_told() == ["answer b"]


def test_should_answer_at_once_who_asks_for_less_than_a_commit(leading: ShellBench) -> None:
    leading.produce("a", LEADER)
    leading.produce("b", NONE)
    assert leading.take_told() == ["append 1", "sync 1", "answer a", "append 1", "answer b"]


def test_should_answer_what_is_repeated_as_its_original_is(leading: ShellBench) -> None:
    leading.produce("a")
    for query in (ALL, LEADER, NONE):
        leading.produce(f"{query.acks.name}, again", query, records=0)
    assert leading.take_told() == ["append 1", "sync 1", "answer LEADER, again", "answer NONE, again"]
    leading.synced()
    assert leading.take_told() == ["answer a", "answer ALL, again"]


def test_should_wake_readers_after_the_commit_and_replicas_with_the_append(leading: ShellBench) -> None:
    def woken(who: str) -> None:
        leading.told.append(f"{who} is shown {leading.shell.replica.high_watermark} of {leading.log.log_end_offset}")

    def reader() -> None:
        woken("reader")

    def replica() -> None:
        woken("replica")

    leading.shell.follow(reader)
    leading.shell.follow_appends(replica)
    leading.produce("a")
    assert leading.take_told() == ["append 1", "sync 1", "replica is shown 0 of 1"]
    leading.synced()
    assert leading.take_told() == ["answer a", "reader is shown 1 of 1", "replica is shown 1 of 1"]
    leading.shell.unfollow(reader)
    leading.shell.unfollow(replica)
    leading.elect(None)
    assert leading.take_told() == []


def test_should_append_in_the_epoch_that_was_checked(leading: ShellBench) -> None:
    leading.produce("a")
    leading.elect(ME)
    leading.produce("b")
    assert [(start.epoch, start.offset) for start in leading.log.epochs.starts] == [(2, 0), (3, 1)]
    leading.elect(OTHER)
    leading.take_told()
    with pytest.raises(NotLeaderError):
        leading.produce("c")
    assert leading.take_told() == []


def test_should_abandon_once_when_another_leads(leading: ShellBench) -> None:
    leading.produce("a")
    leading.elect(OTHER)
    assert leading.take_told() == ["append 1", "sync 1", "answer a: NotLeader", f"follow {OTHER} in 3"]
    leading.synced()
    leading.clock.pass_time(5_000)
    assert [name for name, _ in leading.answers] == ["a"]


def test_should_let_time_pass_only_while_somebody_waits(leading: ShellBench) -> None:
    leading.produce("a")
    leading.produce("b")
    assert len(leading.clock.calls) == 1
    leading.clock.pass_time(999)
    assert not leading.answers
    leading.clock.pass_time(1)
    assert [(name, type(error)) for name, error in leading.answers] == [
        ("a", RequestTimedOutError),
        ("b", RequestTimedOutError),
    ]
    assert not leading.clock.calls
    leading.synced()
    leading.synced()
    assert len(leading.answers) == 2


def test_should_refuse_what_has_no_room_to_wait(leading: ShellBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "APPENDS_WAITING_MAX", 1)
    leading.produce("a")
    with pytest.raises(ThrottledError):
        leading.produce("b")
    assert leading.take_told() == ["append 1", "sync 1"]
    leading.synced()
    leading.produce("b")


def test_should_tell_everybody_when_a_sync_fails(leading: ShellBench) -> None:
    leading.shell.follow(lambda: leading.told.append(f"woken, leads: {leading.shell.replica.leads}"))
    leading.produce("a")
    leading.take_told()
    ((_, done),) = leading.log.syncs
    done(SyncFailed("EIO"))
    assert leading.take_told() == [
        "answer a: StorageFailed",
        "failed: fdatasync failed: EIO",
        "woken, leads: False",
    ]
    with pytest.raises(NotLeaderError):
        leading.produce("b")


@pytest.mark.parametrize(("failure", "is_over"), [(StorageFailedError("EIO"), True), (DiskFullError("full"), False)])
def test_should_answer_nothing_where_the_append_raises(
    leading: ShellBench, failure: StorageFailedError | DiskFullError, is_over: bool
) -> None:
    leading.log.failure = failure
    with pytest.raises(type(failure)):
        leading.produce("a")
    assert leading.answers == []
    assert leading.take_told() == (["failed: EIO"] if is_over else [])
    assert leading.shell.replica.leads is not is_over


def test_should_begin_nothing_once_it_is_closed(leading: ShellBench) -> None:
    leading.produce("a")
    leading.produce("b")
    leading.take_told()
    leading.shell.close("it stops")
    assert leading.take_told() == ["answer a: NotLeader", "answer b: NotLeader"]
    leading.synced()
    leading.elect(ME)
    leading.elect(OTHER)
    leading.clock.pass_time(5_000)
    with pytest.raises(NotLeaderError):
        leading.produce("c")
    assert leading.take_told() == []


def test_should_tell_of_a_disk_that_fails_while_it_closes(leading: ShellBench) -> None:
    leading.produce("a")
    ((_, done),) = leading.log.syncs
    leading.shell.close("it stops")
    leading.take_told()
    done(SyncFailed("EIO"))
    assert leading.take_told() == ["failed: fdatasync failed: EIO"]


def test_should_follow_nobody_once_it_is_closed() -> None:
    bench = following(ShellBench())
    bench.shell.close("it stops")
    assert bench.take_told() == ["unfollow"]
    send(bench, 0, 1)
    bench.elect(OTHER)
    assert bench.take_told() == []


def test_should_report_what_is_on_disk_after_it_is() -> None:
    bench = following(ShellBench())
    send(bench, 0, 2)
    send(bench, 2, 1)
    assert bench.take_told() == ["append 2", "sync 2", "report 2 0", "append 1", "report 3 0"]
    bench.synced()
    assert bench.take_told() == ["sync 3", "report 3 2"]


def test_should_append_nothing_of_another_epoch_or_stream() -> None:
    bench = following(ShellBench())
    send(bench, 0, 1, epoch=bench.epoch - 1)
    bench.shell.stream_lost()
    send(bench, 0, 1)
    assert bench.take_told() == []


def test_should_cut_before_it_goes_on_with_its_leader() -> None:
    bench = ShellBench((1, 0), end=5)
    bench.elect(OTHER, isr=(OTHER,))
    bench.shell.stream_opened(bench.epoch)
    bench.shell.epoch_answered(bench.epoch, EpochEnd(LeaderEpoch(1), Offset(3)))
    assert bench.take_told() == [f"follow {OTHER} in 2", "ask 1", "cut 3"]
    send(bench, 5, 1)
    ((_, done),) = bench.log.cuts
    bench.log.log_end_offset = Offset(3)
    done(Truncated())
    assert bench.take_told() == ["fetch 3", "report 3 3"]


def test_should_find_another_stream_where_its_log_cannot_be_cut() -> None:
    bench = ShellBench((1, 0), end=5)
    bench.elect(OTHER, isr=(OTHER,))
    bench.shell.stream_opened(bench.epoch)
    bench.shell.epoch_answered(bench.epoch, EpochEnd(LeaderEpoch(1), Offset(3)))
    bench.take_told()
    ((_, done),) = bench.log.cuts
    done(CutRefused("damaged"))
    assert bench.take_told() == ["unfollow", f"follow {OTHER} in 2"]


def test_should_begin_anew_where_the_leader_has_nothing_of_its_log() -> None:
    bench = following(ShellBench())
    bench.shell.received(bench.epoch, [(7, bench.epoch, 1)], Offset(8), Offset(7))
    assert bench.take_told() == ["unfollow", "cut 7", f"follow {OTHER} in 2"], "and nothing is appended"


def test_should_delete_what_its_leader_has_deleted_and_say_where_that_fails() -> None:
    bench = following(ShellBench())
    send(bench, 0, 3, high_watermark=3)
    bench.take_told()
    bench.shell.received(bench.epoch, [], Offset(3), Offset(2))
    assert bench.take_told() == ["report 3 0", "delete 2"]
    (failed,) = bench.log.deletions
    failed(WriteFailed("EIO"))
    assert bench.take_told() == ["failed: EIO", "unfollow"]


def test_should_raise_where_what_comes_is_of_no_use() -> None:
    bench = following(ShellBench())
    bench.log.failure = DivergedLogError("it does not follow")
    with pytest.raises(DivergedLogError):
        send(bench, 0, 1)
    bench.log.failure = None
    bench.shell.stream_lost()
    bench.shell.stream_opened(bench.epoch)
    assert bench.take_told() == ["fetch 0", "report 0 0"]


def test_should_serve_followers_in_its_own_epoch_alone(leading: ShellBench) -> None:
    leading.produce("a")
    assert leading.shell.epoch_end(leading.epoch, LeaderEpoch(2)) == EpochEnd(LeaderEpoch(2), Offset(1))
    for serve in (
        lambda: leading.shell.check_serves(LeaderEpoch(1)),
        lambda: leading.shell.epoch_end(LeaderEpoch(1), LeaderEpoch(1)),
    ):
        with pytest.raises(FencedEpochError):
            serve()


def test_should_commit_with_the_votes_that_followers_report() -> None:
    bench = ShellBench()
    bench.elect(ME, isr=(ME, OTHER))
    bench.produce("a")
    bench.synced()
    assert not bench.answers
    bench.shell.follower_reported(OTHER, bench.epoch, Ends(Offset(1), Offset(0)))
    assert not bench.answers
    bench.shell.follower_reported(OTHER, bench.epoch, Ends(Offset(1), Offset(1)))
    assert bench.answers == [("a", None)]
    bench.shell.follower_left(OTHER, bench.epoch)


@pytest.mark.parametrize(("durability", "known"), [(Durability.FSYNC, 1), (Durability.REPLICATED, 3)])
def test_should_remember_no_commit_that_its_disk_may_lose(durability: Durability, known: int) -> None:
    bench = following(ShellBench(durability=durability))
    send(bench, 0, 1, high_watermark=1)
    if durability is Durability.FSYNC:
        bench.synced()
    send(bench, 1, 2, high_watermark=3)
    replica = bench.shell.replica
    assert (replica.high_watermark, replica.vouched_high_watermark) == (3, known)
