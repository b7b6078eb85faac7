"""What a supervisor is told at its start, and how that crosses to a process of its own."""

import json
from dataclasses import astuple, replace
from pathlib import Path

from headrace.core.slotted import dataclass
from headrace.dev.supervisor.layout import BrokerTls, Layout

DEFAULT_BROKERS = 3


@dataclass(frozen=True, slots=True)
class Options:
    home: Path
    layout: Layout
    brokers: int | None
    """None: as many as the StatefulSet of an earlier run asks for, else DEFAULT_BROKERS."""
    manifests: tuple[Path, ...] = ()
    takes_over: bool = False
    """From a supervisor that was killed just now."""

    def of_successor(self) -> "Options":
        """What was asked for at the start has come about; what users changed since then stays as it is."""
        return replace(self, brokers=None, manifests=(), takes_over=True)

    def to_json(self) -> str:
        return json.dumps(
            {
                "home": str(self.home),
                "data": str(self.layout.data),
                "port": self.layout.port,
                "tls": [str(path) for path in astuple(self.layout.tls) if path] if self.layout.tls else None,
                "brokers": self.brokers,
                "manifests": [str(path) for path in self.manifests],
                "takes_over": self.takes_over,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Options":
        raw = json.loads(text)
        tls = BrokerTls(*map(Path, raw["tls"])) if raw["tls"] else None
        return cls(
            home=Path(raw["home"]),
            layout=Layout(Path(raw["data"]), raw["port"], tls),
            brokers=raw["brokers"],
            manifests=tuple(Path(path) for path in raw["manifests"]),
            takes_over=raw["takes_over"],
        )
