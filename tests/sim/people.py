"""The acts of people where the core alone decides nothing: restore the API server's data, run `headrace cluster
recover`.

The data goes back by a few versions, and all watches are cut off. `recover` asks all brokers that can be reached, looks
at the PartitionSet some time later, and writes what `plan_recovery` says: as any write that may be lost, late, or meet
another. It is run again until it has nothing to say.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headrace.core.control.broker_reports import BrokerReport
from headrace.core.control.cluster_recovery import Cluster, RecoveryPlan, plan_recovery
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import BrokerId
from tests.sim.api import Api
from tests.sim.brokers import Brokers
from tests.sim.calling import Call, Calling, Method
from tests.sim.reign import Warned
from tests.sim.schedule import WHOLE, Kind, Target
from tests.sim.setting import Setting

VERSIONS_MAX = 12


@dataclass
class Person:
    """Runs the command; its write is on its way while `waits`."""

    setting: Setting
    label: str = "recover"
    hears: bool = True
    waits: bool = False

    def answered(self, call: Call) -> None:
        self.waits = False
        self.setting.counts["recover " + ("meets a conflict" if call.content is None else "landed")] += 1

    def unanswered(self, call: Call) -> None:
        self.waits = False


class People:
    def __init__(self, setting: Setting, api: Api, brokers: Brokers, calling: Calling) -> None:
        self.setting, self.api, self.brokers, self.calling = setting, api, brokers, calling
        self.person = Person(setting)
        self.told: dict[BrokerId, BrokerReport] = {}
        """The reports of brokers that were asked."""

    def kinds(self) -> list[Kind]:
        return [
            Kind("recover asks", 1.5, lambda: WHOLE if self._recovers() and not self.told else (), self.ask),
            Kind("recover decides", 6, lambda: WHOLE if self._recovers() and self.told else (), self.decide),
        ]

    def faults(self) -> list[Kind]:
        if not self.setting.plan.restores:
            return []
        return [Kind("api restored", 1.5, self.restorable, self.restore, is_fault=True)]

    def _recovers(self) -> bool:
        return self.setting.checks.reign.is_back and not self.person.waits

    def restorable(self) -> Sequence[Target]:
        return WHOLE if len(self.api.history) > 1 and not self.setting.checks.reign.is_back else ()

    def restore(self, _: object, draw: int) -> None:
        back = 1 + draw % min(VERSIONS_MAX, len(self.api.history) - 1)
        old = self.api.history[-1 - back]
        if old.partitions == self.api.stored.partitions:
            return
        self.told = {}
        self.setting.checks.reign.goes_back(old.partitions[0])
        self.calling.cut_watches()
        self.api.show(old)

    def ask(self, _: object, __: int) -> None:
        self.told = {life.broker: life.report() for life in self.calling.connected()}

    def decide(self, _: object, __: int) -> None:
        told, self.told = self.told, {}
        silent = {broker: "it was not reached" for broker in self.setting.brokers if broker not in told}
        found = self.api.get()
        planned = plan_recovery(Cluster([self.setting.topic], [found], told, silent))
        if planned.writes:
            self._write(planned, told)
        elif planned.stuck:
            self.setting.counts["recover is stuck"] += 1
        else:
            self._finds_well(found)

    def _finds_well(self, found: PartitionSet) -> None:
        """Brokers that know something else will notice when they read it: then people run the command again."""
        self.setting.counts["recover finds all well"] += 1
        known = (life.writer.known for life in self.brokers.alive() if life.writer is not None)
        if all(each.partitions == found.partitions for each in known):
            self.setting.checks.found_well(found.partitions[0])

    def _write(self, planned: RecoveryPlan, told: Collection[BrokerId]) -> None:
        written, losses = planned.writes[0], planned.recovered[0].losses
        self.setting.checks.reign.recovers(written.partitions[0], told)
        self.setting.counts["recover may lose" if losses else "recover loses nothing"] += 1
        reign = self.setting.checks.reign
        reign.warns(written, Warned.RECOVERS_SOME if losses else Warned.RECOVERS)
        self.person.waits = True
        version = written.metadata.resource_version
        self.calling.waiting.append(Call(self.person, Method.PUT, version, written))
