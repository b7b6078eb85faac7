"""Whom a client trusts over TLS: the authorities of a PEM bundle, or the system's.

Contexts are made once and given to a transport; one that is replaced keeps serving the connections that it made. Called
by the SDK and the command for their brokers, and by brokers for each other.
"""

import ssl
from pathlib import Path

from headrace.core.errors import LocalError

_REMEDY = "give the PEM file of the authority that signed the brokers' certificates"


def trusting(ca_file: str | None) -> ssl.SSLContext:
    """A client's context that verifies servers against `ca_file`, a PEM bundle; None: against the system's roots.

    Raises LocalError where the file cannot be read or holds no certificate.
    """
    if ca_file is None:
        return ssl.create_default_context()
    try:
        bundle = Path(ca_file).read_bytes()
    except OSError as error:
        raise LocalError(f"CA file {ca_file} cannot be read: {error.strerror or error}; {_REMEDY}") from None
    return trusting_bundle(bundle, f"CA file {ca_file}")


def trusting_bundle(bundle: bytes, source: str) -> ssl.SSLContext:
    """The same for PEM bytes that are known already; `source` names them in the error."""
    # What stands between the certificates of a bundle may be in any language; OpenSSL's text must be ASCII.
    text = bundle.decode("ascii", errors="ignore")
    try:
        context = ssl.create_default_context(cadata=text or "-")
    except ssl.SSLError:
        raise LocalError(f"{source} holds no certificate that can be read; {_REMEDY}") from None
    # Python 3.13's own default: an authority in the bundle is trusted whether or not its issuer is there too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
