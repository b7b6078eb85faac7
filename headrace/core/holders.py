"""The shares of clients in a good that many use, so that no client takes all of it.

Each may hold as much as is left for all others together: one alone half, each of two a third, each of n one part of
n + 1. So there is always something for a newcomer, and no figure is to be chosen (dynamic thresholds: Choudhury and
Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). A holder is a text, which is the address of a client until
clients have names; `holder_of` makes it. None stands for this cluster's own work, which has the whole limit.

`Holders` is for one good, as long as its bound lives; what is left of it is the bound's own figure. Holders of nothing
take no memory. `HolderRate` bounds how often each may do something.
"""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address

_ADDRESSES_REMEMBERED_MAX = 4096
_NETWORK_BITS = 64
"""The bits of an IPv6 address that one client is given at least, so that it has no other share for each address in
it."""


class Holders:
    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of holders that hold something."""
        return len(self._held)

    def held(self, holder: str | None) -> int:
        return self._held.get(holder, 0) if holder is not None else 0

    def room(self, holder: str | None, left: int) -> int:
        """Return how much more this one may take where so much is left; negative where it holds more than it might
        now."""
        return left - self.held(holder)

    def add(self, holder: str | None, amount: int) -> None:
        """Add what it takes, or gives back where that is negative."""
        if holder is None or not amount:
            return
        held = self._held.get(holder, 0) + amount
        if held:
            self._held[holder] = held
        else:
            del self._held[holder]

    def greatest(self) -> str | None:
        """Return the holder with most, the one who began first among several; None where there is none."""
        return max(self._held, key=self._held.__getitem__, default=None)


class HolderRate:
    """The bound on how often each holder may take something: `burst` times in a row, then once every `interval_ms`.

    A generic cell rate algorithm (ITU-T I.371): one time for each holder, at which all that it has taken is earned
    again. Time comes in as `now_ms`. It remembers `holders_max` at most, and of more the ones that have most to earn.
    """

    __slots__ = ("_burst_ms", "_earned_ms", "_holders_max", "_interval_ms")

    def __init__(self, burst: int, interval_ms: float, holders_max: int) -> None:
        self._interval_ms = interval_ms
        self._burst_ms = burst * interval_ms
        self._holders_max = holders_max
        self._earned_ms: dict[str, float] = {}

    def __len__(self) -> int:
        """Return the number of holders that are remembered."""
        return len(self._earned_ms)

    def wait_ms(self, holder: str | None, now_ms: float) -> float:
        """Return the milliseconds until this holder may take once more; None, the cluster itself, never waits."""
        return 0 if holder is None else max(0, self._next_ms(holder, now_ms) - now_ms - self._burst_ms)

    def take(self, holder: str | None, now_ms: float) -> None:
        """Count one more, which the holder takes now or when it has waited."""
        if holder is None:
            return
        if holder not in self._earned_ms and len(self._earned_ms) >= self._holders_max:
            self._make_room(now_ms)
        self._earned_ms[holder] = self._next_ms(holder, now_ms)

    def _next_ms(self, holder: str, now_ms: float) -> float:
        """Return the time at which all is earned again after one more."""
        return max(now_ms, self._earned_ms.get(holder, now_ms)) + self._interval_ms

    def _make_room(self, now_ms: float) -> None:
        """Forget all holders that have earned what they took, or the one that is nearest to it."""
        self._earned_ms = {holder: at_ms for holder, at_ms in self._earned_ms.items() if at_ms > now_ms}
        if len(self._earned_ms) >= self._holders_max:
            del self._earned_ms[min(self._earned_ms, key=self._earned_ms.__getitem__)]


@lru_cache(_ADDRESSES_REMEMBERED_MAX)
def holder_of(address: str) -> str:
    """Return the holder in whose share a request from there is counted: an address of IPv4, a network of IPv6, or the
    text as it is."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    if parsed.is_loopback:
        return str(parsed)
    network = int(parsed) >> (128 - _NETWORK_BITS) << (128 - _NETWORK_BITS)
    return f"{IPv6Address(network)}/{_NETWORK_BITS}"
