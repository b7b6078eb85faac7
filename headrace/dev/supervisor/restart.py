"""When is a process that died started again? At once, unless it dies before it ever was of use.

    died after it was ready   ──> the least delay          (a crash, a kill -9: nothing suggests that it will die again)
    died before it was ready  ──> twice the last delay     (it crash-loops: a bad disk, a port in use)
    killed before it was ready ──> the same, within a bound (somebody does that on purpose, and will let it be)

Pure: the supervisor measures nothing but "was it ready".
"""

from headrace.core.slotted import dataclass

RESTART_DELAY_MIN_MS = 100
RESTART_DELAY_MAX_MS = 10_000
RESTART_DELAY_KILLED_MAX_MS = 400


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait after the latest death."""

    delay_ms: int = 0
    """0 while it has not died yet."""

    def after_death(self, *, was_ready: bool, was_killed: bool) -> "Backoff":
        """`was_killed` by SIGKILL, which no program sends itself."""
        if was_ready:
            return Backoff(RESTART_DELAY_MIN_MS)
        most = RESTART_DELAY_KILLED_MAX_MS if was_killed else RESTART_DELAY_MAX_MS
        return Backoff(min(max(2 * self.delay_ms, RESTART_DELAY_MIN_MS), most))
