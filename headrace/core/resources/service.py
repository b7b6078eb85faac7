"""The Service through which a cluster's brokers are first reached: any ready one of them answers for all.

The name is fixed so that clients find it by the API server's service proxy, without being told. `headrace dev` makes
it, and so does whatever installs Headrace on a cluster.
"""

from typing import Final

BOOTSTRAP_PORT_NAME: Final = "http"
BOOTSTRAP_PORT: Final = 9701


def bootstrap_service(cluster: str) -> str:
    """Its name, in the brokers' namespace."""
    return f"{cluster}-bootstrap"
