"""Secret (core/v1): bytes by name. What they mean is for whoever reads them; they never appear in a message."""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import field

from headrace.core.resources.metadata import InvalidResourceError, Metadata, Object
from headrace.core.slotted import dataclass


@dataclass(frozen=True, slots=True)
class Secret:
    metadata: Metadata
    data: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def parse(cls, obj: Object) -> "Secret":
        """Raises InvalidResourceError where a value is no base64."""
        metadata = Metadata.parse(obj)
        try:
            data = {name: b64decode(text, validate=True) for name, text in (obj.get("data") or {}).items()}
        except ValueError:
            raise InvalidResourceError(f"Secret {metadata.name}: data must be base64") from None
        return cls(metadata, data)
