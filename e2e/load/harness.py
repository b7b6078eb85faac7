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

from e2e.load.verdict import MARK, Verdict
from e2e.release import Release, security
from e2e.waiting import wait_for

_CHECKOUT = Path(__file__).parents[2]
_MODULES = (
    "e2e/load/verdict.py",
    *(f"tests/faults/{name}.py" for name in ("clients", "figures", "history", "journal", "judge")),
    *(f"tests/support/{name}.py" for name in ("hardy_clients", "history", "world")),
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

    def delete(self, wait: str) -> None:
        """The pod and the topic, where they are; the topic to its end."""
        pod = (f"pod/{self.pod}", f"configmap/{self.pod}")
        self.release.kubectl("delete", *pod, "--grace-period=1", "--ignore-not-found", wait)
        self.release.users("delete", f"topic/{self.topic}", "--ignore-not-found", "--timeout=120s")

    def end(self) -> Verdict:
        """Stop the clients -> the verdict."""
        self.release.execute(self.pod, "touch", "/tmp/load/stop")

        def phase() -> str:
            found = self.release.kubectl("get", "pod", self.pod, "--output=jsonpath={.status.phase}")
            return found if found in ("Succeeded", "Failed") else ""

        wait_for(phase, f"{self.pod} has judged", _END_S)
        said = self.release.kubectl("logs", self.pod).splitlines()
        verdicts = [line for line in said if line.startswith(MARK)]
        if len(verdicts) != 1:
            raise AssertionError("the load broke:\n" + "\n".join(said[-30:]))
        return Verdict.parse(verdicts[0])


@contextmanager
def under_load(release: Release, topic: str, partitions: int = 3, **spec: Any) -> Iterator[Load]:
    """A new topic of three replicas that clients use meanwhile. At its end the topic is gone, and the pod goes.

    What a run that broke off has left of it is deleted first.
    """
    load = Load(release, topic, partitions)
    load.delete("--wait=true")
    release.create_topic(topic, partitions=partitions, replicas=3, **spec)
    try:
        release.apply(_config_map(load), _pod(load))
        release.kubectl("wait", "--for=condition=Ready", f"pod/{load.pod}", "--timeout=60s")
        load.wait_progress()
        yield load
    finally:
        load.delete("--wait=false")


def program() -> bytes:
    """All that runs in the pod beside what the image has, as Python runs it: a zip file with a `__main__`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(_CHECKOUT / "e2e/load/in_pod.py", "__main__.py")
        for folder in ("e2e", "e2e/load", "tests", "tests/faults", "tests/support"):
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
