"""The time that this machine is waited for: longer where it is slow or busy, bounded, the same in all processes."""

import os

import pytest

from tests.support import patience
from tests.support.patience import FACTOR_MAX, FACTOR_MIN, factor, factor_of, patient

CALM_S = patience._CALM_S


@pytest.mark.parametrize(
    ("work_s", "load", "processors", "expected"),
    [
        (CALM_S, 1, 2, FACTOR_MIN),
        (CALM_S / 9, 0.0, 64, FACTOR_MIN),
        (3 * CALM_S, 1, 2, 3 * FACTOR_MIN),
        (CALM_S, 10, 2, 5 * FACTOR_MIN),
        (3 * CALM_S, 10, 2, 5 * FACTOR_MIN),
        (1_000 * CALM_S, 1, 2, FACTOR_MAX),
    ],
)
def test_should_wait_longer_when_the_machine_is_slow_or_busy(
    work_s: float, load: float, processors: int, expected: float
) -> None:
    assert factor_of(work_s, load, processors) == pytest.approx(expected)


def test_should_take_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(patience._NAME, "7.5")
    assert (factor(), patient(10)) == (7.5, 75)


def test_should_tell_its_children_what_it_has_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(patience._NAME)
    measured = factor(workers=1_000)
    assert measured == FACTOR_MAX
    assert (factor(), float(os.environ[patience._NAME])) == (measured, measured)


def test_should_give_every_test_a_limit_of_this_machine(request: pytest.FixtureRequest) -> None:
    limit = request.node.get_closest_marker("timeout")
    assert limit is not None
    assert limit.args == (patient(float(request.config.getini("timeout"))),)


@pytest.mark.timeout(1_000)
def test_should_make_a_tests_own_limit_longer(request: pytest.FixtureRequest) -> None:
    limit = request.node.get_closest_marker("timeout")
    assert limit is not None
    assert limit.args == (patient(1_000),)
