"""`python -m charts.tools`: write what is made: the dashboards, and docs/configuration.md."""

import json
from pathlib import Path

from charts.tools.configuration import page
from charts.tools.dashboards import DASHBOARDS
from charts.tools.panels import model

CHECKOUT = Path(__file__).parents[2]
CHART = CHECKOUT / "charts" / "headrace"


def made() -> dict[Path, str]:
    """What is in the files that are made."""
    crds = {file.stem: file.read_text() for file in (CHECKOUT / "crds").glob("*.yaml")}
    files = {CHECKOUT / "docs" / "configuration.md": page((CHART / "values.yaml").read_text(), crds)}
    for dashboard in DASHBOARDS:
        file = CHART / "files" / "dashboards" / f"{dashboard.name}.json"
        files[file] = json.dumps(model(dashboard), indent=1) + "\n"
    return files


if __name__ == "__main__":
    for file, content in made().items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
