"""Pods and a StatefulSet that may not be seen, or are not what they should be: no pass fails for them."""

from typing import Any, cast

import pytest

from headrace.kube.client import Listing
from headrace.kube.errors import ApiError, ApiUnavailableError, ForbiddenError, NotFoundError, UnreadableObjectError
from headrace_operator.observer import Workload


class Api:
    def __init__(self, error: ApiError) -> None:
        self.error = error

    async def get(self, *_: object) -> None:
        raise self.error

    async def list(self, *_: object, **__: object) -> Listing[Any]:
        return Listing((), "1", left_out=2)


@pytest.mark.parametrize(
    ("error", "unreadable", "said"),
    [
        (UnreadableObjectError("StatefulSet default/main cannot be read, mend it"), 1, 1),
        (ForbiddenError("no"), 0, 1),
        (NotFoundError("there is none"), 0, 0),
    ],
)
async def test_should_do_without_what_tells_nothing_and_say_so_once(
    error: ApiError, unreadable: int, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    workload = Workload(cast("Any", Api(error)), "default", "main")
    for number in range(1, 3):
        assert await workload.broker_set() is None
        assert workload.unreadable == number * unreadable
    assert sum(record.levelname == "ERROR" for record in caplog.records) == said


async def test_should_count_pods_that_cannot_be_read() -> None:
    workload = Workload(cast("Any", Api(NotFoundError("none"))), "default", "main")
    assert await workload.pods() == ()
    assert workload.unreadable == 2


async def test_should_not_take_silence_for_an_answer() -> None:
    with pytest.raises(ApiUnavailableError):
        await Workload(cast("Any", Api(ApiUnavailableError("away"))), "default", "main").broker_set()
