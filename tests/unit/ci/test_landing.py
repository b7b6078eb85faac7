"""The stages that a landing runs: those that judge what it changes, those whose turn it is, those that always run."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from landing import (
    CACHED,
    PAUSE_S,
    WINDOW_S,
    Landing,
    Plan,
    Stage,
    UnknownLandingError,
    landing_of,
    plan,
    stages,
    stretches,
)

from tests.support.tools import cannot_run

CHECKOUT = Path(__file__).parents[3]
ROWS = (
    Stage("test", "make test", "main"),
    Stage("readme", "make e2e-readme", "main"),
    Stage("e2e", "make e2e", "main", instead="readme", judges=("charts/",)),
    Stage("soak", "make soak", "main", judges=("broker/", "headrace/client/")),
    Stage("bench", "make bench", "last", judges=("bench/",)),
)


def names(chosen: Plan) -> list[str]:
    return [stage.name for stage in chosen.stages]


def landing_with(*changed: str, first: int = 1, last: int = 2) -> Landing:
    return Landing(first, last, changed)


def test_should_run_a_long_form_when_what_it_judges_has_changed() -> None:
    chosen = plan(ROWS, landing_with("README.md", "broker/headrace_broker/main.py"))
    assert names(chosen) == ["test", "readme", "soak", "bench"]
    assert chosen.why["soak"] == "broker/headrace_broker/main.py changed"
    assert chosen.why["bench"] == "its turn"
    assert chosen.left_out == ("e2e",)


def test_should_not_run_what_a_long_form_contains() -> None:
    assert names(plan(ROWS, landing_with("charts/headrace/values.yaml", last=1))) == ["test", "e2e"]


@pytest.mark.parametrize("asked", [{"landing": None}, {"landing": landing_with(last=1), "everything": True}])
def test_should_run_everything_when_asked_or_when_the_landing_is_not_known(asked: dict[str, object]) -> None:
    chosen = plan(ROWS, **asked)  # type: ignore[arg-type]
    assert names(chosen) == ["test", "e2e", "soak", "bench"]
    assert chosen.left_out == ()


def ways_to_cut(stretches_in_all: int, longest: int) -> Iterator[list[Landing]]:
    """Landings of 1 to `longest` stretches each, one after the other."""
    for step in range(1, longest + 1):
        cuts = range(0, stretches_in_all, step)
        yield [Landing(first, first + step, ()) for first in cuts]


def test_should_run_each_long_form_and_make_each_cached_thing_anew_within_ten_landings() -> None:
    rows = stages()
    for landings in ways_to_cut(60, 5):
        for start in range(len(landings) - 10):
            plans = [plan(rows, landing) for landing in landings[start : start + 10]]
            assert {name for each in plans for name in each.why} == {row.name for row in rows if row.judges}
            assert {name for each in plans[:8] for name in each.cold} == set(CACHED)


def test_should_make_all_from_nothing_when_asked() -> None:
    assert plan(ROWS, landing_with(), cold=True).cold == CACHED
    assert plan(ROWS, None).cold == ()


def test_should_refuse_a_lane_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="stage x: lane 'side' is none of first, main, beside, last"):
        Stage.read({"name": "x", "run": "true", "lane": "side"})


def test_should_count_stretches_by_their_pauses() -> None:
    assert stretches([]) == 0
    assert stretches([0, 60, PAUSE_S, 2 * PAUSE_S + 60, 3 * PAUSE_S]) == 2


# -- git

START = 1_700_000_000


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository on the branch `main`; no variable of this process says anything about it."""
    for name in ("CI_BASE", *(name for name in os.environ if name.startswith("GIT_"))):
        monkeypatch.delenv(name, raising=False)
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    return tmp_path


def git(checkout: Path, *arguments: str, time: int = START) -> str:
    settings = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
    times = {"GIT_COMMITTER_DATE": f"{time} +0000", "GIT_AUTHOR_DATE": f"{time} +0000"}
    command = ["git", "-C", str(checkout), *settings, *arguments]
    told = subprocess.run(command, env={**os.environ, **times}, capture_output=True, text=True, check=True)
    return told.stdout.strip()


def commit(checkout: Path, name: str, time: int) -> str:
    (checkout / name).write_text(name)
    git(checkout, "add", name)
    git(checkout, "commit", "--quiet", "--message", name, time=time)
    return git(checkout, "rev-parse", "HEAD")


def test_should_see_the_commits_of_the_last_hours_as_the_landing(checkout: Path) -> None:
    commit(checkout, "old", START)
    commit(checkout, "first", START + WINDOW_S)
    commit(checkout, "second", START + WINDOW_S + 60)
    assert landing_of(checkout) == Landing(1, 2, ("first", "second"))


def test_should_take_another_base_when_one_is_named(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(checkout, "old", START)
    monkeypatch.setenv("CI_BASE", commit(checkout, "first", START + 60))
    commit(checkout, "second", START + 120)
    assert landing_of(checkout) == Landing(0, 1, ("second",))


def test_should_see_what_an_old_branch_brings_when_it_is_merged_now(checkout: Path) -> None:
    commit(checkout, "old", START)
    git(checkout, "switch", "--quiet", "--create", "branch")
    commit(checkout, "of the branch", START + 60)
    git(checkout, "switch", "--quiet", "main")
    git(checkout, "merge", "--quiet", "--no-ff", "--message", "merged", "branch", time=START + 2 * WINDOW_S)
    assert landing_of(checkout) == Landing(1, 2, ("of the branch",))


def test_should_see_a_file_that_has_moved_where_it_was(checkout: Path) -> None:
    commit(checkout, "before", START)
    git(checkout, "mv", "before", "after")
    git(checkout, "commit", "--quiet", "--message", "moved", time=START + WINDOW_S)
    assert set(landing_of(checkout).changed) == {"before", "after"}


def test_should_say_why_a_landing_is_not_known(tmp_path: Path, checkout: Path) -> None:
    commit(checkout, "all", START)
    with pytest.raises(UnknownLandingError, match="no commit is older than 4 hours"):
        landing_of(checkout)
    commit(checkout, "later", START + WINDOW_S)
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{checkout}", str(tmp_path / "shallow"))
    with pytest.raises(UnknownLandingError, match="this clone is shallow"):
        landing_of(tmp_path / "shallow")
    with pytest.raises(UnknownLandingError, match="nowhere"):
        landing_of(tmp_path / "nowhere")


def test_should_refuse_a_base_that_there_is_not(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(checkout, "all", START)
    monkeypatch.setenv("CI_BASE", "nothing")
    with pytest.raises(ValueError, match="CI_BASE=nothing is no commit of this clone"):
        landing_of(checkout)


# -- the table


def test_should_name_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    for stage in stages():
        for command in filter(None, (stage.run, stage.whole)):
            program, target, *_ = command.split()
            assert program == "make"
            assert target in targets, f"stage {stage.name}"


def test_should_judge_paths_that_are_there() -> None:
    if not (CHECKOUT / ".git").exists():
        cannot_run("these sources are no git checkout")
    tracked = git(CHECKOUT, "ls-files").splitlines()
    for stage in stages():
        for path in stage.judges:
            assert any(each.startswith(path) for each in tracked), f"stage {stage.name}: {path} is not there any more"


def test_should_name_stages_of_the_table_only() -> None:
    rows = {stage.name: stage for stage in stages()}
    assert len(rows) == len(stages())
    for stage in rows.values():
        if stage.after:
            assert {rows[stage.after].lane, stage.lane} == {"main", "beside"}
        if stage.instead:
            assert not rows[stage.instead].judges
