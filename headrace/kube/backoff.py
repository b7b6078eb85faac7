"""How long to wait before asking again: exponential, with jitter, so that those who ask do not keep step."""

from random import Random

from headrace.core.limits import API_BACKOFF_MAX_MS, API_BACKOFF_MIN_MS


class Backoff:
    """Full jitter over a ceiling that doubles with each failure, never below the least."""

    def __init__(self, rng: Random, least_ms: int = API_BACKOFF_MIN_MS, most_ms: int = API_BACKOFF_MAX_MS) -> None:
        self._rng = rng
        self._least_ms = least_ms
        self._most_ms = most_ms
        self._ceiling_ms = least_ms

    def next_ms(self) -> float:
        """The wait after one more failure."""
        self._ceiling_ms = min(2 * self._ceiling_ms, self._most_ms)
        return self._rng.uniform(self._least_ms, self._ceiling_ms)

    def reset(self) -> None:
        """It worked: the next failure waits briefly again."""
        self._ceiling_ms = self._least_ms
