"""How much a trigger takes of each partition: the limit, shared by what waits in each. Pure."""

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def shares(waiting: Mapping[T, int], limit: int) -> dict[T, int]:
    """Of each as its share of all that waits; `limit` together, or all where that is less.

    One at least of each that waits, as far as `limit` goes (of the longest first): none starves beside a long one.
    """
    waiting = {each: size for each, size in waiting.items() if size > 0}
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    first = sorted(waiting, key=lambda each: waiting[each], reverse=True)[:limit]
    rest, left = limit - len(first), total - len(first)
    taken = {each: 1 + rest * (waiting[each] - 1) // left for each in first}
    # What rounding has left, to those that lost most by it.
    lost = sorted(first, key=lambda each: rest * (waiting[each] - 1) % left, reverse=True)
    for each in lost[: limit - sum(taken.values())]:
        taken[each] += 1
    return taken


def shares_by_bytes(waiting: Mapping[T, int], record_bytes: Mapping[T, float], limit_bytes: int) -> dict[T, int]:
    """The same for records of these sizes: `limit_bytes` together, as far as sizes are as estimated.

    One record at least of each that waits, or a large one would never be read.
    """
    sizes = {each: max(1, round(count * record_bytes[each])) for each, count in waiting.items() if count > 0}
    taken = shares(sizes, limit_bytes)
    return {each: min(waiting[each], max(1, int(taken.get(each, 0) / max(1.0, record_bytes[each])))) for each in sizes}
