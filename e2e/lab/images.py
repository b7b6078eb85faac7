"""The project's images, built from its Dockerfile by buildah, and brought into the lab's containerd.

No registry and no Docker engine takes part. Bases are Debian, put together by mmdebstrap from its packages; the image
tags are hashes of all that goes into them, so what is there already is what would be built.
"""

import hashlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.lab.errors import LabError
from e2e.lab.home import lab_home, program, run_folder
from e2e.lab.node import PAUSE_IMAGE, containerd_socket
from e2e.lab.packages import require_packages, require_root
from e2e.lab.wheels import gathered

SUITE = "bookworm"
PYTHON_VERSION = "3.11"
"""Of `SUITE`."""
TARGETS = ("broker", "operator", "spark")
_TIMESTAMP = "1767225600"
"""Of every file and image (2026-01-01), in seconds since 1970: images of the same content are the same image.

Not of the bases: Debian's byte code of Python's library would count as stale.
"""
_SOURCES = (
    *("Dockerfile", ".dockerignore", "pyproject.toml"),
    *("docker", "headrace", "pyspark_headrace", "broker", "operator", "crds", "examples/spark"),
)
"""What .dockerignore lets through, but for pages that nothing in an image reads."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Base:
    """A small Debian. Its tag changes with its definition."""

    name: str
    packages: tuple[str, ...]

    @property
    def image(self) -> str:
        defined = f"{SUITE} {self.packages}"
        return f"localhost/headrace-lab-{self.name}:{hashlib.sha256(defined.encode()).hexdigest()[:12]}"


PYTHON_BASE = Base("python", ("ca-certificates", "python3"))
JAVA_BASE = Base("java", (*PYTHON_BASE.packages, "openjdk-17-jre-headless", "procps", "tini"))


def image_name(target: str, tag: str) -> str:
    return f"localhost/headrace-{target}:{tag}"


def build_images(checkout: Path, say: Say, targets: tuple[str, ...] = TARGETS) -> str:
    """Build what is not there; returns the tag that all of them have. Raises LabError."""
    require_root()
    require_packages()
    tag = tag_of(checkout)
    missing = [target for target in targets if not exists(image_name(target, tag))]
    # Each of the three waits for other machines, and mostly works on one core.
    with ThreadPoolExecutor() as side_by_side:
        bases = [side_by_side.submit(_ensure_base, base, say) for base in (PYTHON_BASE, JAVA_BASE)]
        wheels = gathered(checkout, PYTHON_VERSION, say) if missing else None
        for base in bases:
            base.result()
    for target in missing:
        assert wheels is not None
        with _timed(say, f"image {target}: built"):
            _build(checkout, target, tag, wheels)
    return tag


def import_images(tag: str, say: Say, targets: tuple[str, ...] = TARGETS) -> None:
    """Into the running lab, with what every pod of it needs. Those that it has are not imported again."""
    there = _ctr("images", "list", "--quiet").split()
    wanted = {image_name(target, tag): image_name(target, tag) for target in targets}
    wanted = {name: source for name, source in {PAUSE_IMAGE: PYTHON_BASE.image, **wanted}.items() if name not in there}
    if wanted:
        with _timed(say, f"{', '.join(wanted)}: imported"):
            _import(wanted)


def tag_of(checkout: Path) -> str:
    """A hash of all that goes into the images, but for the packages of Debian and of PyPI."""
    found = hashlib.sha256(f"{PYTHON_BASE.image} {JAVA_BASE.image} {_TIMESTAMP}".encode())
    for path in _files(checkout):
        found.update(f"{path.relative_to(checkout)} {path.stat().st_mode & 0o111}\n".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:12]


def sizes(tag: str) -> dict[str, str]:
    """How large each image is, unpacked and with its base."""
    lines = _buildah("images", "--noheading", "--format", "{{.Name}}:{{.Tag}} {{.Size}}").splitlines()
    named = {line.split(" ", 1)[0]: line.split(" ", 1)[1] for line in lines}
    return {target: named[name] for target in TARGETS if (name := image_name(target, tag)) in named}


@contextmanager
def _timed(say: Say, what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    say(f"{what} ({time.monotonic() - began:.0f} s)")


def _files(checkout: Path) -> Iterator[Path]:
    """Of older commits those that they have."""
    for path in (checkout / source for source in _SOURCES):
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*") if p.is_file() and p.suffix != ".pyc")
        elif path.exists():
            yield path


def _ensure_base(base: Base, say: Say) -> None:
    if exists(base.image):
        return
    with _timed(say, f"base {base.name}: made of Debian {SUITE}"), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packages = ",".join(base.packages)
        trimmed = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale", "info")]
        # /usr/share/man/man1 is where Java's packages put their links.
        hook = ["--setup-hook=mkdir -p $1/usr/share/man/man1"]
        _run(
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            f"--include={packages}",
            *trimmed,
            *hook,
            SUITE,
            folder / "base.tar",
        )
        build_base(folder / "base.tar", base.image)


def build_base(archive: Path, image: str) -> None:
    """Make the image whose files are those of `archive`, the only file of its folder. Raises LabError."""
    (archive.parent / "Dockerfile").write_text(f'FROM scratch\nADD {archive.name} /\nCMD ["sleep", "infinity"]\n')
    _bud("--tag", image, archive.parent)


def _build(checkout: Path, target: str, tag: str, wheels: Path) -> None:
    revision = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    installing = hashlib.sha256((checkout / "docker" / "install.py").read_bytes()).hexdigest()
    arguments = {
        "BASE": PYTHON_BASE.image,
        "SPARK_BASE": JAVA_BASE.image,
        "DEPENDENCIES": f"{wheels.name} {installing}",
        "SOURCE": tag,
        "VERSION": tag,
        "REVISION": revision or "unknown",
    }
    given = [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]
    named = ("--target", target, "--tag", image_name(target, tag))
    _bud("--timestamp", _TIMESTAMP, f"--build-context=wheels={wheels}", *named, *given, checkout)


def _bud(*arguments: str | Path) -> None:
    """Build an image. chroot isolation needs neither cgroups nor a network of its own.

    `--force-rm` leaves no container of a build that fails; buildah takes it together with `--layers` alone.
    """
    _buildah("bud", "--isolation=chroot", "--pull-never", "--quiet", "--layers", "--force-rm", *arguments)


def _import(sources: Mapping[str, str]) -> None:
    """Images of buildah's storage, by the name that they get in containerd's: in one archive, each layer once."""
    with tempfile.TemporaryDirectory(dir=lab_home()) as folder:
        layout, archive = Path(folder) / "layout", Path(folder) / "images.tar"
        for name, source in sources.items():
            _buildah("push", "--quiet", "--disable-compression", source, f"oci:{layout}:{name}")
        _run("tar", "--create", "--file", archive, "--directory", layout, ".")
        _ctr("images", "import", archive)


def exists(image: str) -> bool:
    """Tell whether the lab has an image of this name."""
    try:
        _buildah("inspect", "--type", "image", image)
    except LabError:
        return False
    return True


def _buildah(*arguments: str | Path) -> str:
    storage = lab_home() / "images"
    places = ("--root", storage / "storage", "--runroot", storage / "run")
    return _run("buildah", *places, *arguments)


def _ctr(*arguments: str | Path) -> str:
    socket = containerd_socket(run_folder())
    return _run(program("ctr"), "--address", socket, "--namespace", "k8s.io", *arguments)


def _run(*command: str | Path) -> str:
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        said = (result.stderr.strip() or result.stdout.strip()).splitlines()
        raise LabError(f"{Path(command[0]).name} failed:\n" + "\n".join(said[-30:]))
    return result.stdout
