"""Operators: each with its own view, clock and calls, around the real `plan`. They are killed, and two may be at it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.core.control.actions import ReplaceSet
from headrace.core.control.broker_reports import Epochs, Promises
from headrace.core.control.last_resort import questions
from headrace.core.control.liveness import Liveness
from headrace.core.control.observed import Broker, Observed, SteadyTimers, regressed_of
from headrace.core.control.plan import plan
from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Durability, Topic
from headrace.core.types import BrokerId, PartitionKey
from tests.sim.api import Api
from tests.sim.brokers import Brokers
from tests.sim.calling import Call, Calling, Method
from tests.sim.disk import Log
from tests.sim.reign import BrokenPromiseError, Warned
from tests.sim.schedule import WHOLE, Kind, Target
from tests.sim.setting import Clock, Setting, topic_of

WHY = {
    "is elected uncleanly": "unclean election",
    "drains": "drain",
    "is to leave": "leader moved off a leaving broker",
    "is to give its replica away": "leader moved off a replica to remove",
    "the preferred leader": "preferred leader",
    "the greatest log of all": "last resort",
    "no member of the ISR": "offline",
    "is gone": "election, leader gone",
    "nobody leads": "election, nobody leads",
    "lost, and enough others": "lost broker leaves ISR",
    "have caught up": "replicas caught up",
    "it is to stand on": "reassignment",
}
"""The counted kind of a change, by a part of its reason."""


@dataclass(frozen=True, slots=True)
class Look:
    """A picture and its plan: the same picture gives the same plan, as long as no broker has to be asked for it, so it
    is planned once."""

    topic: Topic
    observed: Observed
    writes: tuple[ReplaceSet, ...]


WARNINGS = {"unclean election": Warned.MAY_LOSE, "last resort": Warned.NOBODY_INTACT}


class Operator:
    def __init__(self, number: int, clock: Clock, operating: "Operating") -> None:
        self.label, self.clock, self._operating = f"op{number}", clock, operating
        self.is_up = True
        self.hears = True
        self.index = 0
        """The place of its watch: an index in the history."""
        self.liveness, self.steady = Liveness(), SteadyTimers()
        self.heard_ms = clock.now_ms
        self.is_writing = False
        self.looked: Look | None = None
        """The picture that it planned last."""

    def answered(self, call: Call) -> None:
        self.is_writing = False
        self._operating.setting.counts["operator " + ("conflict" if call.content is None else "landed")] += 1

    def unanswered(self, call: Call) -> None:
        self.is_writing = False

    def observe(self, api: Api) -> None:
        self.liveness.observe_all(api.leases.values(), self.clock.now_ms)
        self.heard_ms = self.clock.now_ms

    def live(self, api: Api) -> list[BrokerLease]:
        now_ms = self.clock.now_ms
        return [each for each in api.leases.values() if not each.clean and self.liveness.is_live(each.broker, now_ms)]

    def brokers(self, api: Api) -> dict[BrokerId, Broker]:
        now_ms, gone = self.clock.now_ms, self._operating.brokers.gone
        for broker, incarnation in gone.items():
            lease = api.leases.get(broker)
            if lease is not None and lease.incarnation == incarnation:
                self.liveness.died(broker, now_ms)
        return {broker: Broker.of(lease, self.liveness, now_ms) for broker, lease in api.leases.items()}


class Operating:
    def __init__(self, setting: Setting, api: Api, brokers: Brokers, calling: Calling) -> None:
        self.setting, self.api, self.brokers, self.calling = setting, api, brokers, calling
        self.operators = [self._new(number) for number in range(setting.plan.operators)]
        self.leaving: set[BrokerId] = set()

    def _new(self, number: int) -> Operator:
        return Operator(number, self.setting.clocks[BrokerId(-1 - number)], self)

    def kinds(self) -> list[Kind]:
        return [
            Kind("operator watches", 8, self.behind, self.watch),
            Kind("operator watches leases", 6, self.connected, lambda operator, _: operator.observe(self.api)),
            Kind("operate", 8, self.idle, self.operate),
        ]

    def faults(self) -> list[Kind]:
        kinds = [
            Kind("operator killed", 0.2, lambda: self.operators, self.kill),
            Kind("operator loses api", 0.2, self.connected, self.lose_api),
            Kind("operator finds api", 1, self.away, self.find_api),
        ]
        if self.setting.plan.moves:
            kinds += [
                Kind("replicas change", 1, lambda: WHOLE, self.change_replicas),
                Kind("leader is one too many", 30, self.leader_too_many, self.take_leader_away),
                Kind("broker leaves", 7, self.stayable, self.leave),
                Kind("broker stays", 2.5, lambda: WHOLE if self.leaving else (), self.stay),
            ]
        return [replace(kind, is_fault=True) for kind in kinds]

    # -- who ---------------------------------------------------------------------------------------------------------

    def connected(self) -> list[Operator]:
        return [operator for operator in self.operators if operator.hears]

    def away(self) -> list[Operator]:
        return [operator for operator in self.operators if not operator.hears]

    def behind(self) -> list[Operator]:
        newest = len(self.api.history) - 1
        return [operator for operator in self.operators if operator.hears and operator.index < newest]

    def idle(self) -> list[Operator]:
        return [operator for operator in self.operators if operator.hears and not operator.is_writing]

    def stayable(self) -> Sequence[Target]:
        return WHOLE if len(self.setting.brokers) - len(self.leaving) > self.setting.spec.replicas else ()

    # -- what they do ------------------------------------------------------------------------------------------------

    def watch(self, operator: Operator, draw: int) -> None:
        operator.index += 1 + draw % (len(self.api.history) - 1 - operator.index)

    def operate(self, operator: Operator, _: int) -> None:
        known = self.api.history[operator.index]
        brokers = operator.brokers(self.api)
        steady = operator.steady.observe(brokers.values(), operator.clock.now_ms)
        observed = Observed(
            self.setting.spec.cluster,
            (known,),
            brokers,
            steady=steady,
            leaving=frozenset(self.leaving),
            regressed=regressed_of(brokers.values()),
        )
        for write in self._planned(operator, observed):
            self._write(operator, write)

    def _planned(self, operator: Operator, observed: Observed) -> tuple[ReplaceSet, ...]:
        topic, looked = self.setting.topic, operator.looked
        if looked is not None and looked.topic is topic and looked.observed == observed:
            return looked.writes
        asked = questions([topic], observed)
        promised = replace(observed, promises=self._promises(asked)) if asked else observed
        planned = plan([topic], promised, operator.clock.now_ms)
        actions = (action for topic_plan in planned for action in topic_plan.actions)
        writes = tuple(action for action in actions if isinstance(action, ReplaceSet))
        operator.looked = None if asked else Look(topic, observed, writes)
        return writes

    def _promises(self, asked: Mapping[BrokerId, Mapping[PartitionKey, Epochs]]) -> dict[BrokerId, Promises]:
        """Return the promises of the brokers that can be asked, at once."""
        lives = [life for life in self.brokers.awake() if life.broker in asked]
        return {life.broker: Promises(life.me, life.promised(asked[life.broker])) for life in lives}

    def _write(self, operator: Operator, action: ReplaceSet) -> None:
        written: PartitionSet = action.set
        why = self._why(action.reason)
        self.setting.counts["operator: " + why] += 1
        if why in WARNINGS:
            self.setting.checks.reign.warns(written, WARNINGS[why])
        self._check(operator, why, written.partitions[0])
        operator.is_writing = True
        self.calling.waiting.append(Call(operator, Method.PUT, written.metadata.resource_version, written))

    def _check(self, operator: Operator, why: str, state: PartitionState) -> None:
        if any(self.setting.topic.uid in lease.regressed for lease in operator.live(self.api)):
            raise BrokenPromiseError("ElectionsStop", f"a broker that lives knows later epochs: {state}")
        if why == "last resort" and state.leader is not None:
            ranks = {broker: self._rank(self.setting.disks[broker].log) for broker in state.replicas}
            if ranks[state.leader.broker] != max(ranks.values()):
                raise BrokenPromiseError("LastResort", f"others have more, by (epoch, end) {ranks}: {state}")

    def _rank(self, log: Log) -> tuple[int, int]:
        is_synced = self.setting.plan.durability is Durability.FSYNC
        return log.epochs.latest, log.on_disk if is_synced else len(log.entries)

    def _why(self, reason: str) -> str:
        return next((name for words, name in WHY.items() if words in reason), reason)

    def kill(self, operator: Operator, _: int) -> None:
        number = self.operators.index(operator)
        self.calling.forget(operator)
        self.operators[number] = self._new(number)
        self.operators[number].index = operator.index

    def lose_api(self, operator: Operator, _: int) -> None:
        operator.hears = False

    def find_api(self, operator: Operator, _: int) -> None:
        operator.hears = True
        operator.liveness.restart(operator.heard_ms, operator.clock.now_ms)

    def heal(self) -> None:
        for operator in self.away():
            self.find_api(operator, 0)

    # -- what people ask for -----------------------------------------------------------------------------------------

    def change_replicas(self, _: object, draw: int) -> None:
        plan_ = self.setting.plan
        most = len(self.setting.brokers) - len(self.leaving)
        least = plan_.min_insync_replicas
        self.setting.topic = topic_of(plan_, least + draw % (most - least + 1), least)

    def leader_too_many(self) -> Sequence[Target]:
        """Return the targets where all are in sync, and those before the leader are to be enough: it stands on a
        replica to remove."""
        state, least = self.api.state, self.setting.plan.min_insync_replicas
        is_whole = len(state.isr) == len(state.replicas) == self.setting.spec.replicas
        if not is_whole or state.leader is None or state.adding or state.removing:
            return ()
        return WHOLE if state.replicas.index(state.leader.broker) >= least else ()

    def take_leader_away(self, _: object, __: int) -> None:
        state, plan_ = self.api.state, self.setting.plan
        assert state.leader is not None, "somebody leads"
        self.setting.topic = topic_of(plan_, state.replicas.index(state.leader.broker), plan_.min_insync_replicas)

    def leave(self, _: object, draw: int) -> None:
        staying = [broker for broker in self.setting.brokers if broker not in self.leaving]
        leader = self.api.state.leader
        wanted = [leader.broker] if leader is not None and leader.broker in staying and draw % 2 else staying
        self.leaving.add(wanted[(draw >> 1) % len(wanted)])

    def stay(self, _: object, draw: int) -> None:
        self.leaving.discard(sorted(self.leaving)[draw % len(self.leaving)])
