"""docs/configuration.md: every value of the chart and every field of the resources, from the files that define them."""

import re
from collections.abc import Iterator
from typing import Any

import yaml

_HEAD = """# Configuration

Made by `python -m charts.tools` from [`values.yaml`](../charts/headrace/values.yaml) and [`crds/`](../crds): change
those.

## Values of the chart

`helm install` refuses values that are not here, and values of the wrong form.

| value | default | |
|---|---|---|
"""
_KEY = re.compile(r"(?P<indent> *)(?P<name>\w+):(?P<value> .*)?$")
_KINDS = {
    "topics": "Topic",
    "consumergroups": "ConsumerGroup",
    "partitionsets": "PartitionSet",
}
_ABOUT = {
    "Topic": "What users write, and the only thing they must.",
    "ConsumerGroup": "Made by itself with a group's first member; write one for other settings than the defaults.",
    "PartitionSet": "Written by operator and brokers. For reading, never for writing.",
}


def page(values: str, crds: dict[str, str]) -> str:
    """As Markdown. `crds` by plural name."""
    rows = "".join(f"| `{path}` | `{default}` | {_cell(about)} |\n" for path, default, about in values_of(values))
    kinds = "".join(_kind(kind, yaml.safe_load(crds[plural])) for plural, kind in _KINDS.items())
    return _HEAD + rows + kinds


def values_of(text: str) -> Iterator[tuple[str, str, str]]:
    """Path, default, and the comment above it, of each value of a values.yaml."""
    above: list[str] = []
    path: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            above.append(line.strip().removeprefix("#").strip())
            continue
        if found := _KEY.match(line):
            del path[len(found["indent"]) // 2 :]
            path.append(found["name"])
            if found["value"]:
                yield ".".join(path), found["value"].strip(), " ".join(above)
        above = []


def _kind(kind: str, crd: dict[str, Any]) -> str:
    (version,) = crd["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rows = "".join(_fields("spec", spec))
    return f"\n## {kind}\n\n{_ABOUT[kind]}\n\n| field | type | default | |\n|---|---|---|---|\n{rows}"


def _fields(path: str, schema: dict[str, Any]) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        inner = f"{path}.{name}"
        default = (
            f"`{yaml.safe_dump(field['default'], default_flow_style=True).split(chr(10))[0]}`"
            if "default" in field
            else ""
        )
        yield f"| `{inner}` | {_type(field)} | {default} | {_cell(field.get('description', ''))} |\n"
        yield from _fields(inner, field)
        yield from _fields(f"{inner}[]", field.get("items", {}))


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    least, most = field.get("minimum"), field.get("maximum")
    bounds = (
        f", {'' if least is None else least} to {'' if most is None else most}"
        if least is not None or most is not None
        else ""
    )
    return f"{field.get('type', 'any')}{bounds}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
