"""Ctrl-C at any point of the SDK's own code, one after the other: SIGINT is raised where CPython would look for it.

That is where a function begins or a generator goes on, behind each call, and where a loop goes round again; not between
two plain assignments. What Python's own library does by itself (`threading.Condition`) is left out: it is not safe from
interrupts, and cannot be made so here. Used in the main thread only, as signals are.
"""

import dis
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any, Self, TypeAlias

import headrace
from headrace import Record

_SDK = str(Path(headrace.__file__).parent)
_HOLDS = str(Path(headrace.__file__).parent / "http2" / "interrupts.py")
_RECORD = Record.__new__.__code__
Point: TypeAlias = tuple[CodeType, int]
"""Before an instruction; -1 where a function begins, or a generator goes on."""


class Points:
    """A context in which the points that are passed are seen: with `at`, those of the same function.

    An interrupt strikes when the one that `at` names is passed so many times, or when `after` have been passed.
    """

    def __init__(self, at: tuple[Point, int] | None = None, *, after: int | None = None) -> None:
        self.passed: dict[Point, int] = {}
        self._left = after
        self.count = 0
        """Of all that were passed."""
        self.struck_at = ""
        self._at = at

    @property
    def has_struck(self) -> bool:
        return bool(self.struck_at)

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not _is_sdk(frame.f_code) or (self._at is not None and frame.f_code is not self._at[0][0]):
            frame.f_trace = None  # A generator's may be another's, from before. To be traced takes ten times as long.
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "call":
            self._pass((frame.f_code, -1))
        return self._step

    def _step(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode" and frame.f_lasti in _checked(frame.f_code):
            self._pass((frame.f_code, frame.f_lasti))
        return self._step

    def _pass(self, point: Point) -> None:
        times = self.passed[point] = self.passed.get(point, 0) + 1
        self.count += 1
        if self._left is not None:
            self._left -= 1
        if self._left == 0 or (point, times) == self._at:
            self.struck_at = f"{point[0].co_qualname} at {point[1]}"
            signal.raise_signal(signal.SIGINT)


def interrupt_at_each_point(prepare: Callable[[], object], work: Callable[[], object], random: Random) -> Iterator[str]:
    """Call `work` and interrupt it, each time at another point, which is told when it is over; `prepare` before each.

    The points are those that one call passes which is not interrupted; how often one has been passed by then is chance.
    """
    prepare()
    with Points() as seen:
        work()
    has_struck = False
    for point, times in seen.passed.items():
        prepare()
        points = Points((point, random.randint(1, times)))
        try:
            with points:
                work()
        except KeyboardInterrupt:
            assert points.has_struck, "another interrupt than this test's"
        has_struck |= points.has_struck
        yield f"{point[0].co_qualname} at {point[1]}{'' if points.has_struck else ', not struck'}"
    assert has_struck, "no interrupt has struck at all"


def interrupted(work: Callable[[], object], after: int) -> bool:
    """Call `work`, which is interrupted after so many points. False: it was done before."""
    points = Points(after=after)
    try:
        with points:
            work()
    except KeyboardInterrupt:
        assert points.has_struck, "another interrupt than this test's"
    return points.has_struck


def _is_sdk(code: CodeType) -> bool:
    return (code.co_filename.startswith(_SDK) and code.co_filename != _HOLDS) or code is _RECORD


@cache
def _checked(code: CodeType) -> frozenset[int]:
    """Offsets of the instructions before which CPython looks for signals."""
    checked, was_call = set(), False
    for instruction in dis.get_instructions(code):
        if was_call or instruction.opname.startswith("JUMP_BACKWARD"):
            checked.add(instruction.offset)
        was_call = instruction.opname.startswith("CALL")
    return frozenset(checked)
