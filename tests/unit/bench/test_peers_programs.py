"""What the comparison runs beside Headrace: Maven's answers are kept, and what is missing is named with its remedy."""

import os
import sys
from pathlib import Path

import pytest

from bench.peers.errors import PeersError
from bench.peers.maven import kafka_classpath, spark_source_jars
from bench.peers.processes import Server, run


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH, with a `java` that nobody calls; Maven's answers are kept beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    install(folder / "java", "exit 1")
    return folder


def install(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


WRITES_A_CLASSPATH = """for argument; do case $argument in
-Dmdep.outputFile=*) printf %s "{jars}" > "${{argument#*=}}"; echo once >> "{calls}";; esac; done"""


def test_should_ask_maven_once_and_again_when_a_jar_is_gone(programs: Path, tmp_path: Path) -> None:
    jars, calls = [tmp_path / "kafka.jar", tmp_path / "clients.jar"], tmp_path / "calls"
    for jar in jars:
        jar.touch()
    classpath = os.pathsep.join(map(str, jars))
    install(programs / "mvn", WRITES_A_CLASSPATH.format(jars=classpath, calls=calls))
    assert [kafka_classpath(), kafka_classpath()] == [classpath] * 2
    assert calls.read_text().splitlines() == ["once"]
    jars[0].unlink()
    kafka_classpath()
    assert calls.read_text().splitlines() == ["once", "once"]


def test_should_leave_out_the_jars_that_spark_comes_with(programs: Path, tmp_path: Path) -> None:
    names = (
        "spark-sql-kafka-0-10_2.13-4.2.0.jar",
        "kafka-clients-3.9.2.jar",
        "lz4-java-1.10.1.jar",
        "jsr305-3.0.0.jar",
    )
    jars = [tmp_path / name for name in names]
    for jar in jars:
        jar.touch()
    script = WRITES_A_CLASSPATH.format(jars=os.pathsep.join(map(str, jars)), calls=tmp_path / "calls")
    install(programs / "mvn", script)
    bundled = [Path("jars/lz4-java-1.11.0.jar"), Path("jars/jsr305-3.0.0.jar"), Path("jars/kafka-2.0.jar")]
    assert spark_source_jars(bundled) == [str(jar) for jar in jars[:2]]


def test_should_say_that_the_download_failed_and_what_maven_said(programs: Path) -> None:
    install(programs / "mvn", "echo 'Could not transfer artifact'; exit 1")
    with pytest.raises(PeersError, match=r"Maven could not download Kafka[^\n]*\nCould not transfer artifact"):
        kafka_classpath()


@pytest.mark.parametrize(("missing", "remedy"), [("java", "install a JDK"), ("mvn", "install Maven")])
def test_should_name_the_program_that_is_missing(programs: Path, missing: str, remedy: str) -> None:
    (programs / missing).unlink(missing_ok=True)
    with pytest.raises(PeersError, match=remedy):
        kafka_classpath()


def test_should_count_what_a_client_cost_and_return_what_it_said() -> None:
    work = (
        "import time; block = b'x' * (64 << 20); end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    )
    finished = run([sys.executable, "-S", "-c", f"{work}\nprint(len(block))"], dict(os.environ))
    assert finished.output == f"{64 << 20}\n"
    assert 0.2 <= finished.cpu_s < 5
    assert 64 << 20 < finished.peak_bytes < 1 << 30


def test_should_show_what_a_client_that_failed_has_said() -> None:
    with pytest.raises(PeersError, match=r"exit code 3(.|\n)*the reason"):
        run([sys.executable, "-S", "-c", "import sys; print('the reason'); sys.exit(3)"], dict(os.environ))


def test_should_read_what_the_kernel_counts_of_a_process() -> None:
    server = Server(os.getpid())
    assert server.cpu_s() > 0
    assert 0 < server.resident_bytes() <= server.peak_bytes()
    assert server.started_s() > 0
