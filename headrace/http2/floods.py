"""How much a peer may ask of us that moves nothing: two allowances per connection. Pure; time is given.

Resets are streams that were opened for nothing: by the peer's own RST_STREAM (CVE-2023-44487) or by mistakes that make
us reset them (CVE-2025-8671). Idle frames are those that carry no request and no body (CVE-2019-9512 and its kin). Each
allowance is what may come in a hurry, and grows back with time; the one of idle frames also with what we send, because
a reader answers DATA with WINDOW_UPDATEs. Owned by one `Engine`, for its lifetime.
"""

from headrace.core import limits
from headrace.http2.events import ErrorCode
from headrace.http2.frames import connection_error


class Allowance:
    def __init__(self, name: str, at_once: int, per_second: int) -> None:
        self._name = name
        self._at_once = at_once
        self._per_second = per_second
        self._left = at_once
        self._since_ms: int | None = None
        """When it last grew; None before the first look at the time."""

    def spend(self, now_ms: int, count: int = 1) -> None:
        """So many more. Raises `RemoteProtocolError` where there have been too many."""
        self._left -= count
        if self._left < 0 or self._since_ms is None:
            self.check(now_ms)

    def owe(self) -> None:
        """One more, where the peer cannot be told at once: `check` will."""
        self._left -= 1

    def check(self, now_ms: int) -> None:
        """Raises `RemoteProtocolError` where more was spent than time has given back."""
        if self._since_ms is None:
            self._since_ms = now_ms
        if self._left >= 0:
            return
        # It grows only when it is used up: the time that has passed since gives its share then, up to the bound.
        self.earn((now_ms - self._since_ms) * self._per_second // 1000)
        self._since_ms = now_ms
        if self._left < 0:
            what = f"{self._name} faster than {self._per_second} a second, after {self._at_once} at once"
            raise connection_error(what, ErrorCode.ENHANCE_YOUR_CALM)

    def earn(self, count: int) -> None:
        self._left = min(self._left + count, self._at_once)


def resets_allowance() -> Allowance:
    return Allowance("streams that are reset", limits.H2_RESETS_MAX, limits.H2_RESETS_PER_SECOND)


def idle_allowance() -> Allowance:
    return Allowance("frames that move nothing", limits.H2_IDLE_FRAMES_MAX, limits.H2_IDLE_FRAMES_PER_SECOND)
