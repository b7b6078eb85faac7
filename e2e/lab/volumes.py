"""`python -m e2e.lab.volumes KUBECONFIG FOLDER`: gives each claim of storage class `lab` a folder of this machine.

One of the lab's daemons. Kubernetes has a provisioner of folders of its own, but what that makes can only be written by
root. Follows what kubectl's watch of claims says; a claim that goes takes its volume and its folder along. What goes
while the watch is broken off stays until the lab is taken down.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml

from e2e.lab.home import program

STORAGE_CLASS = "lab"
_AGAIN_S = 1
_WATCH = ("get", "persistentvolumeclaims", "--all-namespaces", "--watch", "--output-watch-events", "--output=json")


def storage_class() -> str:
    """The manifest of the class: that of every claim that names none."""
    document = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "headrace.io/lab",
        "reclaimPolicy": "Retain",
        "allowVolumeExpansion": True,
    }
    return yaml.safe_dump(document, sort_keys=False)


def volume(claim: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The PersistentVolume for this claim, bound to it alone."""
    metadata, spec = claim["metadata"], claim["spec"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name_of(claim)},
        "spec": {
            "storageClassName": STORAGE_CLASS,
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder / name_of(claim)), "type": "Directory"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                **{key: metadata[key] for key in ("namespace", "name", "uid")},
            },
        },
    }


def name_of(claim: dict[str, Any]) -> str:
    return f"lab-{claim['metadata']['uid']}"


def documents(chunks: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a text that comes in pieces, one after the other."""
    decoder, text = json.JSONDecoder(), ""
    for chunk in chunks:
        text = (text + chunk).lstrip()
        while text:
            try:
                found, end = decoder.raw_decode(text)
            except json.JSONDecodeError:
                break
            yield found
            text = text[end:].lstrip()


class Provisioner:
    """Carries out what the watch says, by kubectl. Both acts may be repeated."""

    def __init__(self, kubectl: list[str], folder: Path) -> None:
        self._kubectl = kubectl
        self._folder = folder
        self._given: set[str] = set()

    def follow(self) -> None:
        """Until the watch ends, as when the API server does."""
        with subprocess.Popen([*self._kubectl, *_WATCH], stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            for event in documents(watch.stdout):
                if event["type"] == "ERROR":  # Its object is a Status: the API server ends, or has forgotten too much.
                    sys.stderr.write(f"{event['object'].get('message')}\n")
                    watch.terminate()
                    return
                self._take(event["type"], event["object"])

    def _take(self, kind: str, claim: dict[str, Any]) -> None:
        name = name_of(claim)
        if claim["spec"].get("storageClassName") != STORAGE_CLASS:
            return
        if kind == "DELETED":
            self._run("delete", "persistentvolume", name, "--ignore-not-found", "--wait=false")
            shutil.rmtree(self._folder / name, ignore_errors=True)
            self._given.discard(name)
        elif name not in self._given:
            (self._folder / name).mkdir(parents=True, exist_ok=True)
            (self._folder / name).chmod(0o777)  # Whoever the pod runs as.
            if self._run("apply", "-f", "-", stdin=json.dumps(volume(claim, self._folder))):
                self._given.add(name)

    def _run(self, *arguments: str, stdin: str = "") -> bool:
        return subprocess.run([*self._kubectl, *arguments], input=stdin, text=True, check=False).returncode == 0


def main(kubeconfig: str, folder: str) -> NoReturn:
    provisioner = Provisioner([str(program("kubectl")), f"--kubeconfig={kubeconfig}"], Path(folder))
    while True:
        provisioner.follow()
        time.sleep(_AGAIN_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
