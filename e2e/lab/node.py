"""The lab's one node: how containerd, kubelet and kube-proxy are told what to do.

Nothing is started here. The settings are those that differ from a machine of its own: the node shares kernel, disk and
memory with whatever else runs here, so it must not protect itself from pressure, nor raise anybody's OOM score, nor set
sysctls that a network namespace does not have.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from e2e.lab.certificates import Authority
from e2e.lab.network import NODE_ADDRESS, POD_RANGE
from e2e.lab.packages import CNI_FOLDER

NODE_NAME = "node0"
PAUSE_IMAGE = "localhost/headrace-pause:1"


def containerd_config(root: Path, run: Path) -> str:
    """TOML, which json's strings, numbers and booleans are part of."""
    return f"""version = 3
root = {json.dumps(str(root))}
state = {json.dumps(str(run / "containerd"))}
oom_score = 0
[grpc]
  address = {json.dumps(str(containerd_socket(run)))}
[ttrpc]
  address = {json.dumps(str(containerd_socket(run)) + ".ttrpc")}
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = {json.dumps(PAUSE_IMAGE)}
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  enable_selinux = false
  # Mounts of pods' namespaces are found and taken away with the rest of the state.
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [{json.dumps(CNI_FOLDER)}]
    conf_dir = {json.dumps(str(run / "cni"))}
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "runc"
      SystemdCgroup = false
"""


def containerd_socket(run: Path) -> Path:
    return run / "containerd.sock"


def cni_config(run: Path) -> str:
    """`ptp` and not `bridge`: on a bridge, a service's replies to a pod beside it bypass the NAT."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_RANGE}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(run / "cni-data"),
    }
    plugins = [
        {"type": "ptp", "ipMasq": False, "ipam": addresses},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return json.dumps({"cniVersion": "1.0.0", "name": "lab", "plugins": plugins}, indent=1)


def kubelet_config(run: Path, authority: Authority) -> str:
    serving = authority.issue(
        "kubelet-serving",
        common_name=f"system:node:{NODE_NAME}",
        group="system:nodes",
        subject_names=f"IP:{NODE_ADDRESS},DNS:{NODE_NAME}",
    )
    least = dict.fromkeys(("nodefs.available", "imagefs.available", "nodefs.inodesFree"), "1%")
    document: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority.own.certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{containerd_socket(run)}",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "localStorageCapacityIsolation": False,
        "clusterDomain": "cluster.local",
        "clusterDNS": [NODE_ADDRESS],
        "resolvConf": str(run / "resolv.conf"),
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "evictionHard": {"memory.available": "100Mi", **least},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "healthzBindAddress": "127.0.0.1",
        "maxPods": 100,
        "syncFrequency": "1s",
        # A container that dies is started again within seconds, however often it did before.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
    }
    return yaml.safe_dump(document, sort_keys=False)


def proxy_config(kubeconfig: Path) -> str:
    document = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "mode": "iptables",
        "hostnameOverride": NODE_NAME,
        "clusterCIDR": POD_RANGE,
        "bindAddress": NODE_ADDRESS,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "oomScoreAdj": 0,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    return yaml.safe_dump(document, sort_keys=False)
