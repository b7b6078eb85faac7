"""A Secret is read once the API server answers, whatever moment it was away at."""

from typing import cast

import pytest

from headrace.core.resources.kubernetes_objects import Secret
from headrace.core.resources.metadata import Metadata
from headrace.kube.client import KubeClient
from headrace.kube.errors import ApiError, ApiUnavailableError, ForbiddenError, NotFoundError
from headrace_broker.tls import TlsMaterial, UnreadableTls, WatchedSecret

AWAY = ApiUnavailableError("nobody answers")
SECRET = Secret(Metadata(name="brokers-tls", namespace="default"), {"tls.crt": b"certificate", "tls.key": b"key"})


class Api:
    """Answers so, one after the other."""

    def __init__(self, *answers: Secret | ApiError) -> None:
        self.answers = list(answers)

    async def get(self, *_: object) -> Secret:
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


async def read(*answers: Secret | ApiError) -> TlsMaterial | UnreadableTls:
    api = Api(*answers)
    found = await WatchedSecret(cast("KubeClient", api), "default", "brokers-tls").read()
    assert api.answers == [], "it is read once"
    return found


async def test_should_wait_for_an_api_server_that_is_away() -> None:
    found = await read(AWAY, AWAY, SECRET)
    assert isinstance(found, TlsMaterial)
    assert (found.certificate.content, found.key.content, found.authority) == (b"certificate", b"key", None)


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (NotFoundError("no such Secret"), "Secret default/brokers-tls is not there"),
        (ForbiddenError("not for you"), "Secret default/brokers-tls cannot be read: not for you"),
    ],
)
async def test_should_wait_for_no_other_answer(refusal: ApiError, said: str) -> None:
    found = await read(AWAY, refusal)
    assert isinstance(found, UnreadableTls)
    assert found.reason.startswith(said)
