"""Kafka as Maven has it: the classpath of its broker and tools, and the jars of Spark's source for it.

Each is resolved once and kept outside the checkout, in a file that is named by what its `pom.xml` says, so that another
version is another file. It holds paths into Maven's own repository; where one of those is gone, Maven is asked again.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from bench.peers.errors import PeersError

_KAFKA = Path(__file__).with_name("pom.xml")
_SPARK_SOURCE = Path(__file__).with_name("spark") / "pom.xml"
_VERSION = re.compile(r"-\d[^/]*$")
_TIMEOUT_S = 600
_OUTPUT_LINES = 15


def kafka_classpath() -> str:
    """Raises PeersError where there is no Java, no Maven, or nothing to download from."""
    return _classpath("kafka", _KAFKA)


def spark_source_jars(bundled: Iterable[Path]) -> list[str]:
    """What Spark's Kafka source needs beside the jars that Spark comes with. Raises PeersError as for Kafka."""
    there = {_artifact(jar) for jar in bundled}
    jars = _classpath("spark-kafka", _SPARK_SOURCE).split(os.pathsep)
    return [jar for jar in jars if _artifact(Path(jar)) not in there]


def _artifact(jar: Path) -> str:
    """Its name without the version."""
    return _VERSION.sub("", jar.stem)


def _classpath(name: str, pom: Path) -> str:
    if shutil.which("java") is None:
        raise PeersError("Kafka runs on Java and there is no `java` on the PATH: install a JDK, 17 or newer")
    kept = _cache() / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}.classpath"
    if not _is_whole(kept):
        _resolve(kept, pom)
    return kept.read_text()


def _cache() -> Path:
    """`$XDG_CACHE_HOME/headrace-peers`, else `~/.cache/headrace-peers`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace-peers"


def _is_whole(kept: Path) -> bool:
    return kept.exists() and all(map(os.path.exists, kept.read_text().split(os.pathsep)))


def _resolve(kept: Path, pom: Path) -> None:
    if shutil.which("mvn") is None:
        raise PeersError("Kafka comes from Maven Central and there is no `mvn` on the PATH: install Maven")
    kept.parent.mkdir(parents=True, exist_ok=True)
    draft = kept.with_suffix(f".{os.getpid()}")
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={draft}", "-DincludeScope=runtime"]
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(pom), *goal]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if result.returncode != 0:
        said = "\n".join((result.stdout + result.stderr).strip().splitlines()[:_OUTPUT_LINES])
        raise PeersError(f"Maven could not download Kafka; is Maven Central reached from here?\n{said}")
    os.replace(draft, kept)
