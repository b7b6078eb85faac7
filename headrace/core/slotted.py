"""`dataclass(slots=True)` of the standard library, whose methods are compiled when they are first called.

The standard library writes and compiles up to six methods of a class when the class is made: half a millisecond each
for hundreds of classes, a fifth of a broker's start, and most of them are never compared, hashed or even made there.
Here the standard library makes the class (fields, slots, `__match_args__`, inheritance), and each method begins as a
stand-in that compiles the true one at its first call and gives it its place. What `dataclasses` offers (`field`,
`fields`, `replace`, `asdict`, `__post_init__`) works as with its own; `kw_only` and `InitVar` are not there, for nobody
uses them. docs/adr/0057 has the figures. Type checkers see the standard library's decorator.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]
_ORDER = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        *, slots: bool, frozen: bool = False, eq: bool = True, order: bool = False
    ) -> Callable[[type[Any]], type[Any]]:
        """`slots` is True: a class without is the standard library's to make."""
        assert slots, "without slots it is the standard library's dataclass that is meant"
        return lambda cls: _made(cls, frozen=frozen, eq=eq, order=order)


def _made(made: type[Any], *, frozen: bool, eq: bool, order: bool) -> type[Any]:
    own = {name for name, value in made.__dict__.items() if name != "__hash__" or value is not None}
    if made.__doc__ is None:
        made.__doc__ = made.__name__  # The standard library would write a signature, which takes it long.
    cls: type[Any] = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(made)
    compiled = {
        "__init__": _init_lines,
        **({"__eq__": _compare_lines} if eq else {}),
        **({"__hash__": _hash_lines} if eq and frozen else {}),
        **(dict.fromkeys(_ORDER, _compare_lines) if order else {}),
    }
    methods = {
        **{name: _compiled_later(cls, name, lines) for name, lines in compiled.items()},
        "__repr__": _repr,
        **(_FROZEN if frozen else {}),
        # As the language itself does where a class has an `__eq__` and no `__hash__`.
        **({"__hash__": None} if eq and not frozen else {}),
    }
    for name in methods.keys() - own:
        setattr(cls, name, methods[name])
    return cls


def _compiled_later(cls: type[Any], name: str, lines: Callable[[type[Any], str], str]) -> Callable[..., Any]:
    """The stand-in. Two threads may both compile: whichever is last stays, and both are right."""

    def stand_in(self: object, *args: object, **kwargs: object) -> object:
        method = _compiled(cls, name, lines(cls, name))
        setattr(cls, name, method)
        return method(self, *args, **kwargs)

    return stand_in


def _compiled(cls: type[Any], name: str, lines: str) -> Callable[..., Any]:
    scope: dict[str, Any] = {"MISSING": MISSING}
    for each in dataclasses.fields(cls):
        # The setter of the slot itself: `frozen` forbids plain assignment, and object.__setattr__ takes twice as long.
        scope[f"__set_{each.name}"] = getattr(cls, each.name).__set__
        scope[f"__default_{each.name}"] = each.default
        scope[f"__factory_{each.name}"] = each.default_factory
    exec(lines, scope)
    method: Callable[..., Any] = scope[name]
    method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    return method


def _init_lines(cls: type[Any], _: str) -> str:
    parameters, body = ["self"], []
    for each in dataclasses.fields(cls):
        name = each.name
        made = f"__default_{name}" if each.default_factory is MISSING else f"__factory_{name}()"
        if not each.init:
            # Without a default it is left to `__post_init__`.
            if each.default is not MISSING or each.default_factory is not MISSING:
                body.append(f"__set_{name}(self, {made})")
            continue
        value = name
        if each.default_factory is not MISSING:
            parameters.append(f"{name}=MISSING")
            value = f"{made} if {name} is MISSING else {name}"
        else:
            parameters.append(name if each.default is MISSING else f"{name}={made}")
        body.append(f"__set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    return _function("__init__", ", ".join(parameters), body or ["pass"])


def _compare_lines(cls: type[Any], name: str) -> str:
    """Values of one class are compared field by field, as tuples are; values of two classes are never equal."""
    compared = f"{_tuple(cls, 'self')} {_ORDER.get(name, '==')} {_tuple(cls, 'other')}"
    return _function(
        name, "self, other", [f"if other.__class__ is self.__class__: return {compared}", "return NotImplemented"]
    )


def _hash_lines(cls: type[Any], name: str) -> str:
    return _function(name, "self", [f"return hash({_tuple(cls, 'self')})"])


def _tuple(cls: type[Any], owner: str) -> str:
    return "(" + "".join(f"{owner}.{each.name}, " for each in dataclasses.fields(cls) if each.compare) + ")"


def _function(name: str, parameters: str, body: list[str]) -> str:
    return "\n ".join([f"def {name}({parameters}):", *body])


def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: object, name: str, *_: object) -> None:
    raise FrozenInstanceError(f"cannot change field {name!r} of {type(self).__qualname__}")


def _state(self: Any) -> list[object]:
    """For pickle and copy, which would set fields otherwise."""
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _take_state(self: Any, state: list[object]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


_FROZEN = {"__getstate__": _state, "__setstate__": _take_state, "__setattr__": _refuse, "__delattr__": _refuse}
