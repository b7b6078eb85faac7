"""What the lab takes from the machine: root, and programs of Debian packages."""

import os
import shutil

from e2e.lab.errors import LabError

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CNI_FOLDER = "/usr/lib/cni"

_PACKAGES = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "socat": "socat",
    "runc": "runc",
    "mmdebstrap": "mmdebstrap",
    "buildah": "buildah",
    f"{CNI_FOLDER}/ptp": "containernetworking-plugins",
}


def require_packages() -> None:
    """Raises LabError with the line that installs what is missing."""
    missing = sorted({package for name, package in _PACKAGES.items() if shutil.which(name, path=SYSTEM_PATH) is None})
    if missing:
        # buildah recommends crun, which fails where cgroups are of both versions; runc works.
        without = " crun-" if "buildah" in missing else ""
        raise LabError(f"programs are missing; install them with: apt-get install {' '.join(missing)}{without}")


def require_root() -> None:
    if os.geteuid() != 0:
        raise LabError("a cluster needs root, for namespaces and mounts: run this with sudo -E")
