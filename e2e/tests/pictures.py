"""Pictures of the dashboards: each panel at its place in Grafana, with what Prometheus answers to its own queries.

How they look is matplotlib's.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, Formatter, FuncFormatter, MaxNLocator, PercentFormatter, StrMethodFormatter

from charts.tools.panels import GRID_WIDTH, resolved

_STEP_S = 1
_TIMEOUT_S = 30
_CELL_INCHES = (0.55, 0.36)
_MOST_IN_LEGEND = 6
_UNITS = {"Bps": "B/s", "bytes": "B", "s": "s", "reqps": "/s", "cps": "/s", "short": ""}


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    times: list[float]
    """Seconds; those before now are negative."""
    values: list[float]


@dataclass(frozen=True, slots=True)
class History:
    """What a Prometheus has of the last `seconds`."""

    url: str
    until: float
    seconds: float

    def series(self, expr: str, legend: str) -> list[Series]:
        """Of one query. Raises OSError."""
        query = {"query": expr, "start": self.until - self.seconds, "end": self.until, "step": _STEP_S}
        with urlopen(f"{self.url}/api/v1/query_range?{urlencode(query)}", timeout=_TIMEOUT_S) as answer:
            results: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return [
            Series(
                named(legend, result["metric"]),
                [at - self.until for at, _ in result["values"]],
                [float(value) for _, value in result["values"]],
            )
            for result in results
        ]


def named(legend: str, labels: Mapping[str, str]) -> str:
    """`{{topic}}` and the like replaced, as Grafana does."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)


def drawn(dashboard: Mapping[str, Any], history: History) -> Figure:
    """Raises OSError when Prometheus does not answer."""
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"]) + 1
    figure = Figure(figsize=(GRID_WIDTH * _CELL_INCHES[0], height * _CELL_INCHES[1]), facecolor="white")
    figure.text(0.01, 1 - 0.5 / height, dashboard["title"], fontsize=15, weight="bold", va="center")
    variables = [variable["name"] for variable in dashboard["templating"]["list"]]
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        left, top = place["x"] / GRID_WIDTH, 1 - (place["y"] + 1) / height
        if panel["type"] == "row":
            figure.text(0.01, top - 0.5 / height, panel["title"], fontsize=12, weight="bold", va="center")
            continue
        found = [
            series
            for target in panel["targets"]
            for series in history.series(resolved(target["expr"], variables), target["legendFormat"])
        ]
        # Around the axes: labels on the left, the title above, the legend below.
        inner = (
            left + 1.2 / GRID_WIDTH,
            top - (place["h"] - (2 if panel["type"] == "timeseries" else 0.5)) / height,
            (place["w"] - 1.8) / GRID_WIDTH,
            (place["h"] - (3 if panel["type"] == "timeseries" else 1.8)) / height,
        )
        axes = figure.add_axes(inner)
        axes.set_title(panel["title"], fontsize=9, loc="left")
        unit = panel["fieldConfig"]["defaults"]["unit"]
        if panel["type"] == "timeseries":
            custom = panel["fieldConfig"]["defaults"]["custom"]
            _graph(axes, found, unit, history.seconds, is_logarithmic="scaleDistribution" in custom)
        else:
            _stat(axes, found, unit)
    return figure


def _graph(axes: Axes, found: list[Series], unit: str, seconds: float, *, is_logarithmic: bool) -> None:
    greatest_first = sorted(found, key=lambda series: max(series.values), reverse=True)
    for number, series in enumerate(greatest_first):
        label = series.name if number < _MOST_IN_LEGEND else None
        axes.plot(series.times, series.values, linewidth=1, label=label)
        axes.fill_between(series.times, series.values, alpha=0.1)
    some = any(value > 0 for series in found for value in series.values)
    if is_logarithmic and some:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, None if some else 1)
    axes.set_xlim(-seconds, 0)
    axes.yaxis.set_major_formatter(_formatter(unit))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g} s"))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if any(series.name for series in found):
        axes.legend(fontsize=6, ncols=3, loc="upper left", bbox_to_anchor=(0, -0.12), frameon=False)


def _stat(axes: Axes, found: list[Series], unit: str) -> None:
    axes.set_axis_off()
    text = ", ".join(_formatter(unit)(series.values[-1]) for series in found) or "no data"
    axes.text(0.5, 0.4, text, fontsize=20, ha="center", va="center", transform=axes.transAxes)


def _formatter(unit: str) -> Formatter:
    if unit == "percentunit":
        return PercentFormatter(1)
    engineers = EngFormatter(_UNITS[unit])
    return engineers if unit == "s" else FuncFormatter(partial(_counted, engineers, _UNITS[unit]))


def _counted(engineers: Formatter, unit: str, value: float, position: int | None = None) -> str:
    """Of what is counted there are no thousandths: `0.08 /s`, not `80 m/s`, as Grafana has it."""
    return f"{value:g} {unit}".rstrip() if 0 < abs(value) < 1 else engineers(value, position)
