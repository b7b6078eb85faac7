import ssl
from itertools import islice
from random import Random

import pytest

from headrace.core.limits import FINALIZER_WAIT_MS
from headrace.kube.client import API_BACKOFF_MAX_MS
from headrace.kube.credentials import Credentials
from headrace_operator.kopf_watches import connection_of, kopf_settings
from headrace_operator.observer import Scope

SETTINGS = kopf_settings(Scope("blue", "data", FINALIZER_WAIT_MS), Random(1))


def test_should_never_write() -> None:
    assert not SETTINGS.posting.enabled


def test_should_let_no_watch_freeze() -> None:
    watching = SETTINGS.watching
    assert watching.server_timeout is not None
    assert watching.client_timeout is not None
    assert str(watching.server_timeout).isdecimal(), "an API server refuses fractions of a second"
    assert watching.server_timeout < watching.client_timeout <= 60
    assert watching.inactivity_timeout <= 60
    assert watching.connect_timeout is not None


def test_should_watch_the_leases_of_its_own_cluster_only() -> None:
    selector = SETTINGS.watching.label_selectors["coordination.k8s.io", "v1", "leases"]
    assert selector == "headrace.io/cluster=blue"


def test_should_never_give_a_watch_up() -> None:
    backoffs = SETTINGS.networking.error_backoffs
    assert not isinstance(backoffs, float)
    waits = list(islice(backoffs, 100))
    assert len(waits) == 100
    assert max(waits) <= API_BACKOFF_MAX_MS / 1000
    assert max(islice(backoffs, 1)) < 0.5, "each request begins with short waits"


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_should_trust_the_system_only_where_there_is_tls(scheme: str) -> None:
    async def nobody() -> None:
        return None

    connection = await connection_of(Credentials(f"{scheme}://127.0.0.1:1", "data", nobody))
    context = connection.as_ssl_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    read = ssl.create_default_context().cert_store_stats()["x509_ca"] if scheme == "https" else 0
    assert context.cert_store_stats()["x509_ca"] == read
    assert connection == await connection_of(Credentials(f"{scheme}://127.0.0.1:1", "data", nobody)), (
        "kopf knows credentials that were refused by their being equal"
    )
