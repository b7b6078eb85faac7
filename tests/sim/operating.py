"""Operators: each with its own view, clock and calls, around the real `plan`. They are killed, and two may be at it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.core.control.actions import ReplaceSet
from headrace.core.control.last_resort import questions
from headrace.core.control.liveness import Liveness
from headrace.core.control.observed import Broker, Observed, SteadyTimers, regressed_of
from headrace.core.control.plan import plan
from headrace.core.control.promises import Promises
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import BrokerId
from tests.sim.api import Api
from tests.sim.brokers import Brokers
from tests.sim.calling import Call, Calling, Method
from tests.sim.schedule import WHOLE, Kind, Target
from tests.sim.setting import Clock, Setting, topic_of

WHY = {
    "is elected uncleanly": "unclean election",
    "drains": "drain",
    "is to leave": "leader moved off a leaving broker",
    "is to give its replica away": "leader moved off a replica to remove",
    "the preferred leader": "preferred leader",
    "no member of the ISR": "offline",
    "is gone": "election, leader gone",
    "the greatest log of all": "last resort",
    "nobody leads": "election, nobody leads",
    "lost, and enough others": "lost broker leaves ISR",
    "have caught up": "replicas caught up",
    "it is to stand on": "reassignment",
}
"""What a change is counted as, by what stands in its reason."""


class Operator:
    def __init__(self, number: int, clock: Clock, operating: "Operating") -> None:
        self.label, self.clock, self._operating = f"op{number}", clock, operating
        self.is_up = True
        self.hears = True
        self.index = 0
        """What its watch has shown: an index in the history."""
        self.liveness, self.steady = Liveness(), SteadyTimers()
        self.heard_ms = clock.now_ms
        self.is_writing = False

    def answered(self, call: Call) -> None:
        self.is_writing = False
        self._operating.setting.counts["operator " + ("conflict" if call.content is None else "landed")] += 1

    def unanswered(self, call: Call) -> None:
        self.is_writing = False

    def observe(self, api: Api) -> None:
        self.liveness.observe_all(api.leases.values(), self.clock.now_ms)
        self.heard_ms = self.clock.now_ms

    def brokers(self, api: Api) -> dict[BrokerId, Broker]:
        now_ms, gone = self.clock.now_ms, self._operating.brokers.gone
        for broker, incarnation in gone.items():
            lease = api.leases.get(broker)
            if lease is not None and lease.incarnation == incarnation:
                self.liveness.died(broker, now_ms)
        return {broker: Broker.of(lease, self.liveness, now_ms) for broker, lease in api.leases.items()}


@dataclass(eq=False, slots=True)
class _Change:
    replicas: int
    label: str


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
        observed = replace(observed, promises=self._promises(observed))
        for topic_plan in plan([self.setting.topic], observed, operator.clock.now_ms):
            for action in topic_plan.actions:
                if isinstance(action, ReplaceSet):
                    self._write(operator, action)

    def _promises(self, observed: Observed) -> dict[BrokerId, Promises]:
        """Of those who can be asked, at once."""
        asked = questions([self.setting.topic], observed)
        lives = [life for life in self.brokers.awake() if life.broker in asked] if asked else []
        return {life.broker: Promises(life.me, life.promised(asked[life.broker])) for life in lives}

    def _write(self, operator: Operator, action: ReplaceSet) -> None:
        written: PartitionSet = action.set
        why = self._why(action.reason)
        self.setting.counts["operator: " + why] += 1
        if why == "unclean election":
            self.setting.checks.may_lose = True
        elif why == "last resort":
            self.setting.checks.resorted()
        operator.is_writing = True
        self.calling.waiting.append(Call(operator, Method.PUT, written.metadata.resource_version, written))

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

    def leave(self, _: object, draw: int) -> None:
        staying = [broker for broker in self.setting.brokers if broker not in self.leaving]
        leader = self.api.state.leader
        wanted = [leader.broker] if leader is not None and leader.broker in staying and draw % 2 else staying
        self.leaving.add(wanted[(draw >> 1) % len(wanted)])

    def stay(self, _: object, draw: int) -> None:
        self.leaving.discard(sorted(self.leaving)[draw % len(self.leaving)])
