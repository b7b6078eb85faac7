"""A network of its own for one run: each process behind an address of its own, and a router that loses what it is told.

The harness itself runs in a network namespace that nobody else sees (`own_namespace`) and is the router: every node is
one more namespace, joined by a pair of virtual cables. What is cut is thrown away by a routing rule for this source
and this destination, so that a cut works in one direction or in both, silently, for connections that are there as well
as for new ones. There is nothing to clean up: namespaces go with the processes in them.

No packet leaves the namespace: it has no way out.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.dev.supervisor.parent_death import dying_with_parent
from tests.support.patience import patient

_MARK = "HEADRACE_FAULTS_NAMESPACE"
"""Set for the process that `own_namespace` starts."""
_NET = "10.217"
_ORDER_S = 10


class CannotIsolateError(Exception):
    """This machine, or this user, gets no network namespaces."""


@dataclass(frozen=True, slots=True)
class Node:
    """A place for one process at a time."""

    name: str
    address: str
    gateway: str
    """Of this process, as the node sees it."""
    prefix: tuple[str, ...]
    """Starts a program there, under the same pid."""


@dataclass(slots=True)
class Network:
    _nodes: dict[str, Node] = field(default_factory=dict)
    _holders: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _cuts: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not is_isolated():
            raise CannotIsolateError("a network is made in a namespace of its own: start by own_namespace()")
        _order("ip", "link", "set", "lo", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def add(self, name: str) -> Node:
        """A node that reaches all others and this process."""
        number = len(self._nodes) + 1
        near, far = f"{_NET}.{number}.1", f"{_NET}.{number}.2"
        holder = subprocess.Popen(
            dying_with_parent(["unshare", "--net", "sh", "-c", "echo ready; exec sleep 86400"]), stdout=subprocess.PIPE
        )
        assert holder.stdout is not None
        if holder.stdout.readline() != b"ready\n":
            raise CannotIsolateError("unshare --net is refused")
        self._holders.append(holder)
        prefix = ("nsenter", f"--target={holder.pid}", "--net", "--")
        cable = f"node{number}"
        _order("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _order("ip", "addr", "add", f"{near}/30", "dev", cable)
        _order("ip", "link", "set", cable, "up")
        _order(*prefix, "ip", "link", "set", "lo", "up")
        _order(*prefix, "ip", "addr", "add", f"{far}/30", "dev", "eth0")
        _order(*prefix, "ip", "link", "set", "eth0", "up")
        _order(*prefix, "ip", "route", "add", "default", "via", near)
        node = self._nodes[name] = Node(name, far, near, prefix)
        return node

    def cut(self, source: str, target: str) -> None:
        """From now on nothing that `source` sends arrives at `target`; the other way stays as it is."""
        if (source, target) not in self._cuts:
            _order("ip", "rule", "add", *self._between(source, target))
            self._cuts.add((source, target))

    def cut_both(self, one: str, others: Iterable[str]) -> None:
        for other in others:
            self.cut(one, other)
            self.cut(other, one)

    def heal(self, source: str, target: str) -> None:
        if (source, target) in self._cuts:
            _order("ip", "rule", "del", *self._between(source, target))
            self._cuts.discard((source, target))

    def heal_all(self) -> None:
        for source, target in tuple(self._cuts):
            self.heal(source, target)

    def close(self) -> None:
        for holder in self._holders:
            holder.kill()
            holder.wait()

    def _between(self, source: str, target: str) -> Sequence[str]:
        return "from", self._nodes[source].address, "to", self._nodes[target].address, "blackhole"


def is_isolated() -> bool:
    return os.environ.get(_MARK) == "1"


def own_namespace(arguments: Sequence[str]) -> list[str]:
    """The command line that runs a program where a `Network` can be made; without root as root of a user namespace."""
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["env", f"{_MARK}=1", "unshare", *as_root, "--net", "--", *arguments]


def why_not() -> str:
    """Why a network cannot be made on this machine; empty where it can."""
    script = (
        "from tests.faults.network import Network; n = Network(); n.add('a'); n.add('b'); n.cut('a', 'b'); n.close()"
    )
    tried = subprocess.run(
        own_namespace([sys.executable, "-c", script]), capture_output=True, timeout=patient(60), check=False
    )
    return tried.stderr.decode().strip() if tried.returncode else ""


def _order(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, timeout=patient(_ORDER_S), check=False)
    if done.returncode:
        raise CannotIsolateError(f"{' '.join(words)}: {done.stderr.decode().strip()}")
