"""Grafana's dashboards as JSON, from what differs: titles, queries, units. Grafana 10 or newer.

https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

GRID_WIDTH = 24
_STAT_HEIGHT, _GRAPH_HEIGHT = 4, 8
_GRAPH_WIDTH = 12
_SCHEMA_VERSION = 39
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    """PromQL, with Grafana's `$variables`."""
    legend: str = ""
    """Of its series, as `{{topic}}`."""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    """Of Grafana: `short`, `Bps`, `bytes`, `s`, `reqps`, `percentunit`."""
    help: str = ""
    kind: str = "timeseries"
    bad_from: float | None = None
    """A stat is red from here on; below it is green."""
    is_logarithmic: bool = False
    """Lines that differ a thousandfold are all to be seen."""


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    values: str
    """PromQL of Grafana: `label_values(metric, label)`."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    name: str
    """Of its file."""
    title: str
    about: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]


def graph(
    title: str, *queries: tuple[str, str], unit: str = "short", about: str = "", logarithmic: bool = False
) -> Panel:
    """Lines over time. Each query with the legend of its series."""
    return Panel(title, tuple(Query(*each) for each in queries), unit, about, is_logarithmic=logarithmic)


def stat(title: str, expr: str, *, bad_from: float | None = None, about: str = "") -> Panel:
    """One number, as it is now."""
    return Panel(title, (Query(expr),), help=about, kind="stat", bad_from=bad_from)


def model(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"headrace-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["headrace"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_SOURCE, *map(_variable, dashboard.variables)]},
        "links": [
            {"type": "dashboards", "tags": ["headrace"], "title": "Headrace", "asDropdown": True, "keepTime": True}
        ],
        "panels": list(_placed(dashboard.rows)),
    }


def resolved(expr: str, variables: Iterable[str], *, rate_interval: str = "30s") -> str:
    """What Grafana asks Prometheus for `expr` of a panel when "All" is chosen for each of the dashboard's variables."""
    expr = expr.replace("$__rate_interval", rate_interval)
    for variable in variables:
        expr = expr.replace(f"${variable}", ".*")
    return expr


_SOURCE = {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus"}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "type": "query",
        "name": variable.name,
        "datasource": _DATASOURCE,
        "query": {"query": variable.values, "refId": "variable"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """From left to right, from top to bottom."""
    number = y = 0
    for row in rows:
        number += 1
        yield {"id": number, "type": "row", "title": row.title, "gridPos": _place(0, y, GRID_WIDTH, 1), "panels": []}
        x, y, height = 0, y + 1, 0
        stats = sum(panel.kind == "stat" for panel in row.panels)
        for panel in row.panels:
            wide, high = (GRID_WIDTH // stats, _STAT_HEIGHT) if panel.kind == "stat" else (_GRAPH_WIDTH, _GRAPH_HEIGHT)
            if x + wide > GRID_WIDTH or height not in (0, high):
                x, y = 0, y + height
            number += 1
            yield _panel(number, panel, _place(x, y, wide, high))
            x, height = x + wide, high
        y += height


def _place(x: int, y: int, w: int, h: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _DATASOURCE,
            "expr": query.expr,
            "legendFormat": query.legend,
            "instant": panel.kind == "stat",
            "range": panel.kind != "stat",
        }
        for index, query in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, **_look(panel)}, "overrides": []},
        "options": _OPTIONS[panel.kind],
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "stat": {"colorMode": "value", "graphMode": "area", "reduceOptions": {"calcs": ["lastNotNull"]}},
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
}


def _look(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        lines = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
        if panel.is_logarithmic:
            return {"custom": {**lines, "fillOpacity": 0, "scaleDistribution": {"type": "log", "log": 10}}}
        return {"min": 0, "custom": lines}
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.bad_from is not None:
        steps.append({"color": "red", "value": panel.bad_from})
    return {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}
