"""Steps of scripts that stand for many: what goes well, in a fixed order, so that a script tells only what does not.

`agree` lets brokers and operators hear of everything and write until nobody wants anything any more; `replicate` lets
followers reach their leader, agree with it and have everything on disk; `reconcile` ends before anything is sent. With
a target only that one acts, on its own: `replicate 1` leaves what the leader itself has in memory. Nothing of the kind
happens by chance, and whoever is paused, cut off or down stays so.
"""

from collections.abc import Sequence

from tests.sim.brokers import Brokers, Machine
from tests.sim.calling import BrokerCaller, Calling
from tests.sim.life import Life
from tests.sim.operating import Operating, Operator
from tests.sim.schedule import WHOLE, Kind, Target

ROUNDS = 4
"""Enough for whatever follows from what was said in the round before."""


class Shorthand:
    def __init__(self, brokers: Brokers, calling: Calling, operating: Operating) -> None:
        self.brokers, self.calling, self.operating = brokers, calling, operating

    def kinds(self) -> list[Kind]:
        return [
            Kind("agree", 0, lambda: [*WHOLE, *self._machines(), *self.operating.operators], self.agree),
            Kind("replicate", 0, lambda: [*WHOLE, *self._machines()], self.replicate),
            Kind("reconcile", 0, self.brokers.awake, lambda life, _: self._reconcile(life)),
        ]

    def _machines(self) -> Sequence[Machine]:
        return list(self.brokers.machines.values())

    # -- the API server ----------------------------------------------------------------------------------------------

    def agree(self, target: Target, _: int) -> None:
        if isinstance(target, Machine):
            self._broker_agrees(target)
        elif isinstance(target, Operator):
            self._operator_agrees(target)
        else:
            for _ in range(ROUNDS):
                for machine in self._machines():
                    self._broker_agrees(machine)
                for operator in self.operating.operators:
                    self._operator_agrees(operator)

    def _broker_agrees(self, machine: Machine) -> None:
        life, calling = machine.life, self.calling
        for _ in range(ROUNDS):
            if life is None or life not in calling.connected():
                return
            if life in calling.renewing():
                calling.renew_lease(life, 0)
            calling.watch_leases(life, 0)
            self._finish_calls(calling.callers[life.broker])
            if life in calling.behind():
                calling.watch(life, -1)
            if life in calling.readers():
                calling.coordinate(life, 1)
            self._finish_calls(calling.callers[life.broker])

    def _operator_agrees(self, operator: Operator) -> None:
        for _ in range(ROUNDS):
            if not operator.hears:
                return
            self._finish_calls(operator)
            operator.observe(self.operating.api)
            if operator in self.operating.behind():
                self.operating.watch(operator, -1)
            if operator in self.operating.idle():
                self.operating.operate(operator, 0)
            self._finish_calls(operator)

    def _finish_calls(self, caller: BrokerCaller | Operator) -> None:
        for call in [each for each in self.calling.waiting if each.caller is caller]:
            self.calling.act(call, 0)
        for call in [each for each in self.calling.acted if each.caller is caller]:
            self.calling.answer(call, 0)

    # -- streams -----------------------------------------------------------------------------------------------------

    def replicate(self, target: Target, _: int) -> None:
        lives = [target.life] if isinstance(target, Machine) else [machine.life for machine in self._machines()]
        for _ in range(ROUNDS):
            for life in lives:
                if life is not None and not life.is_paused:
                    self._follow(life)
                    self._sync(life)

    def _reconcile(self, life: Life) -> None:
        if life in self.brokers.connectable():
            self.brokers.connect(life, 0)
        self._exchange(life)

    def _follow(self, life: Life) -> None:
        self._reconcile(life)
        stream = life.streams.to_leader
        if stream is not None and stream in self.brokers.network.pushable():
            stream.leader.streams.push(stream)
            self._exchange(life)

    def _exchange(self, life: Life) -> None:
        """Until nothing is on its way."""
        network = self.brokers.network
        while (stream := life.streams.to_leader) is not None:
            if stream in network.upward():
                stream.leader.streams.serve(stream)
            elif stream in network.downward():
                life.streams.take(stream)
            elif life.log_port.cutting or life.log_port.syncs:
                self._sync(life)
            else:
                return

    def _sync(self, life: Life) -> None:
        if life.log_port.cutting is not None:
            life.log_port.cut_done()
        while life.log_port.syncs:
            life.log_port.synced()
