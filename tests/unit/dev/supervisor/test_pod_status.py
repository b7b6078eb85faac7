"""What a Pod says of a process: written as a kubelet does, and read back."""

import pytest

from headrace.dev.supervisor.pod_status import Exit, PodStatus, parse_pod_status

STARTED, ENDED, AGAIN = "2026-11-21T09:00:00Z", "2026-11-21T09:05:00Z", "2026-11-21T09:05:01Z"
KILLED = Exit.of_process(-9, STARTED, ENDED)
TERMINATED = {"terminated": {"exitCode": 137, "reason": "Error", "startedAt": STARTED, "finishedAt": ENDED}}


@pytest.mark.parametrize(
    ("status", "state", "last"),
    [
        (PodStatus(ready=True, restarts=0, started_at=STARTED), {"running": {"startedAt": STARTED}}, {}),
        (PodStatus(ready=False, restarts=0, started_at=STARTED, running=False, exited=KILLED), TERMINATED, {}),
        (
            PodStatus(ready=True, restarts=1, started_at=AGAIN, exited=KILLED),
            {"running": {"startedAt": AGAIN}},
            TERMINATED,
        ),
        (
            PodStatus(ready=False, restarts=3, started_at=STARTED, running=False, exited=KILLED, backing_off=True),
            {"waiting": {"reason": "CrashLoopBackOff"}},
            TERMINATED,
        ),
        (
            PodStatus(ready=False, restarts=0, started_at=STARTED, running=False),
            {"waiting": {"reason": "ContainerCreating"}},
            {},
        ),
    ],
)
def test_should_tell_a_life_and_its_end_as_a_kubelet_does(
    status: PodStatus, state: dict[str, object], last: dict[str, object]
) -> None:
    written = status.to_object()
    (container,) = written["containerStatuses"]
    assert (container["state"], container["lastState"], container["restartCount"]) == (state, last, status.restarts)
    assert parse_pod_status(written) == status


def test_should_say_since_when_a_pod_is_not_ready() -> None:
    conditions = PodStatus(ready=False, restarts=0, started_at=STARTED, running=False, exited=KILLED).to_object()[
        "conditions"
    ]
    (ready,) = [each for each in conditions if each["type"] == "Ready"]
    assert (ready["status"], ready["lastTransitionTime"]) == ("False", ENDED)


def test_should_call_a_stop_without_an_error_completed() -> None:
    ended = PodStatus(
        ready=False, restarts=0, started_at=STARTED, running=False, exited=Exit.of_process(0, STARTED, ENDED)
    )
    (container,) = ended.to_object()["containerStatuses"]
    assert container["state"]["terminated"]["reason"] == "Completed"


def test_should_know_nothing_of_a_pod_that_nobody_has_spoken_of() -> None:
    assert parse_pod_status({"phase": "Pending"}) is None
