"""What runs just now, as clients and `headrace dev status` read it.

At most one supervisor, and a lock that goes with its process.
"""

import os
from pathlib import Path

import pytest

from headrace.dev.supervisor.errors import AlreadyRunningError, NotRunningError
from headrace.dev.supervisor.layout import Layout, lock_file, state_file
from headrace.dev.supervisor.state import (
    BrokerProcessState,
    DevState,
    hold_lock,
    lock_holder,
    read_state,
    remove_state,
    write_state,
)

STATE = DevState(
    "/data/kubeconfig", "http://127.0.0.1:9700", 10, None, (BrokerProcessState(0, 11, "http://b", "/data/broker-0"),)
)


def test_should_have_the_form_of_the_contract() -> None:
    assert STATE.to_json() == {
        "kubeconfig": "/data/kubeconfig",
        "api": {"url": "http://127.0.0.1:9700", "pid": 10},
        "operator": {"pid": None},
        "brokers": [{"id": 0, "pid": 11, "url": "http://b", "data": "/data/broker-0"}],
    }
    assert DevState.parse(STATE.to_json()) == STATE


def test_should_tell_what_runs_while_a_supervisor_holds_the_home(tmp_path: Path) -> None:
    with hold_lock(lock_file(tmp_path), "home"):
        write_state(tmp_path, STATE)
        assert read_state(tmp_path) == STATE


def test_should_not_believe_a_state_that_a_killed_supervisor_left_behind(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)
    with pytest.raises(NotRunningError, match="headrace dev --detach"):
        read_state(tmp_path)


def test_should_say_that_it_is_just_starting_when_there_is_no_state_yet(tmp_path: Path) -> None:
    with hold_lock(lock_file(tmp_path), "home"), pytest.raises(NotRunningError, match="just starting or stopping"):
        read_state(tmp_path)


def test_should_remove_a_state_that_may_not_be_there(tmp_path: Path) -> None:
    write_state(tmp_path, STATE)
    remove_state(tmp_path)
    remove_state(tmp_path)
    assert not state_file(tmp_path).exists()


def test_should_give_each_process_its_own_port_and_place() -> None:
    layout = Layout(Path("/data"), 9700)
    assert (layout.api_url, layout.broker_url(2)) == ("http://127.0.0.1:9700", "http://127.0.0.1:9703")
    assert layout.broker_data(2) == Path("/data/broker-2")


def test_should_name_the_holder_while_the_lock_is_held(tmp_path: Path) -> None:
    path = tmp_path / "home" / "dev.lock"
    with hold_lock(path, "home"):
        assert lock_holder(path) == os.getpid()
    assert lock_holder(path) is None
    assert path.read_text() == "", "a pid that is nobody's any more must not be signalled"


def test_should_refuse_a_second_supervisor_and_say_how_to_stop_the_first(tmp_path: Path) -> None:
    path = tmp_path / "dev.lock"
    with (
        hold_lock(path, "home"),
        pytest.raises(AlreadyRunningError, match=rf"as process {os.getpid()};.*headrace dev stop"),
        hold_lock(path, "home"),
    ):
        pass


def test_should_say_that_nobody_holds_it_when_there_was_never_one(tmp_path: Path) -> None:
    assert lock_holder(tmp_path / "dev.lock") is None
