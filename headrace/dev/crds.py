"""The CustomResourceDefinitions of Headrace: their place, and their contents.

In an installed wheel they stand beside this module (`headrace/dev/crds/`), in a checkout in `crds/` at its root.
"""

from pathlib import Path

from headrace.dev.api.documents import load_yaml
from headrace.dev.api.objects import Object


class CrdError(Exception):
    """The definitions cannot be read; the message is a sentence for the user."""


def crd_directory() -> Path:
    """Return the folder. Raises CrdError where neither place has them."""
    here = Path(__file__).resolve()
    places = (here.parent / "crds", here.parents[2] / "crds")
    for place in places:
        if any(place.glob("*.yaml")):
            return place
    raise CrdError(f"no CRDs found in {' or '.join(map(str, places))}; name their folder with --crds")


def load_crds(directory: Path | None = None) -> list[Object]:
    """Return every definition in the folder, by file name. Raises CrdError."""
    folder = directory or crd_directory()
    found = [document for file in sorted(folder.glob("*.yaml")) for document in _read(file)]
    if not found:
        raise CrdError(f"no CRDs found in {folder}: there is no *.yaml file with one")
    return found


def _read(file: Path) -> list[Object]:
    try:
        documents = load_yaml(file.read_bytes())
    except (OSError, ValueError) as error:
        raise CrdError(f"cannot read {file}: {error}") from error
    return [d for d in documents if isinstance(d, dict) and d.get("kind") == "CustomResourceDefinition"]
