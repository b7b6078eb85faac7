"""The lab's volumes follow what kubectl's watch prints, also where that is an error."""

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.lab.volumes import STORAGE_CLASS, Provisioner, documents

GONE = {"type": "ERROR", "object": {"kind": "Status", "message": "the server is shutting down", "code": 410}}


def added(uid: str) -> dict[str, Any]:
    return {
        "type": "ADDED",
        "object": {
            "metadata": {"namespace": "default", "name": f"data-{uid}", "uid": uid},
            "spec": {
                "storageClassName": STORAGE_CLASS,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    }


def kubectl_saying(folder: Path, *events: dict[str, Any]) -> Path:
    """A program that prints these events and then stays, as a watch does; what it is to apply goes to `applied`."""
    path = folder / "kubectl"
    path.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = apply ]; then exec cat >> {folder}/applied; fi\n'
        f"cat <<'EVENTS'\n{''.join(json.dumps(event) for event in events)}\nEVENTS\n"
        "exec sleep 60\n"
    )
    path.chmod(0o755)
    return path


def test_should_read_documents_when_they_come_in_pieces() -> None:
    text = '{"a": 1}\n{"b": {"c": 2}}\n'
    assert list(documents(text)) == [{"a": 1}, {"b": {"c": 2}}] == list(documents([text]))


def test_should_end_the_watch_when_it_says_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kubectl = kubectl_saying(tmp_path, added("a"), GONE)
    Provisioner([str(kubectl)], tmp_path / "volumes").follow()
    assert (tmp_path / "volumes" / "lab-a").is_dir()
    assert json.loads((tmp_path / "applied").read_text())["metadata"]["name"] == "lab-a"
    assert "the server is shutting down" in capfd.readouterr().err
