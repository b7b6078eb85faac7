"""JSON whose numbers and doubled names stay as they are written.

Python's `json` reads `1.10` as 1.1, `1E5` as 100000.0, a long decimal as the nearest double, `1e400` as no JSON at all,
and of two members with one name it keeps the last. Here a value that was read is, when it is written again, the same
text without the space between its tokens, and with the shortest escapes in its strings. Both directions are of one
kind of tree:

    string  str           number  its text, as bytes           object  tuple of (name, value)           array  list

NaN and Infinity are no JSON. Reading is the decoder's work, in C: none of it takes a step in Python. Called by the JSON
form of records, and by the command line.
"""

import json
import re
from json.encoder import encode_basestring as quoted
from typing import Any, Final, NoReturn, TypeAlias

Tree: TypeAlias = Any
"""str, bytes, tuple, list, True, False or None, as above."""

_SCALARS: Final[dict[object, str]] = {None: "null", True: "true", False: "false"}
_BRACKETS: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')


def parse_json(text: str) -> Tree:
    """Raises ValueError where the whole of it is no JSON, RecursionError where it is nested too deeply."""
    return _DECODER.decode(text)


def json_text(tree: Tree) -> str:
    """Raises RecursionError; half of a surrogate pair in a string stays one."""
    kind = type(tree)
    if kind is str:
        return quoted(tree)
    if kind is bytes:
        return str(tree, "ascii")
    if kind is tuple:
        return "{" + ",".join([f"{quoted(name)}:{json_text(value)}" for name, value in tree]) + "}"
    if kind is list:
        return "[" + ",".join(map(json_text, tree)) + "]"
    return _SCALARS[tree]


def is_deeper(text: str, limit: int) -> bool:
    """Whether arrays and objects are nested deeper than that. `text` is JSON."""
    if text.count("{") + text.count("[") <= limit:
        return False
    depth = 0
    for token in _BRACKETS.findall(text):
        if token in "[{":
            depth += 1
            if depth > limit:
                return True
        elif token in "]}":
            depth -= 1
    return False


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER: Final = json.JSONDecoder(
    parse_float=str.encode,
    parse_int=str.encode,
    parse_constant=_not_json,
    object_pairs_hook=tuple,
)
