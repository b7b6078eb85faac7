"""A coordinator goes while members commit: what it acknowledged stays, and the members go on as who they are."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Self

import pytest

from tests.support.cluster import Cluster, Program, running_cluster
from tests.support.group_calls import GroupCalls, PlainMember, create_offsets_topic, settle
from tests.support.patience import patient
from tests.support.waiting import wait_for

_PARTITIONS = 6


@dataclass
class Committing:
    """A member that commits one offset after the other for all that it has, in a thread of its own."""

    member: PlainMember
    acknowledged: dict[int, int] = field(default_factory=dict)
    tried: int = 0
    refused: list[bytes] = field(default_factory=list)
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        assert self._thread is not None
        self._thread.join(patient(120))
        assert not self._thread.is_alive()

    @property
    def least(self) -> int:
        """That was acknowledged for every partition."""
        return min((self.acknowledged.get(number, 0) for number in self.member.partitions), default=0)

    def _run(self) -> None:
        while not self._end.is_set() and not self.refused:
            beat = self.member.heartbeat(wait_ms=0)
            self.tried += 1
            offsets = dict.fromkeys(self.member.partitions, self.tried)
            answer = self.member.calls.commit(offsets, self.member.credentials)
            self.refused += [each.body for each in (beat, answer) if each.status != 200]
            if answer.status == 200:
                self.acknowledged |= offsets


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("failover"), brokers=3) as cluster:
        cluster.create_topic(partitions=_PARTITIONS, replicas=3)
        create_offsets_topic(cluster, replicas=3)
        yield cluster


@pytest.mark.timeout(240)
@pytest.mark.parametrize("end", [Program.kill, Program.stop], ids=["killed", "stopped"])
def test_should_lose_no_commit_and_no_member_when_the_coordinator_is(
    cluster: Cluster, end: Callable[[Program], object]
) -> None:
    urls = [cluster.url(broker) for broker in range(3)]
    calls = GroupCalls([*urls])
    members = [PlainMember(GroupCalls(urls[at:] + urls[:at]), f"m{at}") for at in range(3)]
    for member in members:
        assert member.join().status == 200
    settle(members, _PARTITIONS)
    had = {member.id: member.partitions for member in members}
    with ExitStack() as stack:
        committing = [stack.enter_context(Committing(member)) for member in members]
        wait_for(lambda: all(each.least > 5 for each in committing), "everybody commits")
        first = calls.get("/coordinator")["broker"]
        end(cluster.broker(first))
        before = {each.member.id: each.tried for each in committing}
        wait_for(lambda: calls.get("/coordinator")["broker"] != first, "another broker coordinates")
        wait_for(
            lambda: (
                any(each.refused for each in committing)
                or all(each.least > before[each.member.id] + 5 for each in committing)
            ),
            "everybody goes on committing",
        )
    assert [each.refused for each in committing] == [[], [], []]
    # Nobody was taken for dead, and nothing changed hands.
    assert {member.id: member.partitions for member in members} == had
    committed = calls.offsets()
    for each in committing:
        for number, offset in each.acknowledged.items():
            assert offset <= committed["flights", number] <= each.tried
    settle(members, _PARTITIONS)
