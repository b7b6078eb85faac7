"""docs/tour.md and the lists of folders: each file that is linked exists, and defines each name that a link gives."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOUR = ROOT / "docs" / "tour.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "charts").rglob("*.md")])
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s]+)(?:#[^)]*)?\)")
_FOLDERS = "headrace|broker|operator|pyspark_headrace|tests|e2e|bench|docs|docker|crds|charts|examples|\\.ci"
_PATH = re.compile(rf"`((?:{_FOLDERS})/[\w./-]*(?:/|\.\w+))`")
_NEVER_THERE = "operator/__init__.py"
"""It would shadow the standard library's module: pages say so."""
_Scope = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def links(page: Path) -> Iterator[tuple[str, Path]]:
    """The text and the file of each link that leads to a file."""
    for found in _LINK.finditer(page.read_text()):
        if "://" not in found["target"]:
            yield found["text"], (page.parent / found["target"]).resolve()


@cache
def names_in(file: Path) -> frozenset[str]:
    """What a module defines: `name` and `Class.name`, the attributes of its objects included."""
    return frozenset(_defined(ast.parse(file.read_text()).body))


@cache
def headings_in(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = re.findall("^#+ (.+)$", page.read_text(), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found)


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, _Scope):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{name}" for name in {*_defined(node.body), *_attributes(node)})


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and isinstance(each.value, ast.Name):
            yield each.attr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_should_name_files_that_there_are(page: Path) -> None:
    assert [str(file.relative_to(ROOT)) for _, file in links(page) if not file.exists()] == []
    if page.name != "CHANGELOG.md":
        named = set(_PATH.findall(page.read_text())) - {_NEVER_THERE}
        assert sorted(path for path in named if not (ROOT / path).exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_should_link_headings_that_there_are(page: Path) -> None:
    anchors = re.findall(r"\]\((?P<target>[\w./-]*)#(?P<anchor>[^)]+)\)", page.read_text())
    linked = [((page.parent / target).resolve() if target else page, anchor) for target, anchor in anchors]
    assert [f"{file.name}#{anchor}" for file, anchor in linked if anchor not in headings_in(file)] == []


def test_should_give_names_that_their_files_define() -> None:
    missing = []
    for text, file in links(TOUR):
        names = names_in(file) if file.suffix == ".py" else frozenset[str]()
        missing += [
            f"{name} in {file.relative_to(ROOT)}" for name in re.findall("`([^`]+)`", text) if name not in names
        ]
    assert missing == []


def test_should_lead_through_all_four_walks() -> None:
    page = TOUR.read_text()
    walks = [part for part in page.split("\n## ")[1:] if re.search(r"^1\. ", part, re.MULTILINE)]
    assert len(walks) == 4
    for walk in walks:
        stations = re.split(r"^\d+\. ", walk, flags=re.MULTILINE)[1:]
        assert len(stations) >= 8
        assert all(_LINK.search(station) for station in stations), "a station is somewhere"


def test_should_list_the_packages_that_there_are() -> None:
    layers = ARCHITECTURE.read_text().partition("\n## Layers\n")[2].partition("\n## ")[0]
    listed = set(re.findall("`(headrace[\\w.]*)`", "".join(re.findall(r"^\|([^|]*)\|", layers, re.MULTILINE))))
    shown = [*ROOT.glob("headrace/*/"), *ROOT.glob("headrace/core/*/")]
    packages = {".".join(path.relative_to(ROOT).parts) for path in shown if (path / "__init__.py").exists()}
    assert listed == packages - {"headrace.core"} | {"headrace_broker", "headrace_operator"}
