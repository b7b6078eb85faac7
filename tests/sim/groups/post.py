"""Requests to coordinators and what they are told, on their way: lost, doubled, held up, and in any order.

Whoever is written to may be dead (the request is lost), or coordinate nothing. What is held up comes when nobody
expects it any more.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from headrace.core.coordinator import Answer, Refuse
from headrace.core.groups.events import Reply, Request, ResetResolved
from headrace.core.types import BrokerId
from tests.sim.brokers import Brokers
from tests.sim.groups.shared import Asker
from tests.sim.life import Life
from tests.sim.schedule import Kind

LETTERS_MAX = 60


What = TypeVar("What")


@dataclass(eq=False)
class Letter(Generic[What]):
    """A letter from a member, or the operator, to a broker, or back."""

    asker: Asker
    broker: BrokerId
    what: What
    is_held: bool = False
    label: str = field(init=False)

    def __post_init__(self) -> None:
        self.label = f"{self.asker.label}.{type(self.what).__name__.removesuffix('Received')}"


class Post:
    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.requests: list[Letter[Request]] = []
        self.answers: list[Letter[Answer[Reply] | Refuse]] = []

    def kinds(self) -> list[Kind]:
        return [
            Kind("member request", 26, self.there, self.deliver),
            Kind("member answer", 26, self.heard, self.answer),
            Kind("held up comes", 0.6, lambda: [x for x in self._all() if x.is_held], self.release),
        ]

    def faults(self) -> list[Kind]:
        kinds = [
            Kind("member request lost", 0.8, lambda: self.requests, lambda letter, _: self.requests.remove(letter)),
            Kind("member request doubled", 0.8, self._copied, self.double),
            Kind("member answer lost", 0.8, lambda: self.answers, lambda letter, _: self.answers.remove(letter)),
            Kind("held up", 1.2, lambda: [x for x in self._all() if not x.is_held], self.hold),
        ]
        return [replace(kind, is_fault=True) for kind in kinds]

    @property
    def moves(self) -> bool:
        return bool(self.there() or self.heard())

    @property
    def has_reset(self) -> bool:
        """Return whether a reset is still on its way."""
        return any(isinstance(letter.what, ResetResolved) for letter in self.requests)

    def _all(self) -> list[Letter[Any]]:
        return [*self.requests, *self.answers]

    def _copied(self) -> list[Letter[Request]]:
        return self.requests if len(self.requests) < LETTERS_MAX else []

    def there(self) -> list[Letter[Request]]:
        """Return the letters to brokers: those of dead brokers get no answer; a paused one takes them later."""
        lives = {letter.broker: self.brokers.machines[letter.broker].life for letter in self.requests}
        return [x for x in self.requests if not x.is_held and ((life := lives[x.broker]) is None or not life.is_paused)]

    def heard(self) -> list[Letter[Answer[Reply] | Refuse]]:
        return [letter for letter in self.answers if not letter.is_held and not letter.asker.is_paused]

    def deliver(self, letter: Letter[Request], _: int) -> None:
        self.requests.remove(letter)
        life = self.brokers.machines[letter.broker].life
        if life is None or life.guest is None:
            letter.asker.missed()
        else:
            life.guest.ask(letter.what)

    def answer(self, letter: Letter[Answer[Reply] | Refuse], _: int) -> None:
        self.answers.remove(letter)
        letter.asker.hear(letter.what)

    def tell(self, asker: Asker, life: Life, told: Answer[Reply] | Refuse) -> None:
        self.answers.append(Letter(asker, life.broker, told))

    def send(self, asker: Asker, broker: BrokerId, request: Request) -> None:
        self.requests.append(Letter(asker, broker, request))

    def double(self, letter: Letter[Request], draw: int) -> None:
        copy = Letter(letter.asker, letter.broker, letter.what, is_held=draw % 2 == 0)
        self.requests.append(copy)

    def hold(self, letter: Letter[Any], _: int) -> None:
        letter.is_held = True

    def release(self, letter: Letter[Any], _: int) -> None:
        letter.is_held = False

    def heal(self) -> None:
        for letter in self._all():
            letter.is_held = False
