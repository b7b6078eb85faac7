"""How etcd and the programs of a control plane are told what to do: argument lists, and nothing is started here.

`api_server` runs the first two alone on loopback; `start` runs all four beside a node.
"""

from dataclasses import dataclass
from pathlib import Path

from e2e.lab.certificates import Authority, KeyPair
from e2e.lab.home import program

SERVICE_RANGE = "198.19.0.0/24"
KUBERNETES_SERVICE = "198.19.0.1"
"""What the API server is called inside the cluster: the first address of the range."""

Command = list[str | Path]


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Where the processes of one control plane listen, and who signs for them."""

    folder: Path
    address: str
    """Of the API server, without a port."""
    port: int
    etcd_port: int
    """The next one is for etcd's peers, which there are none of."""
    authority: Authority
    accounts: KeyPair
    """Signs the tokens of service accounts."""

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.port}"

    @property
    def _etcd_url(self) -> str:
        return f"http://127.0.0.1:{self.etcd_port}"

    def etcd(self) -> Command:
        peer_url = f"http://127.0.0.1:{self.etcd_port + 1}"
        return [
            *(program("etcd"), "--data-dir", self.folder / "etcd", "--unsafe-no-fsync", "--log-level", "warn"),
            *("--listen-client-urls", self._etcd_url, "--advertise-client-urls", self._etcd_url),
            *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
            *("--initial-cluster", f"default={peer_url}"),
        ]

    def api_server(self) -> Command:
        names = f"IP:{self.address},IP:127.0.0.1,IP:{KUBERNETES_SERVICE},DNS:localhost,DNS:kubernetes.default.svc"
        serving = self.authority.issue(
            "serving", common_name="kube-apiserver", group="headrace-lab", subject_names=names
        )
        return [
            *(program("kube-apiserver"), "--etcd-servers", self._etcd_url),
            *("--bind-address", self.address, "--advertise-address", self.address, "--secure-port", str(self.port)),
            *("--tls-cert-file", serving.certificate, "--tls-private-key-file", serving.key),
            *("--client-ca-file", self.authority.own.certificate),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-account-signing-key-file", self.accounts.key),
            *("--service-account-key-file", self.accounts.certificate),
            *("--service-cluster-ip-range", SERVICE_RANGE),
        ]

    def api_server_with_nodes(self, client: KeyPair) -> Command:
        """`client` is who the API server is to kubelets, for logs and exec."""
        return [
            *(*self.api_server(), "--authorization-mode", "Node,RBAC", "--allow-privileged=true"),
            *("--kubelet-client-certificate", client.certificate, "--kubelet-client-key", client.key),
            *("--kubelet-certificate-authority", self.authority.own.certificate),
            *("--kubelet-preferred-address-types", "InternalIP"),
        ]

    def controller_manager(self, kubeconfig: Path) -> Command:
        return [
            *(program("kube-controller-manager"), "--kubeconfig", kubeconfig, "--bind-address", "127.0.0.1"),
            *("--leader-elect=false", "--use-service-account-credentials=true"),
            *("--service-account-private-key-file", self.accounts.key),
            *("--root-ca-file", self.authority.own.certificate),
            *("--cluster-signing-cert-file", self.authority.own.certificate),
            *("--cluster-signing-key-file", self.authority.own.key),
            # Claims are bound as soon as their volume is there, not up to 15 s later.
            "--pvclaimbinder-sync-period=1s",
        ]

    def scheduler(self, kubeconfig: Path) -> Command:
        return [
            *(program("kube-scheduler"), "--kubeconfig", kubeconfig, "--bind-address", "127.0.0.1"),
            "--leader-elect=false",
        ]
