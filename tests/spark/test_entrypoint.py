"""What Spark's pods run: examples/spark/kubernetes/entrypoint.sh, with programs that say what they were given."""

import os
import subprocess
from pathlib import Path

ENTRYPOINT = Path(__file__).parents[2] / "examples" / "spark" / "kubernetes" / "entrypoint.sh"
OF_AN_EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "600m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.1",
    "SPARK_EXECUTOR_POD_NAME": "job-exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


def started(folder: Path, *arguments: str, **environment: str) -> list[str]:
    """The program that runs then, and its arguments."""
    for program in (folder / "bin" / "java", folder / "bin" / "spark-submit"):
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/bash\nprintf "%s\\n" "$0" "$@"\n')
        program.chmod(0o755)
    homes = {"SPARK_HOME": str(folder), "JAVA_HOME": str(folder), "PATH": os.environ["PATH"]}
    done = subprocess.run([ENTRYPOINT, *arguments], env={**homes, **environment}, capture_output=True, check=True)
    return done.stdout.decode().splitlines()


def test_should_submit_to_itself_as_a_driver(tmp_path: Path) -> None:
    arguments = ("--properties-file", "/opt/spark/conf/spark.properties", "local:///opt/jobs/wordcount.py", "a b")
    program, *told = started(tmp_path, "driver", *arguments, SPARK_DRIVER_BIND_ADDRESS="10.0.0.1")
    assert program == f"{tmp_path}/bin/spark-submit"
    assert told == ["--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.0.0.1", *arguments]


def test_should_give_an_executor_its_options_in_their_order(tmp_path: Path) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dnumber={number} of 12" for number in range(12)}
    program, *told = started(tmp_path, "executor", **OF_AN_EXECUTOR, **options, SPARK_CONF_DIR="/opt/spark/conf")
    assert program == f"{tmp_path}/bin/java"
    assert told[:12] == [*options.values()]
    assert told[12:16] == ["-Xms600m", "-Xmx600m", "-cp", f"/opt/spark/conf:{tmp_path}/jars/*"]
    named = dict(zip(told[17::2], told[18::2], strict=True))
    assert named["--driver-url"] == OF_AN_EXECUTOR["SPARK_DRIVER_URL"]
    assert (named["--hostname"], named["--podName"], named["--cores"]) == ("10.0.0.1", "job-exec-1", "2")


def test_should_start_an_executor_without_options(tmp_path: Path) -> None:
    _, first, *_ = started(tmp_path, "executor", **OF_AN_EXECUTOR)
    assert first == "-Xms600m"


def test_should_run_anything_else_as_it_is(tmp_path: Path) -> None:
    assert started(tmp_path, "echo", "driver") == ["driver"]
