"""kopf without the Kubernetes clients that it looks for when it is loaded.

It takes objects of theirs too, and so loads each one that is installed: with `kubernetes` 330 modules, 0.2 s of
processor time and 18 MiB. Nobody here gives it any, and it is told who we are (`doorbell`). `headrace.kube` loads
`kubernetes` where a kubeconfig needs it, as before.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["kopf"]
_CLIENTS = ("kubernetes", "kubernetes_asyncio", "pykube")


@contextmanager
def _not_importable(*names: str) -> Iterator[None]:
    """Importing one of `names` fails as if it were not installed (None in `sys.modules` says so); one that is there
    already stays."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # the import system knows None, typeshed does not
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


with _not_importable(*_CLIENTS):
    import kopf
