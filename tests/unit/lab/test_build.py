"""The lab builds what is missing, and only that."""

from pathlib import Path

import pytest

from e2e.lab.build import build_missing
from e2e.lab.errors import LabError
from e2e.lab.home import is_built, lab_home, program
from e2e.lab.programs import ETCD, KUBERNETES, MODULES


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    return tmp_path


def put_program(home: Path, name: str, says: str) -> None:
    path = home / "bin" / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("says", "built"),
    [
        ("etcd Version: 3.6.5", True),
        ("CoreDNS-3.6.5\nlinux/amd64, go1.26.8", True),
        ("containerd github.com/containerd/containerd/v2 v3.6.5", True),
        ("etcd Version: 3.6.50", False),
        ("etcd Version: 13.6.5", False),
        ("etcd Version: 3.5.0", False),
    ],
)
def test_should_believe_a_program_about_its_own_version(home: Path, says: str, *, built: bool) -> None:
    put_program(home, "etcd", says)
    assert is_built(ETCD, ETCD.programs[0]) is built


def test_should_build_nothing_when_all_is_there(home: Path) -> None:
    for module in MODULES:
        for wanted in module.programs:
            put_program(home, wanted.name, f"Version: {module.version} ((Unknown))")
    said: list[str] = []
    build_missing(said.append)
    assert len(said) == len(MODULES)
    assert all(line.endswith(": already built") for line in said)
    assert "kube-apiserver, kubectl, kube-controller-manager" in said[1]


def test_should_say_what_to_install_when_there_is_no_go(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(LabError, match=r"no `go` on the PATH: install Go 1\.26"):
        build_missing(lambda line: None)


def test_should_say_how_to_get_a_program_that_is_not_built(home: Path) -> None:
    assert lab_home() == home
    with pytest.raises(LabError, match="run: make lab-build"):
        program("kubectl")


def test_should_know_a_package_for_every_program() -> None:
    for module in MODULES:
        assert all(program.package.startswith(module.path) for program in module.programs)
    assert KUBERNETES.staging == ("k8s.io/", "v0.36.3")
