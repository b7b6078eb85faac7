"""The lab's network: one namespace, joined to this machine by a pair of virtual interfaces.

All daemons run in the namespace, so their ports, their iptables rules and their sysctls are theirs alone and end with
it. Addresses are of 198.18.0.0/15, which is kept for benchmarks and therefore meets no network that is in use.
"""

import subprocess
from pathlib import Path

from e2e.lab.control_plane import SERVICE_RANGE
from e2e.lab.errors import LabError

NAMESPACE = "headrace-lab"
NAMESPACE_FILE = Path("/run/netns") / NAMESPACE
HOST_ADDRESS = "198.18.0.1"
NODE_ADDRESS = "198.18.0.2"
POD_RANGE = "198.18.128.0/24"
_PREFIX = "17"
_INTERFACE = "headrace-lab"
"""The end on this machine; the other one is eth0."""


def inside(*command: str | Path) -> list[str]:
    """The command line that runs `command` in the namespace. (`ip netns exec` would hide the cgroups from kubelet.)"""
    return ["nsenter", f"--net={NAMESPACE_FILE}", *(str(part) for part in command)]


def exists() -> bool:
    return NAMESPACE_FILE.exists()


def create() -> None:
    """Raises LabError. What a start that broke off has left behind is to be deleted first."""
    _run("ip", "netns", "add", NAMESPACE)
    _run("ip", "link", "add", _INTERFACE, "type", "veth", "peer", "name", "eth0", "netns", NAMESPACE)
    _run("ip", "address", "add", f"{HOST_ADDRESS}/{_PREFIX}", "dev", _INTERFACE)
    _run("ip", "link", "set", _INTERFACE, "up")
    _run(*inside("ip", "link", "set", "lo", "up"))
    _run(*inside("ip", "address", "add", f"{NODE_ADDRESS}/{_PREFIX}", "dev", "eth0"))
    _run(*inside("ip", "link", "set", "eth0", "up"))
    _run(*inside("ip", "route", "add", "default", "via", HOST_ADDRESS))
    _run(*inside("sysctl", "-qw", "net.ipv4.ip_forward=1"))
    for addresses in (POD_RANGE, SERVICE_RANGE):
        _run("ip", "route", "add", addresses, "via", NODE_ADDRESS)


def delete() -> None:
    """The interface goes with the namespace, and the routes with the interface. Fine where nothing is there."""
    for command in (("ip", "netns", "delete", NAMESPACE), ("ip", "link", "delete", _INTERFACE)):
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def _run(*command: str) -> None:
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LabError(f"{' '.join(command)} failed: {result.stderr.strip()}")
