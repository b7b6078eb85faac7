"""The disasters beyond all promises, for scripts only: by chance they would leave nothing to be checked.

The API server's data goes back, as after a restore, until the right data is there again: meanwhile whatever it says of
seats proves nothing, and nobody who lacks what is committed may lead. More disks are lost than were promised: records
may be gone, but the cluster must come to rest.
"""

from tests.sim.api import Api
from tests.sim.brokers import Brokers
from tests.sim.life import Life
from tests.sim.schedule import WHOLE, Kind


class Disasters:
    def __init__(self, api: Api, brokers: Brokers) -> None:
        self.api, self.brokers = api, brokers

    def kinds(self) -> list[Kind]:
        return [
            Kind("api goes back", 0, lambda: WHOLE, self.api_goes_back),
            Kind("api is right again", 0, lambda: WHOLE, self.api_is_right_again),
            Kind("last disk lost", 0, self.brokers.alive, self.last_disk_lost),
        ]

    def api_goes_back(self, _: object, versions: int) -> None:
        old = self.api.history[-1 - versions]
        self.api.checks.reign.goes_back(old.partitions[0], is_strict=True)
        self.api.show(old)

    def api_is_right_again(self, _: object, __: int) -> None:
        """Show the true data again: all that was written on old data is gone."""
        right = max(self.api.history, key=lambda each: each.partitions[0].partition_epoch)
        self.api.show(right)
        self.api.checks.reign.is_right_again()

    def last_disk_lost(self, life: Life, draw: int) -> None:
        self.api.checks.reign.may_lose_all = True
        self.brokers.disk_lost(life, draw)
