"""Builds the lab's programs with the ordinary Go client, only those that are missing or of another version.

A build works in a throw-away module folder and moves each finished binary into place, so that an interrupted build
leaves nothing half-made and a running program is never written over. Go's own caches (outside the checkout) make a
second build short. One build at a time per `LAB_HOME`: the second waits for the first and then finds its work done.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.lab.errors import LabError
from e2e.lab.home import is_built, lab_home
from e2e.lab.programs import MODULES, GoModule

GO_RELEASE = "1.26"
"""What Kubernetes 1.36 asks for. An older Go client fetches this toolchain by itself."""


def build_missing(say: Callable[[str], None]) -> None:
    """Build what is not there, telling what is built and how long it took. Raises LabError with the remedy."""
    home = lab_home()
    (home / "bin").mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(home / "build.lock"):
        for module in MODULES:
            missing = [p.name for p in module.programs if not is_built(module, p)]
            if not missing:
                say(f"{', '.join(p.name for p in module.programs)} {module.version}: already built")
                continue
            _require_go()
            say(f"{', '.join(missing)} {module.version}: building (the first time takes minutes)")
            started = time.monotonic()
            _build(module, home / "bin")
            say(f"{', '.join(missing)} {module.version}: built in {time.monotonic() - started:.0f} s")


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _require_go() -> None:
    if shutil.which("go") is None:
        raise LabError(
            f"the lab's programs are built from Go modules and there is no `go` on the PATH: install Go {GO_RELEASE}"
            " or newer (https://go.dev/doc/install), then run make lab-build again"
        )


def _build(module: GoModule, into: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="build-", dir=into.parent) as name:
        folder = Path(name)
        _prepare(module, folder)
        settings = " ".join(["-s", "-w", *(f"-X {key}={value}" for key, value in module.linker_variables.items())])
        for program in module.programs:
            made = folder / "bin" / program.name
            tags = ["-tags", " ".join(module.tags)] if module.tags else []
            _go(folder, "build", "-trimpath", "-ldflags", settings, *tags, "-o", str(made), program.package)
            os.replace(made, into / program.name)


def _prepare(module: GoModule, folder: Path) -> None:
    """A module of our own that requires this one, so that its versions are pinned by its own go.mod."""
    (folder / "go.mod").write_text(f"module lab\n\ngo {GO_RELEASE}\n\nrequire {module.path} {module.version}\n")
    if module.staging is not None:
        prefix, version = module.staging
        for name in _staging_modules(module, folder, prefix):
            _go(folder, "mod", "edit", f"-replace={name}={name}@{version}")
    _go(folder, "get", "-tool", *(f"{program.package}@{module.version}" for program in module.programs))


def _staging_modules(module: GoModule, folder: Path, prefix: str) -> list[str]:
    """The siblings that the module requires as v0.0.0: they exist under their published versions only."""
    _go(folder, "mod", "download", f"{module.path}@{module.version}")
    cache = Path(_go(folder, "env", "GOMODCACHE").strip())
    requirements = (cache / f"{module.path}@{module.version}" / "go.mod").read_text()
    return re.findall(rf"({re.escape(prefix)}[a-z-]+) v0\.0\.0$", requirements, re.MULTILINE)


def _go(folder: Path, *arguments: str) -> str:
    result = subprocess.run(
        ["go", *arguments],
        cwd=folder,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-modcacherw", "GOWORK": "off"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise LabError(f"go {' '.join(arguments[:2])} failed:\n{result.stderr.strip()}")
    return result.stdout
