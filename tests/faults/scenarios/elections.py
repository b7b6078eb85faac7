"""S13 to S15, S30: what a new leader says before it has committed anything, and what an old one wrote in vain."""

import json
from functools import partial
from typing import Final

from headrace.core.errors import HeadraceError
from headrace.core.records.columns import encode_batch, record_columns
from headrace.core.records.header import ProducerNumbers
from headrace.http2.blocking_transport import BlockingTransport
from headrace.http2.exchange import Response
from tests.faults.clients import rows_of
from tests.faults.fleet import broker_name
from tests.faults.history import Outcome, Write
from tests.faults.journal import now_s
from tests.faults.play import TOPIC, Play, Setting
from tests.faults.scenarios.scenario import Scenario
from tests.support.waiting import wait_for
from tests.support.world import BATCH

_PATH: Final = f"/v1/namespaces/default/topics/{TOPIC}/partitions/0"


def ask_new_leaders(play: Play) -> None:
    """The new leader's only follower is stopped: it can commit nothing, serves what it inherited, and no end."""
    for _ in range(play.rounds):
        leader = play.steady_leader()
        followers = [broker for broker in play.brokers if broker != leader]
        with play.journal.fault("a leader that cannot commit"):
            play.fleet.network.cut_both(broker_name(followers[0]), [broker_name(followers[1])])
            play.fleet.kill(broker_name(leader))
            elected = play.wait_other_leader(leader)
            url = play.fleet.url(elected) + _PATH
            with BlockingTransport() as transport:
                wait_for(partial(_asked, transport, f"{url}/records?offset=0"), "it serves what it inherited")
                committed = _acknowledged_end(play)
                told = transport.request("GET", f"{url}/offsets?timestamp=latest")
                # Where it has inherited all that there is, it may say so.
                is_right = told.status in (421, 503) or json.loads(told.body)["offset"] >= committed
                play.expect(is_right, f"latest before a commit: HTTP {told.status} {told.body!r}, below {committed}")
                read = transport.request("GET", f"{url}/records?offset=0", headers={"accept": BATCH})
                named = int(read.headers.get("headrace-high-watermark", committed))
                play.expect(named >= committed, f"a high watermark before a commit: {named}, below {committed}")
            play.hold(2)
            play.fleet.network.heal_all()
            play.wait_progress()
        play.fleet.start_broker(leader)
        play.wait_in_sync()


def _acknowledged_end(play: Play) -> int:
    """Of partition 0, as clients were told until now."""
    writes = [each for each in tuple(play.journal.writes) if each.outcome is Outcome.ACKNOWLEDGED]
    return 1 + max((each.offset for each in writes if each.partition == 0), default=-1)


def lag_behind(play: Play) -> None:
    """Followers have acknowledged what they never hear is committed; readers have seen it; then one of them leads."""
    for _ in range(play.rounds):
        leader = play.steady_leader()
        with play.journal.fault("a new leader that knows a lower high watermark"):
            for broker in play.brokers:
                if broker != leader:
                    play.fleet.network.cut(broker_name(leader), broker_name(broker))
            play.hold(0.3)
            play.fleet.kill(broker_name(leader))
            play.fleet.network.heal_all()
            play.wait_progress()
        play.fleet.start_broker(leader)
        play.wait_in_sync()


def elect_twice(play: Play) -> None:
    """Two leaders in a row write what nobody else has, and die; what they wrote is cut away (KIP-279)."""
    for number in range(play.rounds):
        first = play.steady_leader()
        with play.journal.fault("two leaders alone, and killed"):
            _write_alone(play, first, f"first-{number}")
            play.fleet.kill(broker_name(first))
            play.fleet.network.heal_all()
            second = play.wait_other_leader(first)
            _write_alone(play, second, f"second-{number}")
            play.fleet.kill(broker_name(second))
            play.fleet.network.heal_all()
            play.fleet.start_broker(first, wait=False)
            play.fleet.start_broker(second, wait=False)
            play.wait_progress()
        play.wait_in_sync()


def _write_alone(play: Play, leader: int, name: str) -> None:
    """Cut off from its followers, the leader takes records with acks=1 that they never get; they may be lost."""
    play.fleet.network.cut_both(broker_name(leader), [broker_name(b) for b in play.brokers if b != leader])
    with BlockingTransport(connect_timeout_s=1) as transport:
        for row in range(20):
            value, began_s = f"{name}-{row}".encode(), now_s()
            body = b"".join(encode_batch(record_columns([value], timestamps_ms=1)))
            why = ""
            try:
                url = f"{play.fleet.url(leader)}{_PATH}/records?acks=1"
                answer = transport.request("POST", url, headers={"content-type": BATCH}, body=body, timeout_s=2)
                why = str(answer.status)
            except HeadraceError as error:
                why = error.code
            play.journal.wrote(Write(name, row, 0, value, began_s, now_s(), Outcome.UNKNOWN, why=f"acks=1: {why}"))


def repeat_uncommitted(play: Play) -> None:
    """A batch whose first attempt is written and not committed: repeated, it is acknowledged only once it is."""
    for number in range(play.rounds):
        leader = play.steady_leader()
        others = [broker_name(b) for b in play.brokers if b != leader]
        numbers = ProducerNumbers(7_000 + number, 0, 0)
        value = f"repeated-{number}".encode()
        body = b"".join(encode_batch(record_columns([value], timestamps_ms=1), numbers=numbers))
        began_s = now_s()
        with play.journal.fault("a leader without followers"), BlockingTransport() as transport:
            play.fleet.network.cut_both(broker_name(leader), others)
            url = f"{play.fleet.url(leader)}{_PATH}/records?acks=all&timeoutMs=1500"
            for attempt in range(3):
                answer = transport.request("POST", url, headers={"content-type": BATCH}, body=body)
                play.expect(answer.status == 504, f"attempt {attempt} before the commit: HTTP {answer.status}")
            play.fleet.network.heal_all()
            found = wait_for(partial(_posted, transport, url, body), "the repetition is acknowledged")
        offset = json.loads(found.body)["baseOffset"]
        play.journal.wrote(Write("repeater", number, 0, value, began_s, now_s(), Outcome.ACKNOWLEDGED, offset))
        play.wait_progress()
        play.wait_in_sync()


def _asked(transport: BlockingTransport, url: str) -> bool:
    try:
        answer = transport.request("GET", url, headers={"accept": BATCH}, timeout_s=5)
    except HeadraceError:
        return False
    return answer.status == 200 and bool(rows_of(answer.body, 0))


def _posted(transport: BlockingTransport, url: str, body: bytes) -> Response | None:
    try:
        answer = transport.request("POST", url, headers={"content-type": BATCH}, body=body, timeout_s=5)
    except HeadraceError:
        return None
    return answer if answer.status == 200 else None


_ONE = Setting(partitions=1)
SCENARIOS = (
    Scenario("S13", "asked before its first commit", ask_new_leaders, _ONE, short=1, long=6),
    Scenario("S14", "the high watermark lags behind an election", lag_behind, _ONE, short=1, long=6),
    Scenario("S15", "two elections, logs that part", elect_twice, _ONE, short=1, long=6),
    Scenario("S30", "a batch repeated before it is committed", repeat_uncommitted, _ONE, short=1, long=6),
)
