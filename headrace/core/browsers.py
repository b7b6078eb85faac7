"""The headers by which a browser reports that a web page made it send a request, so that no page drives our servers
unasked.

A page of any site may have its browser send simple requests to any address, those of the user's own machine included,
and cannot read the answers. Its browser reports that: `Origin` with every request that may change something, and
`Sec-Fetch-Site` with everything. A page whose name is made to lead to this machine later on (DNS rebinding) is of the
same origin as the server there: the name in `Host` shows it. Programs (curl, SDKs, kubectl, Grafana's data sources)
send neither header, and this module lets their requests pass.

The module is pure. It is called by the embedded API for every request and by brokers for those that change something; a
broker that listens on loopback alone checks the name as well.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""The methods that change nothing, and whose answers a page cannot read."""
_LOCALHOST = "localhost"


def host_name(authority: str) -> str:
    """Return the name without port, brackets and the last dot, in small letters; empty where it is none."""
    try:
        return (urlsplit(f"//{authority}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_loopback_name(name: str) -> bool:
    """Return whether only this machine answers to the name."""
    if name == _LOCALHOST or name.endswith(f".{_LOCALHOST}"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def why_not_here(host: str, own_names: frozenset[str] = frozenset()) -> str | None:
    """Return what is wrong with the `Host` of a request to a server of this machine alone; None where it is all right.

    `own_names` are allowed, too. A request without Host comes from no browser.
    """
    name = host_name(host)
    if not host or is_loopback_name(name) or name in own_names:
        return None
    return f"Host {host!r}: this server answers to this machine alone; ask for localhost or 127.0.0.1"


def why_foreign(host: str, origin: str | None, fetch_site: str | None) -> str | None:
    """Return what shows that another site's page sends this; None where nothing does."""
    if origin is not None and _authority(origin) != host.lower():
        return f"Origin {origin!r}: pages of other sites may not use this server; send requests from a program"
    if fetch_site is not None and fetch_site.strip().lower() == "cross-site":
        return "Sec-Fetch-Site 'cross-site': pages of other sites may not use this server; send requests from a program"
    return None


def _authority(origin: str) -> str | None:
    """Return host and port of an origin; None where it is opaque (`null`)."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
