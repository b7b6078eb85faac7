"""The numbers of the code: how many product files there are, how large, how many imports, which names are used twice.

`make house` prints them. `make house CHECK=--check` fails where a rule of CONTRIBUTING.md that a program can check does
not hold: a docstring that begins with a bare word, a public class name or bound that two files define, a bound in
`headrace/core/limits.py` that fewer than two files use, a file that is too long.
"""

import ast
import io
import re
import statistics
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

PRODUCT = ("headrace/", "broker/", "operator/", "pyspark_headrace/")
TESTS = ("tests/", "e2e/")
LIMITS = "headrace/core/limits.py"
FILE_LINES_MAX = 500
BARE_WORDS = ("Of", "As", "What", "Where", "Those", "Whose", "Whom", "Whoever", "Whatever", "To", "In", "For", "Once")
"""The words that no docstring begins with: it begins with a noun phrase with its article, or with a verb."""
UNITS = ("_BYTES", "_MS", "_S", "_SECONDS", "_MIN", "_MAX", "_DEFAULT")
"""The ends of the names of bounds."""
SAME_NAME_TWICE: dict[str, str] = {}
"""The public class names that several files may define, each with the reason."""

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Source(NamedTuple):
    """One Python file."""

    path: str
    text: str
    tree: ast.Module

    @classmethod
    def read(cls, path: str, text: str | None = None) -> "Source":
        """Parse the text, or the file at the path where there is none."""
        text = Path(path).read_text() if text is None else text
        return cls(path, text, ast.parse(text))

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def code_lines(self) -> int:
        """The number of lines with a token that is no comment and no docstring."""
        code: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in _NO_CODE:
                code.update(range(token.start[0], token.end[0] + 1))
        return len(code - _lines_of(node.body[0] for node in self._documented()))

    @property
    def import_lines(self) -> int:
        return len(_lines_of(node for node in ast.walk(self.tree) if isinstance(node, ast.Import | ast.ImportFrom)))

    @property
    def bare_docstrings(self) -> list[str]:
        """Return "file:line: first words" for each docstring, of an attribute too, that begins with a bare word."""
        found = []
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                words = node.value.value.split()
                if words and words[0].rstrip(",.;:") in BARE_WORDS:
                    found.append(f"{self.path}:{node.lineno}: {' '.join(words[:6])}")
        return found

    @property
    def public_classes(self) -> list[str]:
        return [
            node.name for node in self.tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        ]

    @property
    def bounds(self) -> list[str]:
        """The public UPPER_CASE constants of the module whose name ends with a unit; all of them in limits.py."""
        targets: list[ast.expr] = []
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                targets += node.targets
            elif isinstance(node, ast.AnnAssign):
                targets.append(node.target)
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        public = [name for name in names if name.isupper() and not name.startswith("_")]
        return [name for name in public if self.path == LIMITS or name.endswith(UNITS)]

    @property
    def used_names(self) -> set[str]:
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.alias):
                found.add(node.name)
        return found

    def _documented(self) -> Iterator[_Documented]:
        """The nodes that have a docstring, which is the first statement of their body."""
        for node in ast.walk(self.tree):
            if isinstance(node, _Documented) and ast.get_docstring(node, clean=False) is not None:
                yield node


def _lines_of(nodes: Iterable[ast.stmt]) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def sources(*prefixes: str) -> list[Source]:
    """Read the Python files in git whose paths begin with one of the prefixes."""
    listed = subprocess.run(["git", "ls-files", "*.py"], check=True, capture_output=True, text=True).stdout.splitlines()
    return [Source.read(path) for path in listed if path.startswith(prefixes) and Path(path).exists()]


def defined_twice(names: Iterable[tuple[str, Sequence[str]]]) -> dict[str, list[str]]:
    """Return the names that more than one file defines, with those files, from pairs of a file and its names."""
    places = defaultdict(list)
    for path, defined in names:
        for name in defined:
            places[name].append(path)
    return {name: files for name, files in sorted(places.items()) if len(files) > 1}


def classes_twice(product: Sequence[Source]) -> dict[str, list[str]]:
    return defined_twice((one.path, one.public_classes) for one in product)


def bounds_twice(product: Sequence[Source]) -> dict[str, list[str]]:
    return defined_twice((one.path, one.bounds) for one in product)


def bounds_not_shared(product: Sequence[Source]) -> dict[str, list[str]]:
    """Return the bounds of limits.py that fewer than two files use, with the files that do.

    limits.py is one of these files where another bound is made from the first.
    """
    shared = [name for one in product if one.path == LIMITS for name in one.bounds]
    used = {one.path: one.used_names for one in product}
    users = {name: [path for path, names in used.items() if name in names] for name in shared}
    return {name: paths for name, paths in users.items() if len(paths) < 2}


def faults(product: Sequence[Source]) -> list[str]:
    """Return a line for each place where a rule does not hold."""
    twice = classes_twice(product)
    found = [
        f"{line}: a docstring begins with a noun phrase or a verb" for one in product for line in one.bare_docstrings
    ]
    found += [f"class {name}: {', '.join(at)}" for name, at in twice.items() if name not in SAME_NAME_TWICE]
    found += [f"class {name}: is not defined twice any more" for name in SAME_NAME_TWICE if name not in twice]
    found += [f"bound {name}: {', '.join(at)}" for name, at in bounds_twice(product).items()]
    for name, at in bounds_not_shared(product).items():
        found.append(f"{LIMITS}: {name} belongs into the module that uses it ({', '.join(at) or 'none does'})")
    found += [
        f"{one.path}: {one.lines} lines, {FILE_LINES_MAX} at most" for one in product if one.lines > FILE_LINES_MAX
    ]
    return found


def figures(product: Sequence[Source], tests: Sequence[Source]) -> list[tuple[str, str]]:
    """Return what is counted, and its number."""
    code = [one.code_lines for one in product]
    names = Counter(re.sub(r".*/", "", one.path) for one in product if not one.path.endswith("__init__.py"))
    bounds = [(one.path == LIMITS, name) for one in product for name in one.bounds]
    return [
        ("product files", f"{len(product):,}"),
        ("  lines of code (SLOC)", f"{sum(code):,}"),
        ("  median file, SLOC", f"{statistics.median(code):,.0f}"),
        ("  below 30 SLOC", f"{sum(lines < 30 for lines in code):,}"),
        ("  imports, share of SLOC", f"{sum(one.import_lines for one in product) / sum(code):.1%}"),
        ("  longest file, lines", f"{max(one.lines for one in product):,}"),
        (f"  above {FILE_LINES_MAX} lines", f"{sum(one.lines > FILE_LINES_MAX for one in product):,}"),
        ("file names used twice", f"{sum(count > 1 for count in names.values()):,}"),
        ("public class names twice", f"{len(classes_twice(product)):,}"),
        ("bare docstrings", f"{sum(len(one.bare_docstrings) for one in product):,}"),
        ("bounds", f"{len(bounds):,}"),
        ("  in core/limits.py", f"{sum(shared for shared, _ in bounds):,}"),
        ("  there, but not shared", f"{len(bounds_not_shared(product)):,}"),
        ("  defined twice", f"{len(bounds_twice(product)):,}"),
        ("test files", f"{len(tests):,}"),
        ("  lines", f"{sum(one.lines for one in tests):,}"),
    ]


def main(arguments: Sequence[str]) -> int:
    """Print the numbers; with --check, print what breaks a rule, and return 1 where something does."""
    product = sources(*PRODUCT)
    if "--check" in arguments:
        found = faults(product)
        say("\n".join(found) or "names, docstrings, bounds and file lengths are in order")
        return 1 if found else 0
    for what, number in figures(product, sources(*TESTS)):
        say(f"{what:<26}{number:>9}")
    return 0


def say(text: str) -> None:
    print(text)  # noqa: T201 - a command's output


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
