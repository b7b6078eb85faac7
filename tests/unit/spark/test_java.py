"""What is said where Spark could not start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark.java import java_problem
from tests.support.patience import patient


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A JAVA_HOME."""
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program.parent.parent


def test_should_name_the_remedy_when_there_is_no_java(tmp_path: Path) -> None:
    problem = java_problem({"PATH": str(tmp_path)})
    assert problem is not None
    assert "no java on PATH" in problem
    assert "Java 17 or newer" in problem
    assert "set JAVA_HOME" in problem


def test_should_name_the_folder_when_java_home_has_no_java(tmp_path: Path) -> None:
    problem = java_problem({"PATH": "", "JAVA_HOME": str(tmp_path)})
    assert problem is not None
    assert f"JAVA_HOME is {tmp_path}, where there is no bin/java" in problem


def test_should_say_nothing_when_java_is_there(java: Path) -> None:
    assert java_problem({"JAVA_HOME": str(java)}) is None
    assert java_problem({"PATH": f"/nowhere:{java / 'bin'}"}) is None


@pytest.mark.parametrize("name", ["PYSPARK_GATEWAY_PORT", "PYTHON_WORKER_FACTORY_PORT", "SPARK_REMOTE"])
def test_should_say_nothing_when_spark_runs_already(name: str) -> None:
    assert java_problem({"PATH": "", name: "1"}) is None


@pytest.mark.parametrize("module", ["headrace.spark", "pyspark_headrace"])
def test_should_warn_when_the_source_is_imported_without_java(tmp_path: Path, module: str) -> None:
    kept = {name: value for name, value in os.environ.items() if "JAVA" not in name and "SPARK" not in name}
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}"],
        env={**kept, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,  # Where PySpark is not there either, the import fails after its warning.
    )
    assert "JavaMissingWarning: there is no java on PATH" in done.stderr
