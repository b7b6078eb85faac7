"""How long to wait before asking the API server again: exponential, with jitter, so that clients do not keep step."""

from random import Random

from headrace.core.limits import API_BACKOFF_MAX_MS, API_BACKOFF_MIN_MS


class Backoff:
    """Full jitter over a ceiling that doubles with each failure, never below API_BACKOFF_MIN_MS."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._ceiling_ms = API_BACKOFF_MIN_MS

    def next_ms(self) -> float:
        """The wait after one more failure."""
        self._ceiling_ms = min(2 * self._ceiling_ms, API_BACKOFF_MAX_MS)
        return self._rng.uniform(API_BACKOFF_MIN_MS, self._ceiling_ms)

    def reset(self) -> None:
        """It worked: the next failure waits briefly again."""
        self._ceiling_ms = API_BACKOFF_MIN_MS
