"""What the Dockerfile installs: `install.py dependencies EXTRA...`, then `install.py project`.

`install.py requirements EXTRA...` prints what the first would ask for.

The dependencies are those that pyproject.toml names for the extras; the project comes without them, so that it is a
small layer of its own, and a node that has one version pulls little for the next. Everything comes from the wheels in
/wheels where there are any, and no index is asked then; else from PyPI.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

SOURCE = Path(__file__).parents[1]
ENVIRONMENT = Path("/opt/headrace")
WHEELS = Path("/wheels")


def requirements(extras: list[str]) -> list[str]:
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]


def install(*wanted: str) -> None:
    """pip runs from its own wheel where there are wheels: a base need not have it, and no image gets it."""
    if not ENVIRONMENT.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(ENVIRONMENT)], check=True)
    environment = dict(os.environ)
    source: list[str] = []
    for pip in WHEELS.glob("pip-*.whl"):
        environment["PYTHONPATH"] = str(pip)
        source = ["--no-index", f"--find-links={WHEELS}"]
    into = ["--python", str(ENVIRONMENT / "bin" / "python")]
    command = [sys.executable, "-m", "pip", *into, "install", "--no-cache-dir", *source, *wanted]
    subprocess.run(command, env=environment, check=True)


def main(what: str, *extras: str) -> None:
    match what:
        case "requirements":
            sys.stdout.write("".join(f"{each}\n" for each in requirements(list(extras))))
        case "dependencies":
            install(*requirements(list(extras)))
        case "project":
            install("--no-deps", str(SOURCE))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
