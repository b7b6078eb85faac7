"""At most one supervisor, and a lock that goes with its process."""

import os
from pathlib import Path

import pytest

from headrace.dev.supervisor.errors import AlreadyRunningError
from headrace.dev.supervisor.state import hold_lock, lock_holder


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
