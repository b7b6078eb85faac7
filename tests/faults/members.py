"""A consumer group in a run: its members, each a process on a node of its own, and what is known of all of them.

Members keep journals (`member`); a thread asks for the group's offsets all the time. Owned by one run, from `Members()`
to `end`.
"""

import json
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headrace.core.resources.metadata import API_VERSION
from headrace.http2.blocking_transport import BlockingTransport
from tests.faults.clients import Client
from tests.faults.fleet import Fleet
from tests.faults.group_history import Commit, Death, Given, GroupHistory, Owning, Seen, Stop
from tests.faults.group_judge import moved_after_s
from tests.faults.journal import Journal, now_s
from tests.support.cluster import Answer
from tests.support.group_calls import GroupCalls
from tests.support.patience import patient
from tests.support.waiting import wait_for

SESSION_S: Final = 6
ALLOWANCE_S: Final = 10
"""On top of a session: assigning, taking up, and a machine that has other work."""
_MOVED_S: Final = 120
_LOOK_S: Final = 0.05
_END_S: Final = 60
_GROUPS: Final = "/apis/headrace.io/v1alpha1/namespaces/default/consumergroups"


@dataclass(slots=True)
class _Diary:
    """What was read of a member's journal so far."""

    path: Path
    member_facts: list[dict[str, Any]] = field(default_factory=list)
    _at: int = 0

    def facts(self) -> list[dict[str, Any]]:
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._at)
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            self._at += len(whole)
            self.member_facts += map(json.loads, whole.splitlines())
        return self.member_facts


class _OffsetsWatch(Client):
    """Asks for the group's offsets, any broker in turn."""

    def __init__(self, group: str, journal: Journal, servers: str) -> None:
        super().__init__(f"offsets of {group}", journal, servers)
        self._path = f"/v1/namespaces/default/groups/{group}/offsets"
        self._urls = servers.split(",")
        self.seen: list[Seen] = []

    def _work(self) -> None:
        with BlockingTransport(connect_timeout_s=1) as transport:
            while not self._stopped.wait(_LOOK_S):
                began_s = now_s()
                self._urls.append(self._urls.pop(0))
                answer = transport.request("GET", self._urls[0] + self._path, timeout_s=3)
                if answer.status == 200:
                    listed = json.loads(answer.body)["offsets"]
                    self.seen.append(Seen(began_s, now_s(), {each["partition"]: each["offset"] for each in listed}))


class Members:
    """Of one group, which reads one topic."""

    def __init__(self, fleet: Fleet, journal: Journal, group: str, topic: str, partitions: int) -> None:
        self.group = group
        self.commits: list[Commit] = []
        """That somebody made in a member's name."""
        self.deaths: list[Death] = []
        self.stops: list[Stop] = []
        self._fleet = fleet
        self._topic = topic
        self._partitions = partitions
        self._diaries: dict[str, _Diary] = {}
        self._watch = _OffsetsWatch(group, journal, fleet.servers)
        manifest = {"apiVersion": API_VERSION, "kind": "ConsumerGroup", "metadata": {"name": group}}
        fleet.kube("POST", _GROUPS, {**manifest, "spec": {"sessionTimeout": f"{SESSION_S}s"}})
        self._watch.start()

    # -- processes ---------------------------------------------------------------------------------------------------

    def start(self, name: str, *options: str) -> None:
        diary = self._diaries.setdefault(name, _Diary(self._fleet.home / f"{name}.journal"))
        where = ("--server", self._fleet.servers, "--group", self.group, "--topic", self._topic)
        self._fleet.start_program(name, "tests.faults.member", name, "--journal", str(diary.path), *where, *options)

    def kill(self, name: str) -> Death:
        """kill -9."""
        return self._silent(name, self._fleet.kill)

    def pause(self, name: str) -> Death:
        """SIGSTOP."""
        return self._silent(name, self._fleet.pause)

    def cut_off(self, name: str) -> Death:
        """From every broker, both ways, without a word."""
        brokers = [f"broker-{broker}" for broker in self._fleet.brokers]
        return self._silent(name, lambda _: self._fleet.network.cut_both(name, brokers))

    def resume(self, name: str) -> None:
        self.stops.append(Stop(name, now_s()))
        self._fleet.resume(name)

    def _silent(self, name: str, strike: Callable[[str], None]) -> Death:
        """It may hear a last answer while it is struck: its session counts from after that."""
        strike(name)
        death = Death(name, frozenset(self.owned()[name]), now_s(), SESSION_S + patient(ALLOWANCE_S))
        self.deaths.append(death)
        return death

    # -- what is known -----------------------------------------------------------------------------------------------

    def facts(self) -> Iterator[dict[str, Any]]:
        for diary in self._diaries.values():
            yield from tuple(diary.facts())

    def owned(self, facts: Collection[dict[str, Any]] | None = None) -> dict[str, set[int]]:
        """By what members themselves say; of the dead, what they had until they begin anew."""
        found: dict[str, set[int]] = {name: set() for name in self._diaries}
        for fact in sorted(self.facts() if facts is None else facts, key=lambda fact: float(fact["at"])):
            if fact["what"] == "begins":
                found[fact["member"]] = set()
            elif fact["what"] == "assigned":
                found.setdefault(fact["member"], set()).update(fact["partitions"])
            elif fact["what"] in ("revoked", "lost"):
                found.setdefault(fact["member"], set()).difference_update(fact["partitions"])
        return found

    def committed(self) -> dict[int, int]:
        return dict(self._watch.seen[-1].offsets) if self._watch.seen else {}

    def wait_shared(self, *names: str) -> None:
        """Until these have all partitions among them, as evenly as can be, by what they say themselves."""

        def is_shared() -> bool:
            owned = self.owned()
            sizes = [len(owned.get(name, ())) for name in names]
            everything = sorted(number for name in names for number in owned.get(name, ()))
            return everything == [*range(self._partitions)] and max(sizes) - min(sizes) <= 1

        try:
            wait_for(is_shared, f"{', '.join(names)} share {self._topic}", _MOVED_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; they have {self.owned()}") from None

    def wait_moved(self, death: Death) -> float:
        """Until others have what it had; seconds since it fell silent."""

        def last() -> tuple[float] | None:
            owning = self.history({}).owning
            moved = [moved_after_s(death, number, owning) for number in death.partitions]
            known = [each for each in moved if each is not None]
            return (max(known, default=0.0),) if len(known) == len(moved) else None

        return wait_for(last, f"others have what {death.member} had", _MOVED_S)[0]

    def wait_given(self, ends: Mapping[int, int], *names: str) -> None:
        """Until all records below `ends` were given to somebody (where names are given, to one of them)."""

        def reached() -> bool:
            last: dict[int, int] = {}
            for fact in self.facts():
                if fact["what"] == "given" and (not names or fact["member"] in names):
                    last[fact["partition"]] = max(last.get(fact["partition"], 0), fact["offset"] + 1)
            return all(last.get(number, 0) >= end for number, end in ends.items())

        wait_for(reached, f"members of {self.group} are given all up to {dict(ends)}", _MOVED_S)

    def wait_committed(self, ends: Mapping[int, int]) -> None:
        def reached() -> bool:
            committed = self.committed()
            return all(committed.get(number, 0) >= end for number, end in ends.items())

        wait_for(reached, f"{self.group} commits {dict(ends)}", _MOVED_S)

    def said(self, name: str, what: str) -> bool:
        return any(fact["what"] == what for fact in self._diaries[name].facts())

    # -- in the name of a member -------------------------------------------------------------------------------------

    def described(self, name: str) -> dict[str, Any]:
        """What the coordinator knows of the member in this process."""
        address = self._fleet.address(name)
        members = [each for each in self._calls().get()["members"] if each["clientAddress"] == address]
        assert len(members) == 1, f"{name} is there {len(members)} times"
        found: dict[str, Any] = members[0]
        return found

    def commit_for(self, name: str, described: Mapping[str, Any], offsets: Mapping[int, int]) -> Answer:
        """What it would ask for if it came back, and knew nothing."""
        began_s = now_s()
        who = {"memberId": described["memberId"], "memberEpoch": described["memberEpoch"]}
        answer = self._calls().commit(offsets, who, self._topic)
        code = "" if answer.status == 200 else str(answer.json["code"])
        self.commits.append(Commit(name, offsets, began_s, now_s(), code))
        return answer

    def coordinator(self) -> int:
        return int(self._calls().get("/coordinator")["broker"])

    def _calls(self) -> GroupCalls:
        return GroupCalls([self._fleet.url(broker) for broker in self._fleet.brokers], self.group)

    # -- the end -----------------------------------------------------------------------------------------------------

    def end(self, final: Mapping[int, Mapping[int, str]]) -> GroupHistory:
        """Members read to the end and leave; what is known then."""
        ends = {partition: max(rows, default=-1) + 1 for partition, rows in final.items()}
        self.wait_given(ends)
        running = [name for name in self._diaries if self._fleet.is_running(name)]
        for name in running:
            self._fleet.programs[name].process.send_signal(signal.SIGTERM)
        for name in running:
            self._fleet.programs[name].wait(_END_S)
        self.wait_committed(ends)
        self._watch.stop()
        self._watch.join(_END_S)
        return self.history(final)

    def history(self, final: Mapping[int, Mapping[int, str]]) -> GroupHistory:
        facts = [*self.facts()]
        return GroupHistory(
            given=[
                Given(fact["member"], fact["partition"], fact["offset"], fact["value"], fact["at"])
                for fact in facts
                if fact["what"] == "given"
            ],
            owning=[
                Owning(fact["member"], partition, fact["at"], fact["what"] == "assigned")
                for fact in facts
                if fact["what"] in ("assigned", "revoked", "lost")
                for partition in fact["partitions"]
            ],
            commits=[*_commits(facts), *self.commits],
            seen=tuple(self._watch.seen),
            deaths=tuple(self.deaths),
            stops=tuple(self.stops),
            final=final,
        )


def _commits(facts: list[dict[str, Any]]) -> Iterator[Commit]:
    """Those whose answers were written down."""
    asked: dict[str, dict[str, Any]] = {}
    for fact in facts:
        if fact["what"] == "commits":
            asked[fact["member"]] = fact
        elif fact["what"] == "told":
            began = asked.pop(fact["member"])
            offsets = {int(partition): offset for partition, offset in began["offsets"].items()}
            yield Commit(fact["member"], offsets, began["at"], fact["at"], fact["code"])
