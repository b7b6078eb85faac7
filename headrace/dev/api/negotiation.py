"""What the client wants to read: the `Accept` header, against the forms that this API writes. Pure."""

from enum import Enum

from headrace.core.slotted import dataclass
from headrace.dev.api.status import not_acceptable


class Form(Enum):
    """The shape of an answer."""

    OBJECT = "object"
    TABLE = "Table"
    PARTIAL = "PartialObjectMetadata"
    DISCOVERY = "APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True)
class Representation:
    form: Form
    media_type: str
    """What goes into Content-Type."""
    as_yaml: bool = False


_JSON = Representation(Form.OBJECT, "application/json")
_YAML = Representation(Form.OBJECT, "application/yaml", as_yaml=True)
_FORMS = {
    ("Table", "meta.k8s.io", "v1"): Form.TABLE,
    ("PartialObjectMetadata", "meta.k8s.io", "v1"): Form.PARTIAL,
    ("PartialObjectMetadataList", "meta.k8s.io", "v1"): Form.PARTIAL,
    ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2"): Form.DISCOVERY,
}
_OFFERED = ("application/json", "application/yaml")


def negotiate(accept: str) -> Representation:
    """The first form in `accept` that this API writes. Raises StatusError 406 where there is none."""
    for wanted in accept.split(",") if accept else ["*/*"]:
        media_type, *parameters = (part.strip() for part in wanted.split(";"))
        found = _representation(media_type, dict(p.split("=", 1) for p in parameters if "=" in p))
        if found is not None:
            return found
    raise not_acceptable(_OFFERED)


def _representation(media_type: str, parameters: dict[str, str]) -> Representation | None:
    if media_type == "application/yaml" and "as" not in parameters:
        return _YAML
    if media_type not in ("application/json", "*/*", "application/*"):
        return None
    if "as" not in parameters:
        return _JSON
    shape = (parameters["as"], parameters.get("g", ""), parameters.get("v", ""))
    form = _FORMS.get(shape)
    if form is None:
        return None
    if form is Form.DISCOVERY:
        return Representation(form, f"application/json;g={shape[1]};v={shape[2]};as={shape[0]}")
    return Representation(form, "application/json")
