"""Reports what a process loads: code that runs in a new interpreter, and what it says of itself at its end."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.patience import patient

_MARK = "loaded: "
_BEFORE = """
import atexit, random, sys

seeds = []
seed = random.Random.seed

def noted(self, *arguments):
    seeds.append(sys._getframe(1).f_globals["__name__"])
    seed(self, *arguments)

random.Random.seed = noted

def tell():
    import json, os
    client = sys.modules.get("aiohttp.connector")
    contexts = (client._SSL_CONTEXT_VERIFIED, client._SSL_CONTEXT_UNVERIFIED) if client else ()
    print("{mark}" + json.dumps({{
        "modules": [name for name, module in sys.modules.items() if module is not None],
        "certificates": sum(context.cert_store_stats()["x509"] for context in contexts),
        "threads": len(os.listdir("/proc/self/task")),
        "seeds": seeds,
    }}), file=sys.stderr)

atexit.register(tell)
"""


@dataclass(frozen=True, slots=True)
class Loaded:
    modules: frozenset[str]
    certificates: int
    """The certificates in the TLS contexts that aiohttp makes when it is loaded."""
    threads: int
    seeds: tuple[str, ...]
    """The modules that made a `random.Random`."""

    def any_of(self, *packages: str) -> list[str]:
        """Modules of these packages."""
        return sorted(
            name for name in self.modules if any(name == each or name.startswith(f"{each}.") for each in packages)
        )


def loaded_by(code: str, environment: Mapping[str, str] | None = None, stdin: str = "") -> Loaded:
    """Raises AssertionError where the code fails."""
    done = subprocess.run(
        [sys.executable, "-c", _BEFORE.format(mark=_MARK) + code],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stderr.rpartition(_MARK)[2])
    return Loaded(frozenset(said["modules"]), said["certificates"], said["threads"], tuple(said["seeds"]))
