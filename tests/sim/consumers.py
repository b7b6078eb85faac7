"""Consumers that ask leaders what is the latest, and read on from where they are.

One remembers in which epoch it was answered, as clients do, and takes no answer of an older one. The other asks whoever
calls itself the leader, as somebody does who never reads metadata: it meets leaders that were deposed and do not know.
Neither may ever be told less than before. The second relies on clocks: where they run at different rates, a leader may
take its Lease for live that others saw run out.
"""

from dataclasses import dataclass

from headrace.core.errors import HeadraceError
from headrace.core.log.epochs import Fence
from headrace.core.replication.leadership import Contact
from headrace.core.types import LeaderEpoch
from tests.sim.brokers import Brokers
from tests.sim.disk import NO_EPOCH_SEEN
from tests.sim.life import Life
from tests.sim.reign import BrokenPromiseError
from tests.sim.schedule import Kind
from tests.sim.setting import Setting


@dataclass
class Consumer:
    reign: int = 0
    epoch: LeaderEpoch = NO_EPOCH_SEEN
    latest: int = 0
    """The latest offset that it was shown."""
    position: int = 0
    """The position up to which it has read."""

    def enters(self, reign: int) -> None:
        """Enter a reign: after an election that may lose records all begins anew."""
        if self.reign != reign:
            self.reign, self.latest, self.position = reign, 0, 0


class Consumers:
    def __init__(self, setting: Setting, brokers: Brokers) -> None:
        self.setting, self.brokers = setting, brokers
        self.careful, self.careless = Consumer(), Consumer()

    def kinds(self) -> list[Kind]:
        return [
            Kind("ask latest", 2, self.brokers.leaders, self.ask_latest),
            Kind("read", 2, self.brokers.leaders, self.read),
        ]

    def ask_latest(self, life: Life, draw: int) -> None:
        replica, checks = life.replica, self.setting.checks
        consumer = self.careful if draw % 2 or self.setting.plan.skew else self.careless
        if consumer is self.careful and replica.leader_epoch < consumer.epoch:
            return
        contact = Contact(life.clock.now_ms, life.clock_port.renewed_ms)
        try:
            replica.check_leader("topic/0", Fence())
            replica.check_latest("topic/0", contact)
        except HeadraceError:
            self.setting.counts["latest is not said"] += 1
            return
        consumer.enters(checks.reign.number)
        self._told(consumer, life)

    def _told(self, consumer: Consumer, life: Life) -> None:
        latest, is_promised = life.replica.high_watermark, self.setting.checks.reign.is_promised(life.led)
        self.setting.counts["latest is said"] += 1
        if latest < consumer.latest and is_promised:
            what = f"{life.me} says that {latest} is the latest in {life.led}, after {consumer.latest}"
            raise BrokenPromiseError("ConsistentRead", what)
        if is_promised:
            consumer.latest, consumer.epoch = latest, max(consumer.epoch, life.led.leader_epoch)

    def read(self, life: Life, draw: int) -> None:
        """Records below the high watermark are shown by any leader: those that were read are still the same."""
        checks, known = self.setting.checks, life.replica.high_watermark
        checks.read(life.me, life.led, life.log, known)
        consumer = self.careful
        consumer.enters(checks.reign.number)
        if checks.reign.is_promised(life.led):
            consumer.position = max(consumer.position, min(known, consumer.position + 1 + draw % 8))
