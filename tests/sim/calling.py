"""Calls to the API server: slow, lost, doubled, given up and landing late; watches that lag; Leases."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from headrace.core.limits import LEASE_RENEW_INTERVAL_MS
from headrace.core.replication.seats import older_partitions
from headrace.core.replication.set_writer import SetWriter
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import BrokerId, TopicUid
from tests.sim.api import Api
from tests.sim.life import Life
from tests.sim.schedule import WHOLE, Kind
from tests.sim.setting import Setting


class Method(Enum):
    PUT = "PUT"
    GET = "GET"


class Caller(Protocol):
    @property
    def label(self) -> str: ...
    @property
    def hears(self) -> bool: ...
    def answered(self, call: "Call") -> None: ...
    def unanswered(self, call: "Call") -> None: ...


@dataclass(eq=False, slots=True)
class Call:
    """A call on its way to the server, or back."""

    caller: "Caller"
    method: Method
    based_on: str
    """Version of what is put; or what the caller knew as it asked."""
    content: PartitionSet | None = None
    """The set that is put; in an answer the one that is there now, or None for a conflict."""
    label: str = ""

    def __post_init__(self) -> None:
        self.label = f"{self.caller.label}.{self.method.value}"


class BrokerCaller:
    """A broker's side of its calls."""

    def __init__(self, life: Life, calling: "Calling") -> None:
        self.life, self._calling = life, calling
        self.label = life.label

    @property
    def hears(self) -> bool:
        return not self.life.is_paused and self.life.broker not in self._calling.cut_off

    def answered(self, call: Call) -> None:
        life, content, counts = self.life, call.content, self._calling.setting.counts
        if call.method is Method.GET:
            assert content is not None, "it is there"
            if life.writer is None:
                life.read_first(content, self._calling.api.history.index(content))
            else:
                known = life.writer.known
                life.see(lambda writer: writer.read(content, based_on=call.based_on))
                counts["read decides nothing" if life.writer.known is known else "read settles"] += 1
        elif content is not None:
            counts["landed"] += 1
            life.see(lambda writer: writer.landed(content))
        else:
            counts["conflict"] += 1
            self.conflicted()

    def conflicted(self) -> None:
        """Note a conflict, which decides nothing: the server may have seen the first of two attempts."""
        self.life.see(SetWriter.unanswered)

    def unanswered(self, call: Call) -> None:
        if call.method is Method.PUT:
            self._calling.setting.counts["unanswered"] += 1
            self.life.see(SetWriter.unanswered)
        elif self.life.writer is None:
            self._calling.read(self)


class Calling:
    def __init__(self, setting: Setting, api: Api) -> None:
        self.setting, self.api = setting, api
        self.callers: dict[BrokerId, BrokerCaller] = {}
        self.cut_off: set[BrokerId] = set()
        """Brokers that do not reach the API server."""
        self.waiting: list[Call] = []
        """The calls that the server has yet to act on."""
        self.acted: list[Call] = []
        """The calls whose answers are on the way."""
        self.late: list[Call] = []
        """The calls that are not waited for any more; they may land."""

    def kinds(self) -> list[Kind]:
        return [
            Kind("api acts", 16, lambda: self.waiting, self.act),
            Kind("api answers", 16, self.answerable, self.answer),
            Kind("late call lands", 4, lambda: self.late, self.land_late),
            Kind("coordinate", 5, self.readers, self.coordinate),
            Kind("watch", 14, self.behind, self.watch),
            Kind("renew lease", 8, self.renewing, self.renew_lease),
            Kind("watch leases", 3, self.connected, self.watch_leases),
        ]

    def faults(self) -> list[Kind]:
        kinds = [
            Kind("call lost", 2.5, lambda: self.waiting, self.lose),
            Kind("call given up", 3, lambda: self.waiting, self.give_up),
            Kind("call doubled", 0.7, self.doublable, self.double),
            Kind("answer lost", 1, lambda: self.acted, self.lose_answer),
            Kind("late call lost", 1, lambda: self.late, lambda call, _: self.late.remove(call)),
            Kind("lose api", 0.3, self.connected, lambda life, _: self.cut_off.add(life.broker)),
            Kind("find api", 1, lambda: WHOLE if self.cut_off else (), self.find_api),
        ]
        return [replace(kind, is_fault=True) for kind in kinds]

    # -- who ---------------------------------------------------------------------------------------------------------

    def connected(self) -> list[Life]:
        cut_off = self.cut_off
        return [
            caller.life
            for caller in self.callers.values()
            if not caller.life.is_paused and caller.life.broker not in cut_off
        ]

    def readers(self) -> list[Life]:
        return [life for life in self.connected() if life.writer is not None and not life.writer.is_writing]

    def behind(self) -> list[Life]:
        newest = len(self.api.history) - 1
        return [life for life in self.connected() if life.watch_index < newest and life.writer is not None]

    def renewing(self) -> list[Life]:
        due = LEASE_RENEW_INTERVAL_MS
        return [life for life in self.connected() if life.clock.now_ms - life.clock_port.renewed_ms >= due]

    def answerable(self) -> list[Call]:
        return [call for call in self.acted if call.caller.hears]

    def doublable(self) -> list[Call]:
        return [call for call in self.waiting if call.method is Method.PUT]

    # -- calls -------------------------------------------------------------------------------------------------------

    def began(self, life: Life) -> None:
        caller = self.callers[life.broker] = BrokerCaller(life, self)
        self.read(caller)

    def ended(self, life: Life) -> None:
        self.forget(self.callers.pop(life.broker))

    def forget(self, caller: Caller) -> None:
        """Forget a caller that is gone: what it sent may land."""
        self.late += [call for call in self.waiting if call.caller is caller]
        self.waiting = [call for call in self.waiting if call.caller is not caller]
        self.acted = [call for call in self.acted if call.caller is not caller]

    def read(self, caller: BrokerCaller) -> None:
        """Send a GET without resourceVersion."""
        known = caller.life.writer.known.metadata.resource_version if caller.life.writer is not None else ""
        caller.life.is_doubtful = False
        self.waiting.append(Call(caller, Method.GET, known))

    def act(self, call: Call, _: int) -> None:
        self.waiting.remove(call)
        self._act(call)
        self.acted.append(call)

    def _act(self, call: Call) -> None:
        if call.method is Method.PUT:
            assert call.content is not None, "a PUT has a body"
            call.content = self.api.put(call.content)
        else:
            call.content = self.api.get()

    def answer(self, call: Call, _: int) -> None:
        self.acted.remove(call)
        call.caller.answered(call)

    def land_late(self, call: Call, _: int) -> None:
        self.late.remove(call)
        self._act(call)

    def lose(self, call: Call, _: int) -> None:
        self.waiting.remove(call)
        call.caller.unanswered(call)

    def give_up(self, call: Call, _: int) -> None:
        self.waiting.remove(call)
        self.late.append(call)
        call.caller.unanswered(call)

    def double(self, call: Call, _: int) -> None:
        """Send a call twice, as a proxy may; only the second answer comes through."""
        assert call.content is not None, "a PUT has a body"
        self.api.put(call.content)

    def lose_answer(self, call: Call, _: int) -> None:
        self.acted.remove(call)
        call.caller.unanswered(call)

    def find_api(self, _: object, draw: int) -> None:
        found = sorted(self.cut_off)[draw % len(self.cut_off)]
        self.cut_off.discard(found)
        if found in self.callers:
            life = self.callers[found].life
            life.liveness.restart(life.clock_port.renewed_ms, life.clock.now_ms)

    def cut_watches(self) -> None:
        """Cut the watches, as the API server begins anew: events that it did not get across are lost."""
        newest = len(self.api.history) - 1
        for caller in self.callers.values():
            caller.life.watch_index = newest
        for call in [*self.acted]:
            self.lose_answer(call, 0)

    # -- what brokers do ---------------------------------------------------------------------------------------------

    def coordinate(self, life: Life, draw: int) -> None:
        assert life.writer is not None, "it has read the set"
        caller = self.callers[life.broker]
        must_read = life.writer.must_read or life.is_doubtful
        put = life.put() if not must_read else None
        if put is not None:
            self.waiting.append(Call(caller, Method.PUT, put.metadata.resource_version, put))
        elif must_read or (life.writer.is_undecided and draw % 3 == 0):
            self.read(caller)

    def watch(self, life: Life, draw: int) -> None:
        """Versions may be skipped."""
        ahead = len(self.api.history) - 1 - life.watch_index
        life.watch_index += 1 + draw % ahead
        shown = self.api.history[life.watch_index]
        assert life.writer is not None, "it has read the set"
        # Late, or the data went back: only a read tells.
        life.is_doubtful = life.is_doubtful or bool(older_partitions(shown, life.writer.known))
        life.see(lambda writer: writer.seen(shown))

    def renew_lease(self, life: Life, _: int) -> None:
        life.clock_port.renewed_ms = life.clock.now_ms
        lease = self.api.leases[life.broker]
        if lease.incarnation == life.me.incarnation:
            told = frozenset([self.setting.topic.uid]) if life.is_regressed else frozenset[TopicUid]()
            self.api.renew(replace(lease, full=life.disk.is_full, regressed=told))

    def watch_leases(self, life: Life, _: int) -> None:
        life.leases.update(self.api.leases)
        life.liveness.observe_all(life.leases.values(), life.clock.now_ms)
