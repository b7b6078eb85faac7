"""Heartbeats that a broker passes on to their coordinator while too many wait there already: asked without a wait, and
an answer without news is kept here for as long as the member would have waited. Else it would ask again at once.

Pure. What is wrong with a body says the coordinator.
"""

from typing import Any

from headrace.core.limits import GROUP_HEARTBEAT_MS_MAX


def without_waiting(body: object) -> tuple[object, int]:
    """The same heartbeat, to be answered at once; and how long its member would have waited, in milliseconds."""
    if not isinstance(body, dict):
        return body, 0
    return {**body, "waitMs": 0}, _milliseconds(body.get("waitMs"))


def pause_ms(answer: object, wait_ms: int) -> int:
    """How long the answer is kept: not at all where there is news; no longer than its member may be silent."""
    if not isinstance(answer, dict) or answer.get("assignment") is not None:
        return 0
    return min(wait_ms, _milliseconds(answer.get("heartbeatMs")))


def _milliseconds(value: Any) -> int:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return min(max(value, 0), GROUP_HEARTBEAT_MS_MAX) if is_whole else 0
