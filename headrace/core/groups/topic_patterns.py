"""Regular expressions over topic names, in time that is linear in the name: no pattern can block a coordinator.

Python's `re` goes back and tries again, so that `(a+)+b` takes for ever on forty characters; here all ways are gone at
once (Thompson's construction, 1968, as RE2 does it). A pattern matches the whole name:

    a  .  [a-z0-9]  [^a-c]  and d w . - after a backslash    one character
    (ab)  (?:ab)                                             a group
    x*  x+  x?  x{2}  x{2,}  x{2,5}                          repetitions
    a|b                                                      either; ^ and $ at the ends

A construct that needs to go back (references, look-around) or that means nothing for a name (lazy, flags) is refused
by name. Names are DNS labels, so the alphabet has 37 characters and a set of them is a plain set; any other character
may be written, and matches nothing. Bounds: the pattern's length, its depth, the states of its automaton. Apart from
`assignment`, because the command line reads patterns without a group.
"""

import string
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, assert_never

from headrace.core.errors import InvalidRequestError

TOPIC_PATTERN_LENGTH_MAX = 256
TOPIC_PATTERN_STATES_MAX = 512
"""The number of states of a pattern's automaton: the highest cost of one character."""
TOPIC_PATTERN_DEPTH_MAX = 32
"""The depth of groups within groups."""
TOPIC_PATTERNS_KEPT_MAX = 256
"""The number of patterns that a process keeps ready: a group matches its members' again with every topic that comes or
goes."""


_ALPHABET = frozenset(string.ascii_lowercase + string.digits + "-")
_ESCAPED_SETS = {"d": frozenset(string.digits), "w": frozenset(string.ascii_lowercase + string.digits)}
_REPEATED = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_MATCHED = 0
"""The state in which the whole name was read."""
_State: TypeAlias = tuple[frozenset[str], tuple[int, ...]]
"""A state: with a character of the set, or with none where the set is empty, matching goes on in all of these."""


@dataclass(frozen=True, slots=True)
class _Chars:
    any_of: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple["_Node", ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    either: tuple["_Node", ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    node: "_Node"
    least: int
    most: int | None
    """The largest number of repetitions; None: without end."""


_Node: TypeAlias = _Chars | _Sequence | _Choice | _Repeat


class TopicPattern:
    """A compiled pattern; `topic_pattern` makes it."""

    def __init__(self, root: _Node) -> None:
        """Build the automaton. Raises InvalidRequestError where it is too large."""
        self._states: list[_State] = [(frozenset(), ())]
        start = self._build(root, _MATCHED)
        self._start = self._reached([start])

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        at = self._start
        for char in name:
            at = self._reached(state for each in at if char in self._states[each][0] for state in self._states[each][1])
            if not at:
                return False
        return _MATCHED in at

    def _reached(self, states: Iterable[int]) -> frozenset[int]:
        """Return these, and those behind them that need no character."""
        reached: set[int] = set()
        ahead = list(states)
        while ahead:
            state = ahead.pop()
            if state not in reached:
                reached.add(state)
                chars, nexts = self._states[state]
                ahead += () if chars else nexts
        return frozenset(reached)

    def _add(self, chars: frozenset[str], *nexts: int) -> int:
        if len(self._states) == TOPIC_PATTERN_STATES_MAX:
            raise InvalidRequestError(
                f"the topic pattern repeats too much: written out it has more than {TOPIC_PATTERN_STATES_MAX} parts"
            )
        self._states.append((chars, nexts))
        return len(self._states) - 1

    def _build(self, node: _Node, then: int) -> int:
        """Return where to begin so that `then` is reached after `node`."""
        match node:
            case _Chars(any_of):
                # An empty set would need no character: such a state leads nowhere.
                return self._add(any_of, then) if any_of else self._add(any_of)
            case _Sequence(parts):
                for part in reversed(parts):
                    then = self._build(part, then)
                return then
            case _Choice(either):
                return self._add(frozenset(), *(self._build(part, then) for part in either))
            case _Repeat():
                return self._build_repeat(node, then)
            case _:
                assert_never(node)

    def _build_repeat(self, node: _Repeat, then: int) -> int:
        start = then
        if node.most is None:
            start = self._add(frozenset())
            self._states[start] = (frozenset(), (self._build(node.node, start), then))
        else:
            for _ in range(node.most - node.least):
                start = self._add(frozenset(), self._build(node.node, start), then)
        for _ in range(node.least):
            start = self._build(node.node, start)
        return start


@lru_cache(TOPIC_PATTERNS_KEPT_MAX)
def topic_pattern(text: str) -> TopicPattern:
    """Return the compiled pattern. Raises InvalidRequestError: what is wrong, and where."""
    if len(text) > TOPIC_PATTERN_LENGTH_MAX:
        raise InvalidRequestError(f"the topic pattern has {len(text)} characters: at most {TOPIC_PATTERN_LENGTH_MAX}")
    return TopicPattern(_Parser(text).parse())


class _Parser:
    """A parser of one pattern, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        root = self._choice()
        if self._at < len(self._text):
            raise self._wrong("')' without its '('")
        return root

    def _choice(self) -> _Node:
        either = [self._sequence()]
        while self._take("|"):
            either.append(self._sequence())
        return either[0] if len(either) == 1 else _Choice(tuple(either))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if not self._maybe_anchor():
                parts.append(self._repeated(self._atom()))
        return _Sequence(tuple(parts))

    def _maybe_anchor(self) -> bool:
        """Skip an anchor: the whole name is matched anyway; in the middle an anchor would match nothing."""
        if self._take("^"):
            if self._at > 1:
                raise self._wrong("'^' stands at the start only")
            return True
        if self._take("$"):
            if self._at < len(self._text):
                raise self._wrong("'$' stands at the end only")
            return True
        return False

    def _repeated(self, node: _Node) -> _Node:
        char = self._peek()
        if char in _REPEATED:
            self._at += 1
            node = _Repeat(node, *_REPEATED[char])
        elif self._take("{"):
            node = self._counted(node)
        else:
            return node
        if self._peek() and self._peek() in "*+?{":
            raise self._wrong("a repetition of a repetition: set a group, as in (?:a+)*; lazy ones make no difference")
        return node

    def _counted(self, node: _Node) -> _Node:
        inside, closed, _ = self._text[self._at :].partition("}")
        least, comma, most = inside.partition(",")
        if not closed or not least.isdecimal() or not (most.isdecimal() or most == ""):
            raise self._wrong("write {2}, {2,} or {2,5}")
        self._at += len(inside) + 1
        end = int(most) if most else None if comma else int(least)
        if max(int(least), end or 0) > TOPIC_PATTERN_STATES_MAX or (end is not None and end < int(least)):
            raise self._wrong(f"a repetition counts up to {TOPIC_PATTERN_STATES_MAX}, the lesser number first")
        return _Repeat(node, int(least), end)

    def _atom(self) -> _Node:
        char = self._text[self._at]
        self._at += 1
        match char:
            case "(":
                return self._group()
            case "[":
                return _Chars(self._set() & _ALPHABET)
            case ".":
                return _Chars(_ALPHABET)
            case "\\":
                return _Chars(self._escaped() & _ALPHABET)
            case "*" | "+" | "?" | "{":
                raise self._wrong(f"nothing to repeat before {char!r}")
            case _:
                return _Chars(frozenset(char) & _ALPHABET)

    def _group(self) -> _Node:
        self._depth += 1
        if self._depth > TOPIC_PATTERN_DEPTH_MAX:
            raise self._wrong(f"groups lie within each other more than {TOPIC_PATTERN_DEPTH_MAX} deep")
        if self._take("?") and not self._take(":"):
            raise self._wrong("of the groups that begin with '(?' only '(?:' is taken: no flags, names, look-around")
        inside = self._choice()
        if not self._take(")"):
            raise self._wrong("'(' without its ')'")
        self._depth -= 1
        return inside

    def _set(self) -> frozenset[str]:
        negated = self._take("^")
        chars = self._range()
        while not self._take("]"):
            chars |= self._range()
        return _ALPHABET - chars if negated else chars

    def _range(self) -> frozenset[str]:
        first = self._set_char()
        rest = self._text[self._at : self._at + 2]
        if not rest.startswith("-") or rest in ("-", "-]"):
            return first
        self._at += 1
        last = self._set_char()
        if len(first) > 1 or len(last) > 1 or min(first) > min(last):
            raise self._wrong("a range goes from a character to one that comes after it")
        return frozenset(char for char in _ALPHABET if min(first) <= char <= min(last))

    def _set_char(self) -> frozenset[str]:
        char = self._peek()
        if not char:
            raise self._wrong("'[' without its ']'")
        self._at += 1
        return self._escaped() if char == "\\" else frozenset(char)

    def _escaped(self) -> frozenset[str]:
        char = self._peek()
        self._at += 1
        if char in _ESCAPED_SETS:
            return _ESCAPED_SETS[char]
        if not char or char.isalnum():
            raise self._wrong("after '\\' come d, w or a character that is no letter or digit; no references")
        return frozenset(char)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, char: str) -> bool:
        taken = self._peek() == char
        self._at += taken
        return taken

    def _wrong(self, what: str) -> InvalidRequestError:
        return InvalidRequestError(f"topic pattern {self._text!r}, character {min(self._at, len(self._text))}: {what}")
