"""The blocking and the asyncio faces of the client: what is the same in both is written once, in what both use."""

import ast
import re
from difflib import SequenceMatcher
from pathlib import Path

import pytest

import headrace.client

CLIENT = Path(headrace.client.__file__).parent
FACES = {
    "consumer/async_consumer.py": "consumer/consumer.py",
    "consumer/async_fetcher.py": "consumer/fetcher.py",
    "groups/async_member.py": "groups/blocking_member.py",
    "producer/async_producer.py": "producer/producer.py",
    "producer/async_sender.py": "producer/sender.py",
    "transport/async_brokers.py": "transport/brokers.py",
}
"""Each asyncio face, and the blocking one beside it."""
EQUAL_MAX = 0.25
"""The share of lines that two faces may have in common."""
SMALL_FACES = {"producer/async_producer.py": 0.43}
"""Faces that are little more than public methods, and `send`, in which each record pays for each call."""

_FACE = re.compile(r"\b(?:async|await) |\bAsync(?=[A-Z])|\bBlocking(?=[A-Z])|(?<=\b__)a(?=(?:enter|exit|iter|next)__)")
_EMPTY = re.compile(r"(?:try|else|finally|return|raise|pass|continue|break)?:?")
"""Words of the language alone, which say nothing of what is done."""


class _Code(ast.NodeTransformer):
    """Without imports and docstrings."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, [each for each in value if not _is_left_out(each)] or [ast.Pass()])
        return node


def _is_left_out(statement: ast.stmt) -> bool:
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, ast.Import | ast.ImportFrom)


def lines(source: str) -> list[str]:
    """The statements of a face, each one line, without what makes it a face of its kind."""
    written = ast.unparse(_Code().visit(ast.parse(source))).splitlines()
    normalised = (_FACE.sub("", line.strip()) for line in written)
    return [line for line in normalised if not _EMPTY.fullmatch(line)]


def equal_share(one: str, other: str) -> float:
    """The greater of what is found from either side, for difflib does not look for the most."""
    a, b = lines(one), lines(other)
    return max(SequenceMatcher(None, *pair, autojunk=False).ratio() for pair in ((a, b), (b, a)))


def test_should_find_what_is_the_same_but_for_the_kind_of_face() -> None:
    blocking = 'class Reader:\n    """Reads."""\n\n    def read(self):\n        return self.next(1)\n'
    asyncio = "import asyncio\n\n\nclass AsyncReader:\n    async def read(self):\n        return await self.next(\n1)\n"
    assert equal_share(blocking, asyncio) == 1
    assert equal_share(blocking, asyncio.replace("next", "wait")) == pytest.approx(2 / 3)


def test_should_know_all_faces() -> None:
    found = {path.relative_to(CLIENT).as_posix() for path in CLIENT.rglob("async_*.py")}
    assert found == set(FACES)


@pytest.mark.parametrize("face", FACES)
def test_should_write_once_what_both_faces_do(face: str) -> None:
    share = equal_share(*((CLIENT / path).read_text() for path in (face, FACES[face])))
    assert share <= SMALL_FACES.get(face, EQUAL_MAX), f"{share:.0%} of the lines of {face} and {FACES[face]} are equal"
