"""S16, S17, S19, S21: what administrators do to a cluster that is in use."""

import json
from functools import partial
from typing import Final

from headrace.core.errors import HeadraceError
from headrace.core.records.columns import encode_batch, record_columns
from headrace.http2.blocking_transport import BlockingTransport
from tests.faults.clients import RawReader, SdkWriter
from tests.faults.fleet import broker_name
from tests.faults.journal import Journal
from tests.faults.play import TOPIC, Play, Setting
from tests.faults.scenarios.scenario import Scenario
from tests.support.cluster import Answer, http
from tests.support.waiting import wait_for
from tests.support.world import BATCH

_MOVED_S: Final = 120
_LEFT_BY_RETENTION: Final = 300
"""Records at the least, of 64 KiB."""
_PASSING: Final = (421, 429, 503, 504)


def change_replicas(play: Play) -> None:
    """3 -> 1 -> 3, and a broker dies while data is copied."""
    for _ in range(play.rounds):
        play.fleet.patch_topic(TOPIC, {"spec": {"replicas": 1, "minInsyncReplicas": 1}})
        _wait_replicas(play, 1)
        play.wait_progress()
        play.fleet.patch_topic(TOPIC, {"spec": {"replicas": 3, "minInsyncReplicas": 2}})
        victim = next(broker for broker in play.brokers if broker != play.leader())
        with play.journal.fault(f"broker {victim} killed while it is added"):
            play.fleet.kill(broker_name(victim))
            play.hold(1)
            play.fleet.start_broker(victim)
        _wait_replicas(play, 3)
        play.wait_in_sync(_MOVED_S)
        play.wait_progress()


def _wait_replicas(play: Play, count: int) -> None:
    def are_there() -> bool:
        return all(
            len(found["replicas"]) == count and not found.get("adding") and not found.get("removing")
            for found in play.fleet.partitions(TOPIC).values()
        )

    wait_for(are_there, f"{count} replicas", _MOVED_S)


def restart_in_turn(play: Play) -> None:
    """A rolling restart, then a broker that leaves for good, then one that comes."""
    last = play.brokers[-1]
    for _ in range(play.rounds):
        for broker in play.brokers:
            with play.journal.fault(f"broker {broker} restarted"):
                code = play.fleet.stop(broker_name(broker))
                play.expect(code == 0, f"broker {broker} ended with {code} when it was told to stop")
                play.fleet.start_broker(broker)
            play.wait_in_sync()
    with play.journal.fault("scale-down"):
        play.fleet.scale(last)
        code = play.fleet.stop(broker_name(last), _MOVED_S)
        play.expect(code == 0, f"broker {last} ended with {code} when it was to leave")
        named = [n for n, p in play.fleet.partitions(TOPIC).items() if last in p["replicas"]]
        play.expect(not named, f"broker {last} left, and still holds replicas of partitions {named}")
        play.wait_progress()
    with play.journal.fault("scale-up"):
        play.fleet.scale(last + 1)
        play.fleet.start_broker(last)
        play.wait_progress()


def create_again(play: Play) -> None:
    """Deleted and created under the same name: whoever knew the old one is told, and nothing old appears."""
    for number in range(play.rounds):
        name = f"shortlived-{number}"
        uid = play.fleet.create_topic(name, partitions=1, replicas=3)
        play.fleet.wait_led(name, 1)
        old = _write(play, name, b"old")
        with play.journal.fault("another topic deleted and created again"):
            play.fleet.delete_topic(name)
            wait_for(partial(_is_gone, play, name), "the topic is gone", 60)
            play.fleet.create_topic(name, partitions=1, replicas=3)
            play.fleet.wait_led(name, 1)
        path = f"{play.fleet.url(0)}/v1/namespaces/default/topics/{name}/partitions/0"
        told = _final_answer(f"{path}/records?offset=0&topicUid={uid}")
        play.expect(told.status == 412, f"a client of the old topic is told HTTP {told.status} {told.body!r}")
        read = _final_answer(f"{path}/records?offset=0")
        play.expect(read.status == 200 and not read.json["records"], f"in the new topic there is {read.body!r}")
        new = _write(play, name, b"new")
        play.expect((old, new) == (0, 0), f"first offsets of old and new topic: {old}, {new}")
        play.wait_progress()


def _is_gone(play: Play, topic: str) -> bool:
    return topic not in play.fleet.topics()


def _final_answer(url: str) -> Answer:
    """To a GET, once it is none to be tried again."""

    def answered() -> Answer | None:
        answer = http("GET", url, headers={"Accept": "application/json"})
        return None if answer.status in _PASSING else answer

    return wait_for(answered, f"a final answer to {url}")


def _write(play: Play, topic: str, value: bytes) -> int:
    body = b"".join(encode_batch(record_columns([value], timestamps_ms=1)))
    url = f"{play.fleet.url(0)}/v1/namespaces/default/topics/{topic}/partitions/0/records"

    def written() -> tuple[int] | None:
        answer = http("POST", url, body, {"Content-Type": BATCH})
        return (int(answer.json["baseOffset"]),) if answer.status == 200 else None

    return wait_for(written, f"a record is written to {topic}")[0]


def trim(play: Play) -> None:
    """Records are deleted, by retention and by hand, under readers and list-offsets, while leaders die."""
    name = "trimmed"
    spec = {"segment": {"bytes": "32Ki"}, "retention": {"time": "unlimited", "bytes": "64Ki"}}
    play.fleet.create_topic(name, partitions=1, replicas=3, **spec)
    play.fleet.wait_led(name, 1)
    journal = Journal(name, 1)
    writer = SdkWriter("trimmed-writer", journal, play.fleet.servers)
    reader = RawReader("trimmed-reader", journal, play.fleet.servers, 0)
    for client in (writer, reader):
        client.start()
    starts, asked = [0], 0
    with BlockingTransport(connect_timeout_s=1) as transport:
        for number in range(4 * play.rounds):
            goal = journal.acknowledged[0] + 100
            wait_for(partial(_has_acknowledged, journal, goal), "the trimmed topic goes on", 60)
            asked = journal.acknowledged[0] - 60
            _delete_before(play, transport, name, asked)
            starts.append(wait_for(lambda: _edge(play, transport, name), "it says where it begins"))
            if number % 4 == 2:
                leader = play.leader()
                with play.journal.fault(f"broker {leader} killed"):
                    play.fleet.kill(broker_name(leader))
                    play.wait_progress()
                play.fleet.start_broker(leader)
    play.expect(starts == sorted(starts), f"the start of the log went back: {starts}")
    play.expect(starts[-1] > 0, "nothing was ever deleted")
    whole = play.judge_more(journal, [writer, reader], trimmed=True)
    play.expect(whole.start >= starts[-1], f"the log began at {starts[-1]}, and begins at {whole.start}")
    # Not more than was asked for, unless by retention, which leaves more than that.
    play.expect(whole.start <= max(asked, whole.end - _LEFT_BY_RETENTION), f"{whole.start} is more than {asked}")


def _has_acknowledged(journal: Journal, records: int) -> bool:
    return journal.acknowledged[0] >= records


def _delete_before(play: Play, transport: BlockingTransport, topic: str, offset: int) -> None:
    url = f"{play.fleet.url(play.random.choice(play.brokers))}/v1/namespaces/default/topics/{topic}/partitions/0"
    try:
        transport.request("DELETE", f"{url}/records?beforeOffset={max(0, offset)}", timeout_s=5)
    except HeadraceError:
        play.journal.failed("delete-records")


def _edge(play: Play, transport: BlockingTransport, topic: str) -> int | None:
    url = f"{play.fleet.url(play.random.choice(play.brokers))}/v1/namespaces/default/topics/{topic}/partitions/0"
    try:
        answer = transport.request("GET", f"{url}/offsets?timestamp=earliest", timeout_s=5)
    except HeadraceError:
        return None
    return int(json.loads(answer.body)["offset"]) if answer.status == 200 else None


SCENARIOS = (
    Scenario("S16", "one replica, then three again, and a kill", change_replicas, short=1, long=4),
    Scenario("S17", "rolling restart, scale-down, scale-up", restart_in_turn, Setting(brokers=4), short=1, long=3),
    Scenario("S19", "a topic created again", create_again, Setting(partitions=1), short=1, long=4),
    Scenario("S21", "records deleted under readers", trim, Setting(partitions=1), short=1, long=5),
)
