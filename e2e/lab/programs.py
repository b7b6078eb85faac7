"""What the lab is built from: Go modules, their versions, and the programs that come out of them.

A table, read by `build`. Programs that share a module share one build: Kubernetes' packages compile once for all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

KUBERNETES_MINOR_PATCH = "36.3"
ETCD_VERSION = "3.6.5"
CONTAINERD_VERSION = "2.2.1"
COREDNS_VERSION = "1.14.0"
HELM_VERSION = "3.22.0"
HELM_4_VERSION = "4.3.1"
H2SPEC_VERSION = "2.2.1+incompatible"


@dataclass(frozen=True, slots=True)
class Program:
    """One binary. `version_arguments` make it print its own version, which is how a build knows what is there."""

    name: str
    package: str
    version_arguments: tuple[str, ...] = ("--version",)


@dataclass(frozen=True, slots=True)
class GoModule:
    """A module at one version and the programs taken from it."""

    path: str
    version: str
    programs: tuple[Program, ...]
    linker_variables: Mapping[str, str] = field(default_factory=dict)
    """Go variables set at link time: Kubernetes learns its own version no other way."""
    tags: tuple[str, ...] = ()
    staging: tuple[str, str] | None = None
    """(module prefix, version) of the siblings that the module's go.mod requires as v0.0.0."""


_VERSION_PACKAGE = "k8s.io/component-base/version"

KUBERNETES = GoModule(
    path="k8s.io/kubernetes",
    version=f"v1.{KUBERNETES_MINOR_PATCH}",
    programs=(
        Program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
        Program("kubectl", "k8s.io/kubernetes/cmd/kubectl", ("version", "--client")),
        Program("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
        Program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
        Program("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
        Program("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    ),
    linker_variables={
        f"{_VERSION_PACKAGE}.gitVersion": f"v1.{KUBERNETES_MINOR_PATCH}",
        f"{_VERSION_PACKAGE}.gitMajor": "1",
        f"{_VERSION_PACKAGE}.gitMinor": KUBERNETES_MINOR_PATCH.partition(".")[0],
    },
    staging=("k8s.io/", f"v0.{KUBERNETES_MINOR_PATCH}"),
)

# The module's main package is named `server`: `build` gives the binary its program's name.
ETCD = GoModule(
    path="go.etcd.io/etcd/server/v3",
    version=f"v{ETCD_VERSION}",
    programs=(Program("etcd", "go.etcd.io/etcd/server/v3"),),
)

# The last tag that Go's module rules allow: later ones have a go.mod without the /v2 that they would need.
H2SPEC = GoModule(
    path="github.com/summerwind/h2spec",
    version=f"v{H2SPEC_VERSION}",
    programs=(Program("h2spec", "github.com/summerwind/h2spec/cmd/h2spec"),),
    linker_variables={"main.VERSION": H2SPEC_VERSION},
)

_CONTAINERD_VERSION = "github.com/containerd/containerd/v2/version"
CONTAINERD = GoModule(
    path="github.com/containerd/containerd/v2",
    version=f"v{CONTAINERD_VERSION}",
    programs=(
        Program("containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
        Program("containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2", ("-v",)),
        Program("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
    ),
    linker_variables={f"{_CONTAINERD_VERSION}.Version": CONTAINERD_VERSION},
    tags=("no_btrfs", "no_devmapper", "no_zfs", "no_aufs"),
)

COREDNS = GoModule(
    path="github.com/coredns/coredns",
    version=f"v{COREDNS_VERSION}",
    programs=(Program("coredns", "github.com/coredns/coredns", ("-version",)),),
)

HELM = GoModule(
    path="helm.sh/helm/v3",
    version=f"v{HELM_VERSION}",
    programs=(Program("helm", "helm.sh/helm/v3/cmd/helm", ("version", "--template", "{{.Version}}")),),
    linker_variables={"helm.sh/helm/v3/internal/version.version": f"v{HELM_VERSION}"},
)
HELM_4 = GoModule(
    path="helm.sh/helm/v4",
    version=f"v{HELM_4_VERSION}",
    programs=(Program("helm4", "helm.sh/helm/v4/cmd/helm", ("version", "--template", "{{.Version}}")),),
    linker_variables={"helm.sh/helm/v4/internal/version.version": f"v{HELM_4_VERSION}"},
)

MODULES = (ETCD, KUBERNETES, CONTAINERD, COREDNS, HELM, HELM_4, H2SPEC)
