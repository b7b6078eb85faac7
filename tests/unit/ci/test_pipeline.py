"""Stages as they run: in two lanes, told apart by their exit codes, ended by a signal with all that they started."""

import os
import signal
import threading
from pathlib import Path

import pytest
from landing import Plan, Stage
from pipeline import Pipeline, environment_of

from tests.support.waiting import wait_for


def pipeline_of(logs: Path, *stages: Stage, whole: bool = False) -> Pipeline:
    return Pipeline(Plan(stages, (), {}, ()), dict(os.environ), logs, whole)


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_should_pass_when_all_stages_pass(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pipeline = pipeline_of(
        tmp_path,
        Stage("setup", "echo made", "first"),
        Stage("test", "echo tried", "main", after="sim"),
        Stage("sim", "echo played; nice", "beside"),
        Stage("bench", "echo measured", "last"),
    )
    assert pipeline.run()
    said = capfd.readouterr().out
    # A companion's output comes when it has ended, before the next stage that waits for it.
    places = [said.index(word) for word in ("made", "played", "tried", "measured", "=== summary")]
    assert places == sorted(places)
    assert (tmp_path / "sim.log").read_text() == "played\n19\n"


def test_should_go_on_and_fail_when_a_stage_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stages = (
        Stage("test", "echo begun; seq 100; echo lost >&2; exit 3", "main"),
        Stage("chart", "echo drawn", "main"),
    )
    assert not pipeline_of(tmp_path, *stages).run()
    before, _, summary = capfd.readouterr().out.partition("=== summary")
    assert "drawn" in before
    assert "FAILED (exit code 3)" in summary
    # The end says why.
    assert summary.endswith("\n99\n100\nlost\n")
    assert "begun" in before
    assert "begun" not in summary


def test_should_end_with_a_stage_when_what_that_left_keeps_its_output(tmp_path: Path) -> None:
    left = tmp_path / "left"
    assert pipeline_of(tmp_path, Stage("test", f"sleep 600 & echo $! >{left}", "main")).run()
    os.kill(int(left.read_text()), signal.SIGKILL)


def test_should_fail_when_a_companion_fails(tmp_path: Path) -> None:
    assert not pipeline_of(tmp_path, Stage("sim", "exit 1", "beside")).run()


def test_should_fail_when_a_companion_cannot_begin(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    nowhere = tmp_path / "nowhere"
    stages = (
        Stage("images", "true", "beside"),
        Stage("sim", "true", "beside"),
        Stage("e2e", "true", "main", after="images"),
    )
    assert not pipeline_of(nowhere, *stages).run()
    assert "images: cannot be started: [Errno 2] No such file or directory" in capfd.readouterr().out


def test_should_stop_when_what_all_need_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert not pipeline_of(tmp_path, Stage("setup", "false", "first"), Stage("test", "echo tried", "main")).run()
    assert "tried" not in capfd.readouterr().out


def test_should_run_long_forms_in_full_when_all_of_them_is_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert pipeline_of(tmp_path, Stage("soak", "echo short", "main", whole="echo long"), whole=True).run()
    assert "short" not in capfd.readouterr().out


def test_should_end_all_that_runs_when_it_is_stopped(tmp_path: Path) -> None:
    pipeline = pipeline_of(
        tmp_path,
        Stage("test", f"echo $$ >{tmp_path}/main; sleep 600", "main"),
        Stage("next", f"touch {tmp_path}/next", "main"),
        Stage("sim", f"echo $$ >{tmp_path}/beside; sleep 600 & wait", "beside"),
    )
    running = threading.Thread(target=pipeline.run, daemon=True)
    running.start()
    pids = [tmp_path / "main", tmp_path / "beside"]
    wait_for(lambda: all(path.exists() and path.read_text() for path in pids), "both lanes run")
    pipeline.stop()
    wait_for(lambda: not running.is_alive(), "the run has ended")
    wait_for(lambda: not any(is_there(int(path.read_text())) for path in pids), "nothing of them is left")
    assert not (tmp_path / "next").exists()


def test_should_forget_what_is_to_be_made_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    for name in ("PIP_NO_CACHE_DIR", "GOMODCACHE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("bin", "images", "wheels", "run"):
        (tmp_path / name).mkdir()
    assert not {"PIP_NO_CACHE_DIR", "GOMODCACHE"} & environment_of([]).keys()
    assert environment_of(["wheels"])["PIP_NO_CACHE_DIR"] == "1"
    assert environment_of(["programs"])["GOMODCACHE"] != str(Path.home() / "go" / "pkg" / "mod")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "run"]
