"""aiohttp, loaded without the system's certificates; for modules that are the first of a program to need it.

While it is loaded, aiohttp makes two TLS contexts of its own and reads all certificates of the system into each: 40 ms
of processor time, a third of its own loading, for contexts that nothing here uses, since every session is given the
context that it needs (`headrace.kube.credentials`, `headrace.dev.api.proxy`). Loaded from here, those two trust no
authority: a session without a context of its own fails instead of trusting whom the system trusts. Where aiohttp is
loaded already, it stays as it is.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["aiohttp", "no_certificates"]
_WHERE_CERTIFICATES_ARE = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""The variables that OpenSSL asks for before it looks where it was built to look."""


@contextmanager
def no_certificates() -> Iterator[None]:
    """Hide the system's certificates while the block loads a part of aiohttp."""
    before = {name: os.environ.get(name) for name in _WHERE_CERTIFICATES_ARE}
    os.environ.update(dict.fromkeys(_WHERE_CERTIFICATES_ARE, os.devnull))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


with no_certificates():
    import aiohttp
