"""The README's way through Kubernetes, run as it is printed: every `bash` block, in order, in one shell."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from e2e.lab.home import lab_home
from e2e.release import CHECKOUT, Release

_BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VALUES = (
    "--set image.registry=registry.example,brokers.repository=headrace-broker,operator.repository=headrace-operator"
)
_SPARK_IMAGE = "registry.example/headrace-spark:0.1.0"


@pytest.mark.timeout(1500)  # With the images, where they are not built yet.
def test_should_work_when_the_readme_is_followed(images: Release, tmp_path: Path) -> None:
    text = "\n".join(_BLOCK.findall((CHECKOUT / "README.md").read_text()))
    assert _VALUES in text
    # Not spark.rbac of ci/lab.yaml: the README asks for Spark's account itself.
    text = text.replace(_VALUES, " ".join([*images.values, "--set", "spark.rbac=false"]))
    text = text.replace(_SPARK_IMAGE, images.image("spark"))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(images.cluster.kubeconfig.read_text())
    path = f"{lab_home() / 'bin'}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=CHECKOUT,
        env={**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"{run.stdout}\n{run.stderr}"
    assert run.returncode == 0, said
    for expected in (
        "Phase:          Succeeded",
        "topic.headrace.io/orders condition met",
        "consumergroup.headrace.io/billing",
        "fourth",
        "question",
        'release "headrace" uninstalled',
        "data-headrace-2",
    ):
        assert expected in said, f"{expected!r} is not in:\n{said}"
