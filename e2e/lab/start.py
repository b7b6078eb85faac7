"""Starts the lab: a whole Kubernetes of one node, from its certificates to its DNS.

Everything that is written is in `LAB_HOME/run`, everything that runs is in the lab's network namespace, so `teardown`
needs no list of what was started. What went wrong is in the log of the daemon, `run`/NAME.log.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from e2e.lab import network, node
from e2e.lab.certificates import Authority
from e2e.lab.control_plane import Command, ControlPlane
from e2e.lab.dns import corefile
from e2e.lab.errors import LabError
from e2e.lab.home import program, run_folder
from e2e.lab.kubeconfig import write_kubeconfig
from e2e.lab.processes import start
from e2e.lab.volumes import storage_class

ZONE = "zone-a"
API_PORT = 6443
STARTED = "started"
"""A file in the run folder that is written last: without it a start has broken off."""
_ETCD_PORT = 2379
_TIMEOUT_S = 60
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Starting:
    """One start: where it writes, who signs, and whom it tells how far it is."""

    run: Path
    plane: ControlPlane
    say: Callable[[str], None]

    @classmethod
    def afresh(cls, say: Callable[[str], None]) -> "Starting":
        """With new certificates, in an empty run folder."""
        run = run_folder()
        authority = Authority.create(run / "pki")
        accounts = authority.signing_key("accounts")
        return cls(run, ControlPlane(run, network.NODE_ADDRESS, API_PORT, _ETCD_PORT, authority, accounts), say)

    def everything(self) -> None:
        """Raises LabError, with the end of the log of what did not start."""
        began = time.monotonic()
        network.create()
        self._control_plane()
        self.say(f"kube-apiserver is ready ({time.monotonic() - began:.1f} s)")
        self._node()
        self._dns_and_volumes()
        self._wait("kubelet", lambda: self._kubectl("get", "--raw", f"/api/v1/nodes/{node.NODE_NAME}"))
        self._kubectl("wait", "--for=condition=Ready", f"--timeout={_TIMEOUT_S}s", f"node/{node.NODE_NAME}")
        self._write(STARTED, "")
        self.say(f"the node is Ready ({time.monotonic() - began:.1f} s)")

    def _control_plane(self) -> None:
        admin = self.plane.authority.issue("admin", common_name="admin", group="system:masters")
        write_kubeconfig(self.run / "kubeconfig", self.plane.url, self.plane.authority.own, admin)
        self._daemon("etcd", self.plane.etcd())
        self._daemon("kube-apiserver", self.plane.api_server_with_nodes(admin))
        self._wait("kube-apiserver", lambda: self._kubectl("get", "--raw", "/readyz"))
        self._daemon("kube-controller-manager", self.plane.controller_manager(self._user("kube-controller-manager")))
        self._daemon("kube-scheduler", self.plane.scheduler(self._user("kube-scheduler")))

    def _node(self) -> None:
        containerd = self._write("containerd.toml", node.containerd_config(self.run / "images", self.run))
        self._write("cni/10-lab.conflist", node.cni_config(self.run))
        self._daemon("containerd", [program("containerd"), "--config", containerd])
        self._wait("containerd", lambda: self._ctr("version"))
        self._write("resolv.conf", "nameserver 127.0.0.1\n")
        config = self._write("kubelet.yaml", node.kubelet_config(self.run, self.plane.authority))
        kubeconfig = self._user(f"system:node:{node.NODE_NAME}", "system:nodes", file="kubelet")
        kubelet: Command = [
            *(program("kubelet"), "--config", config, "--kubeconfig", kubeconfig),
            *("--hostname-override", node.NODE_NAME, "--node-ip", network.NODE_ADDRESS),
            *("--root-dir", self.run / "kubelet", "--cert-dir", self.run / "pki"),
            *("--node-labels", f"topology.kubernetes.io/zone={ZONE},topology.kubernetes.io/region=lab"),
        ]
        self._daemon("kubelet", kubelet)
        proxy = self._write("kube-proxy.yaml", node.proxy_config(self._user("kube-proxy")))
        self._daemon("kube-proxy", [program("kube-proxy"), "--config", proxy])

    def _dns_and_volumes(self) -> None:
        config = self._write("Corefile", corefile(self._user("dns", "system:masters")))
        self._daemon("coredns", [program("coredns"), "-conf", config])
        self._kubectl("apply", "-f", self._write("storage-class.yaml", storage_class()))
        folder = self.run / "volumes"
        self._daemon("volumes", [sys.executable, "-m", "e2e.lab.volumes", self.run / "kubeconfig", folder])

    def _user(self, name: str, group: str = "lab", *, file: str = "") -> Path:
        """The kubeconfig of a component, whose rights are those that Kubernetes gives to this name."""
        file = file or name
        common_name = name if ":" in name else f"system:{name}"
        pair = self.plane.authority.issue(file, common_name=common_name, group=group)
        return write_kubeconfig(self.run / f"{file}.kubeconfig", self.plane.url, self.plane.authority.own, pair)

    def _write(self, name: str, text: str) -> Path:
        path = self.run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def _daemon(self, name: str, command: Command) -> None:
        start(name, command, self.run)

    def _kubectl(self, *arguments: str | Path) -> None:
        self._run(program("kubectl"), "--kubeconfig", self.run / "kubeconfig", *arguments)

    def _ctr(self, *arguments: str) -> None:
        self._run(program("ctr"), "--address", node.containerd_socket(self.run), *arguments)

    def _run(self, *command: str | Path) -> None:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise LabError(f"{Path(command[0]).name}: {result.stderr.strip()}")

    def _wait(self, name: str, works: Callable[[], None]) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                return works()
            except LabError as error:
                if time.monotonic() > deadline:
                    log = self.run / f"{name}.log"
                    end = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
                    raise LabError(f"{name} did not start: {error}\n{log} ends with:\n{end}") from error
            time.sleep(_POLL_S)
