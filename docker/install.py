"""What the Dockerfile installs into /opt/headrace: `install.py dependencies EXTRA...`, or `install.py project`.

The dependencies are those that pyproject.toml names for the extras; the project comes without them, so that it is a
small layer of its own, and a node that has one version pulls little for the next. Everything comes from the wheels in
`WHEELS` where there are any, and no index is asked then; else from PyPI and from the context.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

CONTEXT = Path("/src")
"""The checkout, as .dockerignore lets it through."""
ENVIRONMENT = Path("/opt/headrace")


def requirements(extras: list[str]) -> list[str]:
    project = tomllib.loads((CONTEXT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]


def install(wanted: list[str], wheels: Path | None) -> None:
    """pip runs from its own wheel where there are wheels: a base need not have it, and no image gets it."""
    environment = dict(os.environ)
    source: list[str] = []
    if wheels is not None:
        environment["PYTHONPATH"] = str(next(wheels.glob("pip-*.whl")))
        source = ["--no-index", f"--find-links={wheels}"]
    into = ["--python", str(ENVIRONMENT / "bin" / "python")]
    command = [sys.executable, "-m", "pip", *into, "install", "--no-cache-dir", *source, *wanted]
    subprocess.run(command, env=environment, check=True)


def main(what: str, *extras: str) -> None:
    named = CONTEXT / os.environ["WHEELS"]
    wheels = named if named.is_dir() else None
    if not ENVIRONMENT.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(ENVIRONMENT)], check=True)
    if what == "dependencies":
        install(requirements(list(extras)), wheels)
    else:
        install(["--no-deps", str(CONTEXT) if wheels is None else "headrace"], wheels)


if __name__ == "__main__":
    main(*sys.argv[1:])
