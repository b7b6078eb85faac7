"""Reading JSON objects of requests and answers: what is wrong is said by field, value and remedy.

Fields that are not known are left alone: a newer client may say more. Called by `wire` of
groups and of staged commits.
"""

from enum import StrEnum
from typing import Any, TypeVar

from headrace.core.errors import InvalidRequestError

_MOST = (1 << 63) - 1
_NONE: Any = object()
_Word = TypeVar("_Word", bound=StrEnum)


class Fields:
    """One object; `where` names it in errors. A default stands for a field that is absent or null."""

    def __init__(self, raw: object, where: str) -> None:
        if not isinstance(raw, dict):
            raise InvalidRequestError(f"{where} is {_shown(raw)}: send a JSON object")
        self._raw = raw
        self._where = where

    def __contains__(self, name: str) -> bool:
        return self._raw.get(name) is not None

    def text(self, name: str, default: str = _NONE) -> str:
        value: str = self._checked(name, default, str, "a string")
        return value

    def truth(self, name: str, *, default: bool = _NONE) -> bool:
        value: bool = self._checked(name, default, bool, "true or false")
        return value

    def whole(self, name: str, default: int = _NONE) -> int:
        """From 0, of 64 bits at most."""
        if default is not _NONE and name not in self:
            return default
        return self._natural(self._checked(name, _NONE, int, "a whole number"), name)

    def texts(self, name: str, default: list[str] = _NONE) -> list[str]:
        values: list[str] = self._checked(name, default, list, "a list of strings")
        if not all(isinstance(value, str) for value in values):
            raise self._wrong(name, values, "a list of strings")
        return values

    def wholes(self, name: str, default: list[int] = _NONE) -> list[int]:
        return [self._natural(value, name) for value in self._checked(name, default, list, "a list of whole numbers")]

    def lists(self, name: str) -> list[list[int]]:
        """Lists of whole numbers."""
        values: list[object] = self._checked(name, _NONE, list, "a list of lists")
        if not all(isinstance(value, list) for value in values):
            raise self._wrong(name, values, "a list of lists")
        return [[self._natural(each, name) for each in value] for value in values if isinstance(value, list)]

    def one_of(self, name: str, kind: type[_Word]) -> _Word:
        words = [*kind]
        text = self.text(name)
        if text not in words:
            raise self._wrong(name, text, f"one of {', '.join(words)}")
        return kind(text)

    def objects(self, name: str) -> list["Fields"]:
        values: list[object] = self._checked(name, _NONE, list, "a list of objects")
        return [Fields(value, f"{name}[{at}] of {self._where}") for at, value in enumerate(values)]

    def _natural(self, value: object, name: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
            raise self._wrong(name, value, f"a whole number from 0 to {_MOST}")
        return value

    def _checked(self, name: str, default: Any, kind: type, wanted: str) -> Any:
        value = self._raw.get(name)
        if value is None:
            if default is _NONE:
                raise InvalidRequestError(f"{name} is missing in {self._where}: send {wanted}")
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._wrong(name, value, wanted)
        return value

    def _wrong(self, name: str, value: object, wanted: str) -> InvalidRequestError:
        return InvalidRequestError(f"{name} of {self._where} is {_shown(value)}: send {wanted}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
