"""What a URL's path is about: `/apis/headrace.io/v1alpha1/namespaces/default/topics/flights`, taken apart. Pure."""

from headrace.core.slotted import dataclass

_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class Address:
    group: str
    version: str
    plural: str
    namespace: str | None = None
    """None: the path names none, so a list goes over all namespaces."""
    name: str = ""
    """Empty: the whole collection."""
    subresource: str = ""


def parse_address(path: str) -> Address | None:
    """None where the path is no resource's."""
    match path.strip("/").split("/"):
        case ["api", version, *rest]:
            return _address("", version, rest)
        case ["apis", group, version, *rest]:
            return _address(group, version, rest)
        case _:
            return None


def _address(group: str, version: str, rest: list[str]) -> Address | None:
    match rest:
        case ["namespaces", name, subresource] if subresource in _NAMESPACE_SUBRESOURCES:
            return Address(group, version, "namespaces", None, name, subresource)
        case ["namespaces", namespace, plural, *below] if len(below) <= 2:
            return Address(group, version, plural, namespace, *below)
        case [plural, *below] if len(below) <= 2:
            return Address(group, version, plural, None, *below)
        case _:
            return None
