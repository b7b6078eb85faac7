"""A cluster as tests see it, and the lab as one that can be hurt.

`Cluster` is any cluster that a kubeconfig names. `Lab` is the one that runs on this machine: its node's processes, its
network and its API server are within reach, so tests can stop them.
"""

import fcntl
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.lab import network
from e2e.lab.errors import LabError
from e2e.lab.home import lab_home, program, run_folder
from e2e.lab.node import containerd_socket
from e2e.lab.packages import require_packages, require_root
from e2e.lab.processes import daemon
from e2e.lab.start import STARTED, Starting
from e2e.lab.teardown import take_down

_SHOWN_CHARACTERS = 4_000
"""The end of what a failed program printed, as an error shows it."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a kubeconfig gives. All commands raise LabError with what the program said."""

    kubeconfig: Path

    def kubectl(self, *arguments: str | Path, stdin: str = "") -> str:
        return _output([program("kubectl"), "--kubeconfig", self.kubeconfig, *arguments], stdin)

    def helm(self, *arguments: str | Path, helm_program: str = "helm") -> str:
        """Helm 3, or `helm4`."""
        return _output([program(helm_program), "--kubeconfig", self.kubeconfig, *arguments])


@dataclass(frozen=True, slots=True)
class Lab(Cluster):
    """The running lab. Pods and services are reached from this machine by their addresses."""

    def inside(self, *command: str | Path) -> str:
        """Run a command in the lab's network, as root."""
        return _output(network.inside(*command))

    def ctr(self, *arguments: str | Path) -> str:
        """containerd's own client."""
        socket = containerd_socket(run_folder())
        return _output([program("ctr"), "--address", socket, "--namespace", "k8s.io", *arguments])

    def stop_api(self) -> None:
        """The API server answers nobody from now on; connections stay open, as with a machine that hangs."""
        daemon("kube-apiserver").signal(signal.SIGSTOP)

    def resume_api(self) -> None:
        daemon("kube-apiserver").signal(signal.SIGCONT)

    def volume(self, claim: str, namespace: str = "default") -> Path:
        """The folder of this machine that a PersistentVolumeClaim has got."""
        where = ("--namespace", namespace, "--output=jsonpath={.spec.volumeName}")
        name = self.kubectl("get", "persistentvolumeclaim", claim, *where)
        path = self.kubectl("get", "persistentvolume", name, "--output=jsonpath={.spec.hostPath.path}")
        return Path(path)

    def pid_of_container(self, pod: str, namespace: str = "default", container: str = "") -> int:
        """The first process of a running container (the pod's first one, unless named), as this machine numbers it."""
        found = json.loads(self.kubectl("get", "pod", pod, "--namespace", namespace, "--output", "json"))
        for status in found["status"].get("containerStatuses", []):
            if container in ("", status["name"]) and "running" in status["state"]:
                return self._pid_of(status["containerID"].removeprefix("containerd://"))
        raise LabError(f"pod {namespace}/{pod} has no running container {container}".rstrip())

    def _pid_of(self, container_id: str) -> int:
        for line in self.ctr("tasks", "list").splitlines():
            match line.split():
                case [task, pid, _] if task == container_id:
                    return int(pid)
        raise LabError(f"containerd runs no container {container_id}")

    def cut(self, pod: str, namespace: str = "default") -> None:
        """Nobody hears of this pod any more, nor it of anybody: brokers, clients, the API server, DNS.

        kubelet's probes come through, so that the pod is not restarted for it: a cable was pulled, and the machine
        is well. A pod that takes its place has another address and is not cut off.
        """
        address = self.kubectl("get", "pod", pod, "--namespace", namespace, "--output", "jsonpath={.status.podIP}")
        for rule in _cutting(address, f"{namespace}/{pod}"):
            self.inside("iptables", "--wait", "--insert", *rule)

    def heal(self, pod: str, namespace: str = "default") -> None:
        """Take back all that `cut` did to the pod of this name. Fine where nothing was done."""
        self._heal(f'--comment "cut {namespace}/{pod}"')

    def heal_all(self) -> None:
        """Take back all that `cut` did, and wake the API server: what a run that broke off has left."""
        self._heal('--comment "cut ')
        self.resume_api()

    def _heal(self, mark: str) -> None:
        for line in self.inside("iptables", "--wait", "--list-rules").splitlines():
            if mark in line:
                rule = line.replace('"', "\n").split("\n")
                words = [word for n, part in enumerate(rule) for word in ([part] if n % 2 else part.split())]
                self.inside("iptables", "--wait", "--delete", *words[1:])


@contextmanager
def used_alone(say: Callable[[str], None]) -> Iterator[None]:
    """No other run of tests hurts the lab meanwhile, or takes it down: the second one waits for the first."""
    lab_home().mkdir(parents=True, exist_ok=True)
    with (lab_home() / "tests.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for the tests that use the lab now")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def bring_up(say: Callable[[str], None]) -> Lab:
    """The lab that runs, else a new one. Raises LabError with the remedy; what it had started then is taken down."""
    lab = running()
    if lab is not None:
        say("the lab is up already")
        return lab
    require_root()
    require_packages()
    take_down(lambda _: None)  # What a start that broke off has left.
    try:
        Starting.afresh(say).everything()
    except BaseException:
        take_down(say)
        raise
    return Lab(run_folder() / "kubeconfig")


def running() -> Lab | None:
    """The lab, if it is up and answers."""
    lab = Lab(run_folder() / "kubeconfig")
    if not network.exists() or not (run_folder() / STARTED).exists():
        return None
    try:
        daemon("coredns")
        lab.kubectl("wait", "--for=condition=Ready", "--timeout=5s", "node", "--all", "--request-timeout=5s")
    except LabError:
        return None
    return lab


def _cutting(address: str, name: str) -> list[list[str]]:
    """iptables rules that drop what the pod sends first, and what answers it, on its way to the node and beyond."""
    why = ["-m", "comment", "--comment", f"cut {name}", "-j", "DROP"]
    first = ["-m", "conntrack", "--ctdir", "ORIGINAL", *why]
    answer = ["-m", "conntrack", "--ctdir", "REPLY", *why]
    return [
        ["FORWARD", "-s", address, *why],
        ["FORWARD", "-d", address, *why],
        ["INPUT", "-s", address, *first],
        ["OUTPUT", "-d", address, *answer],
    ]


def _output(command: list[str | Path] | list[str], stdin: str = "") -> str:
    result = subprocess.run([str(part) for part in command], input=stdin, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        words = " ".join(str(part) for part in command[:6])
        said = f"{result.stderr.strip()}\n{result.stdout.strip()[-_SHOWN_CHARACTERS:]}".strip()
        raise LabError(f"{words} failed: {said}")
    return result.stdout
