"""Whom a client trusts over TLS: the authorities of a PEM bundle, or the system's.

Contexts are made once and given to a transport; one that is replaced keeps serving the connections that it made. Called
by the SDK and the command for their brokers, and by brokers for each other.
"""

import ssl
from pathlib import Path

from headrace.core.errors import BrokerUnreachableError, LocalError, UntrustedBrokerError
from headrace.http2.origin import Origin

_REMEDY = "give the PEM file of the authority that signed the brokers' certificates"
# What OpenSSL says in X509_verify_cert: the numbers are part of its interface (x509_vfy.h).
_NOT_YET_VALID, _EXPIRED = 9, 10
_UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})
_OTHER_NAME = frozenset({62, 63, 64})


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
    # Some builds of Python leave this to the system's configuration of OpenSSL.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Python 3.13's own default: an authority in the bundle is trusted whether or not its issuer is there too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def tls_error(origin: Origin, error: OSError) -> BrokerUnreachableError:
    """Why TLS with `origin` failed, as the sentence that users read. What cannot get well by itself is untrusted."""
    broker = f"broker {origin.authority}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return UntrustedBrokerError(f"{broker} {why_untrusted(error, origin.host)}", unprocessed=True)
    if isinstance(error, ssl.SSLError) and error.reason in {"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG"}:
        reason = "does not speak TLS: write its URL with http://, or give the broker a certificate"
        return UntrustedBrokerError(f"{broker} {reason}", unprocessed=True)
    reason = getattr(error, "reason", None) or error.strerror or str(error) or type(error).__name__
    return BrokerUnreachableError(f"{broker} cannot be reached over TLS: {reason}", unprocessed=True)


def lost_reason(origin: Origin, *, heard: bool) -> str:
    """Why a connection ended; `heard`: the server had said something. A TLS server hangs up on what is no TLS."""
    if heard or origin.is_tls:
        return "closed the connection"
    return "closed the connection without a word: if it speaks TLS, write its URL with https://"


def why_untrusted(error: ssl.SSLCertVerificationError, host: str) -> str:
    """As the rest of a sentence about the broker."""
    if error.verify_code in _OTHER_NAME:
        return (
            f"has a certificate that does not cover {host!r}: connect to a name that it covers,"
            " or add this one to its subjectAltName"
        )
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return (
            "has a certificate of an authority that is not trusted here:"
            " name its PEM file with --ca-file or HEADRACE_CA_FILE (between brokers with --tls-ca-file)"
        )
    if error.verify_code == _EXPIRED:
        return "has a certificate that has expired: renew it, brokers take the new one without a restart"
    if error.verify_code == _NOT_YET_VALID:
        return "has a certificate that is not valid yet: are the clocks of both machines right?"
    return f"has a certificate that is refused: {error.verify_message}"
