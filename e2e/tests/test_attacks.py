"""A client in the cluster that means no good: it holds nobody up, reads and writes nothing of Headrace's own, and gets
nobody to connect to where it likes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.lab.errors import LabError
from e2e.release import Release, security
from e2e.waiting import wait_for

URL = "headrace.io/url"
INTERNAL = ("headrace-offsets", "headrace-commits", "headrace-staging")
PORT = 9000
UNFINISHED = 40
"""Questions that the attacker holds at each broker: more than a broker answers at a time."""
ATTACKER = "attacker"
HOLD = """
import asyncio, functools, sys

async def hold(host, broker, begins):
    begun = f"POST /v1/brokers/{broker}/promises HTTP/1.1\\r\\nHost: {host}\\r\\nContent-Length: 1000\\r\\n\\r\\n{{"
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, 9701)
            writer.write(begun.encode())
            begins()
            await reader.read()  # Until the broker has enough of it.
            writer.close()
        except OSError:
            await asyncio.sleep(0.1)

async def main(hosts, count):
    held = set()
    def begins(each):
        held.add(each)
        if len(held) == count * len(hosts):
            print("holding", flush=True)
    everyone = [(host, broker, place) for broker, host in enumerate(hosts) for place in range(count)]
    await asyncio.gather(*(hold(each[0], each[1], functools.partial(begins, each)) for each in everyone))

asyncio.run(main(sys.argv[2:], int(sys.argv[1])))
"""
LURE = """
import http.server, sys, threading, time, urllib.error, urllib.request

class Lure(http.server.BaseHTTPRequestHandler):
    def setup(self):
        super().setup()
        print("connected", flush=True)
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *said):
        pass

server = http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Lure)
threading.Thread(target=server.serve_forever, daemon=True).start()
urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/")
while True:  # Has a broker pass requests on to the one whose Lease is edited.
    try:
        urllib.request.urlopen(sys.argv[2], timeout=5).read()
    except OSError:
        pass
    time.sleep(0.05)
"""
ASK = """
import json, sys, urllib.error, urllib.request
answers = []
for method, url, media_type, body in json.load(sys.stdin):
    headers = {"Content-Type": media_type} if media_type else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, body.encode() or None, headers, method=method), timeout=30
        ) as answer:
            answers.append((answer.status, json.load(answer)))
    except urllib.error.HTTPError as error:
        answers.append((error.code, json.load(error)))
print(json.dumps(answers))
"""
Question = tuple[str, str, str, str]
"""Method, URL, media type, body."""


def asked(release: Release, pod: str, *questions: Question) -> list[tuple[int, dict[str, Any]]]:
    """Return status and document of the answers to such requests from that pod."""
    answers = release.execute(pod, "python", "-c", ASK, stdin=json.dumps(questions))
    return [(status, document) for status, document in json.loads(answers)]


@contextmanager
def attacking(release: Release, script: str, *arguments: str) -> Iterator[None]:
    """A pod that runs the script until the block ends."""
    gone = ("delete", f"pod/{ATTACKER}", "--grace-period=0", "--force", "--ignore-not-found")
    release.kubectl(*gone)
    container = {
        "name": ATTACKER,
        "image": release.image("broker"),
        "imagePullPolicy": release.pull_policy,
        "command": ["python", "-uc", script, *arguments],
        "securityContext": security(),
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    release.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": ATTACKER}, "spec": spec})
    try:
        release.kubectl("wait", "--for=condition=Ready", f"pod/{ATTACKER}", "--timeout=60s")
        wait_for(lambda: said(release, ATTACKER), "the attack begins")
        yield
    finally:
        release.kubectl(*gone)


def said(release: Release, pod: str) -> list[str]:
    return release.kubectl("logs", pod, "--tail=-1").splitlines()


def leader(release: Release, topic: str) -> dict[str, int] | None:
    """The broker, and which life of it, that leads the only partition; None while nobody does."""
    (partition,) = release.seen("partitionset", f"{topic}-0")["spec"]["partitions"]
    leads: dict[str, int] | None = partition.get("leader")
    return leads


def test_should_refuse_clients_what_is_the_brokers_own(release: Release) -> None:
    release.create_topic("watched", partitions=1, replicas=3)
    release.headrace("produce", "watched", stdin="told\n")
    assert release.headrace("consume", "watched", "--group", "watchers", "--output", "value") == "told\n"
    base = f"{release.bootstrap}/v1/namespaces/{release.namespace}/topics"
    questions: list[Question] = []
    for topic in INTERNAL:
        records = f"{base}/{topic}/partitions/0/records"
        questions += [
            ("POST", records, "application/json", '{"records": [{"value": 1}]}'),
            ("GET", f"{records}?offset=0", "", ""),
            ("DELETE", f"{records}?beforeOffset=latest", "", ""),
        ]
    answers = asked(release, release.pod(0), *questions)
    assert [(status, answer.get("code")) for status, answer in answers] == [(403, "InternalTopic")] * len(questions)
    assert all(
        url.split("/")[7] in answer["detail"] for (_, url, _, _), (_, answer) in zip(questions, answers, strict=True)
    )
    release.headrace("produce", "watched", stdin="more\n")
    assert release.headrace("consume", "watched", "--group", "watchers", "--output", "value") == "more\n"


def test_should_ask_and_elect_when_a_client_holds_unfinished_questions(release: Release) -> None:
    release.create_topic("held", partitions=1, replicas=3)
    release.wait_in_sync("held")
    hosts = [f"{release.pod(number)}.{release.name}.{release.namespace}.svc" for number in range(3)]
    operator = f"deployment/{release.name}-operator"
    with attacking(release, HOLD, str(UNFINISHED), *hosts):
        seat = leader(release, "held")
        assert seat is not None
        victim = release.pod(seat["broker"])
        question = json.dumps({"partitions": []})
        for number, server in enumerate(release.servers(3)):
            url = f"{server}/v1/brokers/{number}/promises"
            ((status, answer),) = asked(release, operator, ("POST", url, "application/json", question))
            assert status == 200, answer
        release.kubectl("delete", "pod", victim, "--force", "--grace-period=0")
        wait_for(lambda: leader(release, "held") not in (None, seat), "another one leads, or another life of it")
        release.headrace("produce", "held", stdin="told\n", broker=(seat["broker"] + 1) % 3)
    release.kubectl("wait", "--for=condition=Ready", f"pod/{victim}", "--timeout=120s")
    release.wait_in_sync("held")


def test_should_connect_to_no_address_that_somebody_writes_into_a_lease(release: Release) -> None:
    release.create_topic("lured", partitions=1, replicas=3)
    seat = leader(release, "lured")
    assert seat is not None
    led_by = seat["broker"]
    other = (led_by + 1) % 3
    lease = f"lease/headrace-broker-{led_by}"
    own = release.get(lease)["metadata"]["annotations"][URL]
    # Passed on to the leader by a broker that looks up in its Lease where that is.
    passed_on = f"{release.servers(3)[other]}/v1/namespaces/default/topics/lured/partitions/0/records?offset=0"
    with attacking(release, LURE, str(PORT), passed_on):
        address = release.get("pod", ATTACKER)["status"]["podIP"]
        lure = f"http://{address}:{PORT}"
        what = f"says that broker {led_by} is at '{lure}', which is not the name of its pod"
        wait_for(lambda: edited(release, lease, lure) and tell(release, other, what), "broker and operator tell of it")
        wait_for(lambda: release.get(lease)["metadata"]["annotations"][URL] == own, "the broker has put it back")
        ((_, cluster),) = asked(release, release.pod(other), ("GET", f"{release.bootstrap}/v1/cluster", "", ""))
        assert lure not in json.dumps(cluster)
        assert said(release, ATTACKER) == ["connected"], "only the attacker itself has"


def edited(release: Release, lease: str, url: str) -> bool:
    """Write it once more: the broker puts its own back with its next renewal."""
    try:
        release.kubectl("annotate", lease, f"{URL}={url}", "--overwrite")
    except LabError as error:
        if "the object has been modified" not in str(error):
            raise
    return True


def tell(release: Release, broker: int, what: str) -> bool:
    """This broker and an operator."""
    operators = release.kubectl("logs", "--selector=app.kubernetes.io/component=operator", "--tail=-1")
    return what in operators and what in release.kubectl("logs", release.pod(broker), "--tail=-1")
