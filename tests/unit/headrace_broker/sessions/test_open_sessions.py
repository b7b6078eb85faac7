"""How the sessions of a broker share what their clients may push before there is room for it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from headrace.core.errors import HeadraceError, ThrottledError
from headrace.core.limits import H2_REQUEST_WINDOW_BYTES, H2_STREAM_WINDOW_BYTES
from headrace_broker.sessions.open_sessions import SESSION_WINDOWS_PART, SESSIONS_MAX, OpenSessions

MIB = 1 << 20


class Pushed:
    channel_count = 0
    is_pending = False

    def __init__(self) -> None:
        self.windows: list[int] = []

    def drain(self, why: HeadraceError) -> None: ...

    def size_window(self, window: int) -> None:
        self.windows.append(window)


@contextmanager
def opened(sessions: OpenSessions, count: int) -> Iterator[list[Pushed]]:
    pushed = [Pushed() for _ in range(count)]
    with ExitStack() as stack:
        for each in pushed:
            stack.enter_context(sessions.one_more(each, None))
        yield pushed


async def test_should_give_each_session_its_part_of_what_may_be_pushed() -> None:
    sessions = OpenSessions.for_memory(512 * MIB)
    with opened(sessions, 1) as (first,):
        assert first.windows == [H2_STREAM_WINDOW_BYTES]
        with opened(sessions, 99) as others:
            windows = [each.windows[-1] for each in (first, *others)]
            assert set(windows) == {256 << 10}, "the same for all, those that were there before included"
            assert sum(windows) <= 512 * MIB // SESSION_WINDOWS_PART
            assert len(first.windows) == 6, "told by powers of two"
        assert first.windows[-1] == H2_STREAM_WINDOW_BYTES, "it grows as others leave"


async def test_should_take_no_more_sessions_than_have_room_for_the_smallest_window() -> None:
    assert OpenSessions.for_memory(512 * MIB).places.most == SESSIONS_MAX
    few = OpenSessions.for_memory(16 * MIB)
    with opened(few, 128) as pushed:
        assert {each.windows[-1] for each in pushed} == {H2_REQUEST_WINDOW_BYTES}
        with pytest.raises(ThrottledError, match="128 sessions"), few.one_more(Pushed(), None):
            raise AssertionError("one too many")
