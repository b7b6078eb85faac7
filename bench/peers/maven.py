"""Kafka as Maven has it: the classpath of its broker and tools, resolved once and kept outside the checkout.

The file that keeps it is named by what `pom.xml` says, so that another version is another file. It holds paths into
Maven's own repository; where one of those is gone, Maven is asked again.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from bench.peers.errors import PeersError

_POM = Path(__file__).with_name("pom.xml")
_TIMEOUT_S = 600
_OUTPUT_LINES = 15


def kafka_classpath() -> str:
    """Raises PeersError where there is no Java, no Maven, or nothing to download from."""
    if shutil.which("java") is None:
        raise PeersError("Kafka runs on Java and there is no `java` on the PATH: install a JDK, 17 or newer")
    kept = _cache() / f"kafka-{hashlib.sha256(_POM.read_bytes()).hexdigest()[:16]}.classpath"
    if not _is_whole(kept):
        _resolve(kept)
    return kept.read_text()


def _cache() -> Path:
    """`$XDG_CACHE_HOME/headrace-peers`, else `~/.cache/headrace-peers`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace-peers"


def _is_whole(kept: Path) -> bool:
    return kept.exists() and all(map(os.path.exists, kept.read_text().split(os.pathsep)))


def _resolve(kept: Path) -> None:
    if shutil.which("mvn") is None:
        raise PeersError("Kafka comes from Maven Central and there is no `mvn` on the PATH: install Maven")
    kept.parent.mkdir(parents=True, exist_ok=True)
    draft = kept.with_suffix(f".{os.getpid()}")
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={draft}"]
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(_POM), *goal]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if result.returncode != 0:
        said = "\n".join((result.stdout + result.stderr).strip().splitlines()[:_OUTPUT_LINES])
        raise PeersError(f"Maven could not download Kafka; is Maven Central reached from here?\n{said}")
    os.replace(draft, kept)
