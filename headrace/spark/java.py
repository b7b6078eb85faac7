"""The check for Java, which Spark needs and pip does not install: Spark's own error is obscure, this one names the
remedy.

Spark starts its JVM before it looks for data sources, so `format("headrace")` comes too late to say anything. What can
be asked before is an import: `import headrace.spark` (or `pyspark_headrace`) warns where no session could start.
"""

import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path

JAVA_VERSION_MIN = 17
_STARTED_BY_SPARK = ("PYSPARK_GATEWAY_PORT", "PYTHON_WORKER_FACTORY_PORT", "SPARK_ENV_LOADED", "SPARK_REMOTE")
"""The variables that are set where a JVM is there already, or on another machine."""
_REMEDY = (
    f"Spark needs Java {JAVA_VERSION_MIN} or newer, which pip does not install; install a JRE (Debian and Ubuntu:"
    " apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17), and set JAVA_HOME where it is not on"
    " PATH"
)


class JavaMissingWarning(RuntimeWarning):
    """No Spark session can start on this machine."""


def java_problem(environ: Mapping[str, str]) -> str | None:
    """Return why Spark cannot start here, with the remedy; None where it can, as far as can be seen without starting
    it."""
    if any(environ.get(name) for name in _STARTED_BY_SPARK):
        return None
    home = environ.get("JAVA_HOME")
    if home:
        if (Path(home) / "bin" / "java").exists():
            return None
        return f"JAVA_HOME is {home}, where there is no bin/java: {_REMEDY}"
    if shutil.which("java", path=environ.get("PATH", "")):
        return None
    return f"there is no java on PATH, and JAVA_HOME is not set: {_REMEDY}"


def warn_without_java(environ: Mapping[str, str]) -> None:
    problem = java_problem(environ)
    if problem is not None:
        warnings.warn(problem, JavaMissingWarning, stacklevel=3)
