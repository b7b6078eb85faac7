"""docs/tls.md: its commands, run in order, and the options and metrics that it names."""

from pathlib import Path

import yaml

from headrace_broker.main import main as broker
from tests.support.pages import follow

PAGE = Path(__file__).parents[3] / "docs" / "tls.md"


def test_should_work_when_the_page_is_followed(tmp_path: Path) -> None:
    done = follow(PAGE.read_text(), tmp_path, tmp_path / "home")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for expected in ("over TLS", "[b'from the SDK', b'over TLS']", '"url": "https://127.0.0.1:', "secret/headrace-tls"):
        assert expected in done.stdout, f"{expected!r} is not in:\n{done.stdout}\n{done.stderr}"


def test_should_name_options_that_there_are_and_manifests_that_can_be_read() -> None:
    page = PAGE.read_text()
    options = {name for parameter in broker.params for name in parameter.opts if name.startswith("--tls")}
    assert all(f"`{name}`" in page for name in options)
    manifests = [yaml.safe_load(block.partition("```")[0]) for block in page.split("```yaml\n")[1:]]
    assert [manifest["kind"] for manifest in manifests] == ["Certificate", "Role"]
