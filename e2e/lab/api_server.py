"""etcd and kube-apiserver on loopback, for as long as a `with` block: what the contract and operator tests run against.

No controller-manager, no scheduler, no node: objects are stored, validated, watched, and nothing acts on them. Ports
are free ones, state and certificates live in a temporary folder, both processes die with the test that started them.
Called by `e2e.lab.__main__` and by pytest fixtures.
"""

import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.lab.certificates import Authority
from e2e.lab.control_plane import Command, ControlPlane
from e2e.lab.errors import LabError
from e2e.lab.home import program
from e2e.lab.kubeconfig import write_kubeconfig
from headrace.dev.supervisor.layout import LOOPBACK, free_port_run
from headrace.dev.supervisor.parent_death import dying_with_parent

_READY_TIMEOUT_S = 60
_POLITE_STOP_S = 2
"""kube-apiserver takes a minute over a polite stop; nothing here is worth waiting for."""
_POLL_S = 0.05
_ALONE = (
    *("--authorization-mode", "RBAC", "--endpoint-reconciler-type", "none"),
    # No controller makes service accounts here, and without them this plugin refuses every Pod.
    *("--disable-admission-plugins", "ServiceAccount"),
)
CRDS = Path(__file__).parents[2] / "crds"


@dataclass(frozen=True, slots=True)
class ApiServer:
    url: str
    kubeconfig: Path
    """An administrator's."""

    def kubectl(self, *arguments: str | Path) -> str:
        """Run the lab's kubectl. Raises LabError with its message."""
        result = subprocess.run(
            [program("kubectl"), "--kubeconfig", self.kubeconfig, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise LabError(f"kubectl {arguments[0]}: {result.stderr.strip()}")
        return result.stdout


@contextmanager
def api_server() -> Iterator[ApiServer]:
    """Ready, with Headrace's CRDs established. Raises LabError, with the end of the log when a process died."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-lab-")))
        etcd_port = free_port_run(3, random.Random())
        authority = Authority.create(folder / "pki")
        plane = ControlPlane(folder, LOOPBACK, etcd_port + 2, etcd_port, authority, authority.signing_key("accounts"))
        stack.enter_context(_running(plane.etcd(), folder / "etcd.log"))
        admin = authority.issue("admin", common_name="admin", group="system:masters")
        process = stack.enter_context(_running([*plane.api_server(), *_ALONE], folder / "kube-apiserver.log"))
        server = ApiServer(plane.url, write_kubeconfig(folder / "kubeconfig", plane.url, authority.own, admin))
        _wait_ready(server, process, folder / "kube-apiserver.log")
        server.kubectl("apply", "-f", CRDS)
        server.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", CRDS)
        yield server


@contextmanager
def _running(arguments: Command, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            dying_with_parent([str(argument) for argument in arguments]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_POLITE_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(server: ApiServer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while True:
        try:
            server.kubectl("get", "--raw", "/readyz")
            server.kubectl("get", "namespace", "default")
        except LabError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"kube-apiserver did not become ready: {error}\n{_tail(log)}") from error
            time.sleep(_POLL_S)
        else:
            return


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
