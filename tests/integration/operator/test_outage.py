"""The operator while its API server is away, and when it is back. The server is always our own here: it is killed."""

from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

from headrace.kube.errors import ApiUnavailableError
from headrace.kube.resource import EVENTS
from tests.support.api_server import embedded_api
from tests.support.kubeconfig import write_kubeconfig
from tests.support.operator import some_cluster


async def test_should_change_its_mind_about_nobody_when_the_api_server_was_away(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ExitStack() as apis:
        first = apis.enter_context(embedded_api(data))
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", first.url)
        async with some_cluster(kubeconfig, tmp_path / "operator.log") as cluster:
            await cluster.start_brokers(0, 1)
            await cluster.operator.start()
            await cluster.create_topic()
            before = await cluster.wait_ready()
            await cluster.wait_event("AllPartitionsOnline")
            first.kill()
            apis.enter_context(embedded_api(data, "--port", str(urlsplit(first.url).port)))
            with suppress(ApiUnavailableError):  # what a pooled connection to the dead server is good for
                await cluster.sets()
            await cluster.create_topic("later")
            await cluster.wait_ready("later")
            after = await cluster.topic()
            assert after is not None
            assert after.status == before.status
            events = (await cluster.client.list(EVENTS, namespace=cluster.name)).items
            assert {event["reason"] for event in events} == {"AllPartitionsOnline"}
