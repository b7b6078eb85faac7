"""Options of `format("headrace")` as users write them: known names, types, and where the brokers are. Pure.

Spark gives all values as text and lowers the names. Readers and writers check their names with `check_names`, and have
`Connection` in common. Raises LocalError that names option, value and remedy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Self

from headrace.client.transport.discovery import Servers, find_servers
from headrace.core.errors import LocalError
from headrace.core.limits import DELIVERY_TIMEOUT_MS_DEFAULT
from headrace.core.units import parse_duration_ms

CONNECTION_OPTIONS = ("server", "namespace", "token", "caFile", "timeoutMs")

_OF_KAFKA = {
    "kafka.bootstrap.servers": "write server, with a broker's URL such as http://127.0.0.1:9701",
    "kafka.group.id": "a query's position is in its checkpoint; leave it out, or write group to see it in kubectl",
    "groupidprefix": "a query's position is in its checkpoint; leave it out",
    "kafkaconsumer.polltimeoutms": "write timeoutMs",
    "fetchoffset.numretries": "write timeoutMs: what fails is tried again for so long",
    "fetchoffset.retryintervalms": "write timeoutMs: what fails is tried again for so long",
    "startingoffsetsbytimestampstrategy": "a partition without a record that late begins at its end; leave it out",
    "path": "load() takes no path: name topics with option subscribe",
}
_OF_KAFKA_CLIENTS = "Headrace takes no options of Kafka's clients: leave it out; docs/spark.md lists what there is"


@dataclass(frozen=True, slots=True)
class Connection:
    """The way to the brokers: a plain value, with which tasks on other machines connect."""

    server: str | None = None
    namespace: str | None = None
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    timeout_ms: int = DELIVERY_TIMEOUT_MS_DEFAULT
    """The time for which failed requests are tried again."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        return cls(
            text(options, "server"),
            text(options, "namespace"),
            text(options, "token"),
            text(options, "caFile"),
            whole_number(options, "timeoutMs", DELIVERY_TIMEOUT_MS_DEFAULT),
        )

    def resolved(self, environ: Mapping[str, str]) -> Self:
        """Return it with the values of the driver's environment, which executors do not know. Raises NoServerError."""
        ca_file = self.ca_file or environ.get("HEADRACE_CA_FILE")
        servers = find_servers(self.server, ca_file, environ)
        return replace(self, server=",".join(servers.urls), ca_file=ca_file)

    def servers(self) -> Servers:
        """Return the servers. Raises NoServerError, or LocalError for a bundle that cannot be read."""
        servers = find_servers(self.server, self.ca_file)
        if self.token is None:
            return servers
        return replace(servers, headers={"authorization": f"Bearer {self.token}"})


def check_names(options: Mapping[str, str], known: Iterable[str], what: str) -> None:
    """Raise LocalError for the first option that `what` (reading, for example) does not have."""
    names = {name.lower(): name for name in known}
    for name in options:
        if name.lower() not in names:
            raise LocalError(f"option {name!r} is none of {what}: {_remedy(name.lower(), names)}")


def _remedy(name: str, names: Mapping[str, str]) -> str:
    if name in _OF_KAFKA:
        return _OF_KAFKA[name]
    if name.startswith("kafka."):
        return _OF_KAFKA_CLIENTS
    close = [names[match] for match in get_close_matches(name, names)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join(sorted(names.values(), key=str.lower))}"


def text(options: Mapping[str, str], name: str) -> str | None:
    """Return an option's text; None where it is not given, or empty."""
    for given, value in options.items():
        if given.lower() == name.lower():
            return value.strip() or None
    return None


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = text(options, name)
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise LocalError(f"{name} is {value!r}: write true or false")
    return value.lower() == "true"


def whole_number(options: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    found = optional_number(options, name, least=least)
    return default if found is None else found


def optional_number(options: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    value = text(options, name)
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        raise LocalError(f"{name} is {value!r}: write a whole number from {least}") from None
    if number < least:
        raise LocalError(f"{name} is {number}: write a whole number from {least}")
    return number


def duration_ms(options: Mapping[str, str], name: str, default: int) -> int:
    value = text(options, name)
    try:
        return default if value is None else parse_duration_ms(value)
    except ValueError as error:
        raise LocalError(f"{name}: {error}") from error


def choice(options: Mapping[str, str], name: str, *choices: str) -> str:
    """Return one of these, whatever its case; the first where none is given."""
    value = text(options, name)
    if value is None:
        return choices[0]
    for each in choices:
        if each.lower() == value.lower():
            return each
    raise LocalError(f"{name} is {value!r}: write {' or '.join(choices)}")


def only_one(options: Mapping[str, str], *names: str) -> str | None:
    """Return the one of these that is given; None: none is. Raises LocalError for several."""
    given = [name for name in names if text(options, name) is not None]
    if len(given) > 1:
        raise LocalError(f"{' and '.join(given)} are both given: leave out all but one")
    return given[0] if given else None
