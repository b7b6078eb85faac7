"""A reader of fields that come from outside: a frame's JSON, a query, the body of a request or of an answer.

Each field is taken by its name and comes out typed and within its bounds. What is wrong is refused with the field, the
value and the remedy. `Fields` reads strictly: `finished` refuses a field that nobody has taken, so that a typing error
never changes silently what is asked for. Whoever leaves that call out lets a newer peer say more. The kinds of readers
differ in their words, and in how a number is written:

    Fields                     JSON in a frame         partition True: must be a whole number from 0 to 1023
    BodyFields                 JSON of a body          owned[0] of the body is 1: send a JSON object
    Parameters (of the broker) texts of a query        maxBytes 'x': must be a whole number from 1 to 8388608
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeVar

from headrace.core.errors import HeadraceError, InvalidRequestError

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
_T = TypeVar("_T")
_Choice = TypeVar("_Choice", bound=StrEnum)
_Word = TypeVar("_Word", bound=str)


class Fields:
    """One object. A field without a default has to be given."""

    quote: ClassVar[str] = "'"
    """The mark around each word of a remedy."""
    unknown: ClassVar[str] = "this frame takes no such member"

    def __init__(self, said: Mapping[str, Any], error: type[HeadraceError] = InvalidRequestError) -> None:
        """`error` is raised for a field that is wrong."""
        self._said = said
        self._error = error
        self._known: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._said

    def text(self, name: str, default: str | None = None, *, wanted: str = "a string") -> str:
        value = self._take(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, value, wanted)
        return value

    def optional_text(self, name: str) -> str | None:
        self._known.append(name)
        value = self._said.get(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, value, "a string")
        return value

    def whole(self, name: str, default: int | None = None, *, least: int = 0, most: int = INT64_MAX) -> int:
        """Return a whole number; the default may lie outside the bounds, in which a value that is given must lie."""
        self._known.append(name)  # Not by a call of `_take`, here and below: each costs a query.
        if default is not None and name not in self._said:
            return default
        return self._within(name, self._said.get(name), least, most)

    def optional_whole(self, name: str, *, most: int = INT64_MAX) -> int | None:
        self._known.append(name)
        value = self._said.get(name)
        return None if value is None else self._within(name, value, 0, most)

    def whole_or(self, name: str, words: tuple[_Word, ...], default: _Word | None = None) -> int | _Word:
        """Return a whole number from 0, or one of the words."""
        self._known.append(name)
        value = self._said.get(name, default)
        for word in words:
            if value == word:
                return word
        number = self._whole(value)
        if number is None or not 0 <= number <= INT64_MAX:
            quoted = [f"{self.quote}{word}{self.quote}" for word in words]
            listed = " or ".join(quoted) if len(quoted) > 1 else f"or {quoted[0]}"
            raise self._wrong(name, value, f"a whole number from 0 to {INT64_MAX}, {listed}")
        return number

    def one_of(self, name: str, choices: type[_Choice], default: _Choice | None = None) -> _Choice:
        self._known.append(name)
        value = self._said.get(name, default)
        if default is not None and value is default:
            return default
        try:
            return choices(value)
        except ValueError:
            listed = ", ".join(f"{self.quote}{choice}{self.quote}" for choice in choices)
            raise self._wrong(name, value, f"one of {listed}") from None

    def finished(self, parsed: _T) -> _T:
        """Return what was made of the fields, or raise the error for one that nobody has taken."""
        for name in self._said:
            if name not in self._known:
                raise self._not_taken()
        return parsed

    def _not_taken(self) -> HeadraceError:
        name, known = min(self._said.keys() - set(self._known)), ", ".join(self._known) or "none"
        return self._error(f"{name}: {self.unknown}; it takes {known}", field=name)

    def _take(self, name: str, default: Any) -> Any:
        self._known.append(name)
        return self._said.get(name, default)

    def _within(self, name: str, value: Any, least: int, most: int) -> int:
        number = self._whole(value)
        if number is None or not least <= number <= most:
            raise self._wrong(name, value, f"a whole number from {least} to {most}")
        return number

    def _whole(self, value: Any) -> int | None:
        """Return the number that a value stands for; None where it stands for none."""
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _wrong(self, name: str, value: Any, wanted: str) -> HeadraceError:
        return self._error(f"{name} {value!r}: must be {wanted}", field=name)


class BodyFields(Fields):
    """One JSON object of a body; a field that is null counts as absent."""

    quote = ""

    def __init__(self, raw: object, where: str) -> None:
        """`where` names the object in errors."""
        if not isinstance(raw, dict):
            raise InvalidRequestError(f"{where} is {_shown(raw)}: send a JSON object")
        if None in raw.values():
            raw = {name: value for name, value in raw.items() if value is not None}
        super().__init__(raw)
        self._where = where

    def truth(self, name: str, *, default: bool | None = None) -> bool:
        value = self._take(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def texts(self, name: str, default: list[str] | None = None) -> list[str]:
        return self._list(name, default, "a list of strings", str)

    def wholes(self, name: str, default: list[int] | None = None) -> list[int]:
        return self._all_whole(name, self._list(name, default, "a list of whole numbers"))

    def lists(self, name: str) -> list[list[int]]:
        """Return lists of whole numbers."""
        return [self._all_whole(name, value) for value in self._list(name, None, "a list of lists", list)]

    def objects(self, name: str) -> list["BodyFields"]:
        values = self._list(name, None, "a list of objects")
        return [BodyFields(value, f"{name}[{at}] of {self._where}") for at, value in enumerate(values)]

    def _list(self, name: str, default: list[Any] | None, wanted: str, kind: type = object) -> list[Any]:
        values = self._take(name, default)
        if not isinstance(values, list) or (kind is not object and not all(isinstance(each, kind) for each in values)):
            raise self._wrong(name, values, wanted)
        return values

    def _all_whole(self, name: str, values: list[Any]) -> list[int]:
        for value in values:
            if type(value) is not int or not 0 <= value <= INT64_MAX:
                raise self._wrong(name, value, f"a whole number from 0 to {INT64_MAX}")
        return values

    def _wrong(self, name: str, value: Any, wanted: str) -> HeadraceError:
        if value is None:
            return InvalidRequestError(f"{name} is missing in {self._where}: send {wanted}")
        return InvalidRequestError(f"{name} of {self._where} is {_shown(value)}: send {wanted}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
