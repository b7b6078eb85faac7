"""The lab's images are really built, whatever is cached: a tiny base by the real buildah, in a storage of its own."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from e2e.lab import images
from e2e.lab.errors import LabError
from tests.support.tools import cannot_run, require_tool

NAME = "localhost/headrace-test-base:1"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a base, and an empty LAB_HOME."""
    require_tool("buildah")
    if os.geteuid() != 0:
        cannot_run("building images needs root")
    monkeypatch.setenv("LAB_HOME", str(tmp_path / "lab"))
    (tmp_path / "lab").mkdir()
    folder = tmp_path / "base"
    folder.mkdir()
    (tmp_path / "hello").write_text("from the base\n")
    with tarfile.open(folder / "base.tar", "w") as made:
        made.add(tmp_path / "hello", "hello")
    return folder / "base.tar"


def containers(home: Path) -> list[str]:
    """The names of working containers that builds have left."""
    places = ("--root", home / "images" / "storage", "--runroot", home / "images" / "run")
    listed = subprocess.run(["buildah", *places, "containers", "--quiet"], capture_output=True, text=True, check=True)
    return listed.stdout.split()


def test_should_make_a_base_when_nothing_is_cached(archive: Path, tmp_path: Path) -> None:
    images.build_base(archive, NAME)
    assert images.exists(NAME)
    assert containers(tmp_path / "lab") == []


def test_should_leave_nothing_when_a_build_fails(archive: Path, tmp_path: Path) -> None:
    archive.unlink()
    with pytest.raises(LabError, match="buildah failed"):
        images.build_base(archive, NAME)
    assert not images.exists(NAME)
    assert containers(tmp_path / "lab") == []
