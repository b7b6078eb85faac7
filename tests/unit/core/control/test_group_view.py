from headrace.core.control.group_view import PAUSE_MS_MAX, GroupPatience

ALL = {"a", "b"}


def test_should_leave_a_group_alone_for_longer_with_each_failure() -> None:
    patience, now_ms, pauses = GroupPatience(), 0, []
    for _ in range(12):
        patience.failed("a", now_ms)
        assert patience.held(ALL, now_ms) == {"a"}
        until_ms = patience.next_ms(now_ms)
        assert until_ms is not None
        pauses.append(until_ms - now_ms)
        now_ms = until_ms
        assert patience.held(ALL, now_ms) == frozenset()
        assert patience.next_ms(now_ms) is None
    assert pauses[:4] == [100, 300, 700, 1500]
    assert pauses[-1] == PAUSE_MS_MAX
    assert patience.stuck == 1
    patience.landed("a")
    assert patience.stuck == 0
    patience.failed("a", now_ms)
    assert patience.next_ms(now_ms) == now_ms + 100


def test_should_not_pause_after_one_conflict() -> None:
    patience = GroupPatience()
    patience.overtaken("a", 0)
    assert patience.held(ALL, 0) == frozenset()
    patience.overtaken("a", 0)
    assert patience.held(ALL, 0) == {"a"}
    assert patience.stuck == 0, "others write it"


def test_should_pause_at_once_after_a_refusal() -> None:
    patience = GroupPatience()
    patience.refused("a", 0)
    assert patience.held(ALL, PAUSE_MS_MAX - 1) == {"a"}
    assert patience.held(ALL, PAUSE_MS_MAX) == frozenset()
    assert patience.stuck == 1


def test_should_forget_what_is_gone_or_long_past() -> None:
    patience = GroupPatience()
    patience.refused("a", 0)
    patience.failed("b", 0)
    patience.held({"b"}, 0)
    assert (patience.stuck, patience.next_ms(0)) == (1, 100)
    patience.held({"b"}, 100 + PAUSE_MS_MAX)
    assert patience.stuck == 0
