"""Starts the clients of `in_pod` in a pod of the cluster, looks how far they are, ends them and takes their verdict."""

import base64
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.release import Release, security
from e2e.waiting import wait_for

_CHECKOUT = Path(__file__).parents[2]
_MODULES = (
    *(f"tests/faults/{name}.py" for name in ("clients", "figures", "history", "journal", "judge")),
    *(f"tests/support/{name}.py" for name in ("hardy_clients", "history")),
)
_END_S = 400


@dataclass(frozen=True, slots=True)
class Load:
    """Clients of one topic, at work."""

    release: Release
    topic: str
    partitions: int

    @property
    def pod(self) -> str:
        return f"load-{self.topic}"

    def acknowledged(self) -> list[int]:
        """So many records of each partition, so far."""
        found: list[int] = json.loads(self.release.execute(self.pod, "cat", "/tmp/load/acknowledged") or "[]")
        return found

    def wait_progress(self, records: int = 20, timeout_s: float = 120) -> None:
        """Until so many more of each partition are acknowledged."""
        before = wait_for(self.acknowledged, "the load says how far it is")
        wanted = [count + records for count in before]

        def goes_on() -> bool:
            return all(count >= least for count, least in zip(self.acknowledged(), wanted, strict=True))

        wait_for(goes_on, f"{records} records of each partition of {self.topic} are acknowledged", timeout_s)

    def end(self) -> dict[str, Any]:
        """Stop the clients -> the verdict."""
        self.release.execute(self.pod, "touch", "/tmp/load/stop")

        def phase() -> str:
            found = self.release.kubectl("get", "pod", self.pod, "--output=jsonpath={.status.phase}")
            return found if found in ("Succeeded", "Failed") else ""

        wait_for(phase, f"{self.pod} has judged", _END_S)
        said = self.release.kubectl("logs", self.pod).strip().splitlines()
        try:
            verdict: dict[str, Any] = json.loads(said[-1])
        except (IndexError, ValueError):
            raise AssertionError("the load broke:\n" + "\n".join(said[-30:])) from None
        return verdict


@contextmanager
def under_load(release: Release, topic: str, partitions: int = 3, **spec: Any) -> Iterator[Load]:
    """A new topic of three replicas that clients use meanwhile. At its end the topic and the pod are gone."""
    release.create_topic(topic, partitions=partitions, replicas=3, **spec)
    load = Load(release, topic, partitions)
    release.apply(_config_map(load), _pod(load))
    try:
        release.kubectl("wait", "--for=condition=Ready", f"pod/{load.pod}", "--timeout=60s")
        load.wait_progress()
        yield load
    finally:
        release.kubectl("delete", f"pod/{load.pod}", f"configmap/{load.pod}", "--grace-period=1", "--ignore-not-found")
        release.users("delete", f"topic/{topic}", "--ignore-not-found", "--timeout=120s")


def program() -> bytes:
    """All that runs in the pod beside what the image has, as Python runs it: a zip file with a `__main__`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(_CHECKOUT / "e2e/load/in_pod.py", "__main__.py")
        for folder in ("tests", "tests/faults", "tests/support"):
            archive.writestr(f"{folder}/__init__.py", "")
        for name in _MODULES:
            archive.write(_CHECKOUT / name, name)
    return buffer.getvalue()


def _config_map(load: Load) -> dict[str, Any]:
    data = {"load.zip": base64.b64encode(program()).decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": load.pod}, "binaryData": data}


def _pod(load: Load) -> dict[str, Any]:
    container = {
        "name": "load",
        "image": load.release.image("broker"),
        "imagePullPolicy": load.release.pull_policy,
        "command": ["python", "/load/load.zip", load.topic, str(load.partitions), ",".join(load.release.servers(3))],
        "volumeMounts": [{"name": "load", "mountPath": "/load"}, {"name": "tmp", "mountPath": "/tmp"}],
        "securityContext": security(),
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "load", "configMap": {"name": load.pod}}, {"name": "tmp", "emptyDir": {}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": load.pod}, "spec": spec}
