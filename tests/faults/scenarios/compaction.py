"""S31: compaction of what is not committed."""

import json
from functools import partial
from typing import Final

from headrace.core.errors import HeadraceError
from headrace.core.records.columns import encode_batch, record_columns
from headrace.http2.blocking_transport import BlockingTransport
from tests.faults.fleet import broker_name
from tests.faults.play import Play, Setting
from tests.faults.scenarios.scenario import Scenario
from tests.support.cluster import http
from tests.support.waiting import wait_for
from tests.support.world import BATCH

_KEYED: Final = "compacted"
_OTHERS: Final = 20
"""Other keys of that topic."""
_ATTEMPTS: Final = 10


def compact_uncommitted(play: Play) -> None:
    """The last value of a key is written and not committed while compaction runs, then cut: the one before is there."""
    play.fleet.create_topic(
        _KEYED, partitions=1, replicas=3, minInsyncReplicas=2, cleanupPolicy="Compact", segment={"bytes": "16Ki"}
    )
    play.fleet.wait_led(_KEYED, 1)
    play.fleet.wait_in_sync(_KEYED)
    for number in range(play.rounds):
        leader = play.steady_leader(_KEYED)
        with play.journal.fault("a leader alone, compacting"):
            kept, passes = _leave_uncommitted(play, leader, number)
            wait_for(partial(_has_compacted, play, leader, passes), "compaction runs", 60)
            play.fleet.kill(broker_name(leader))
            play.fleet.network.heal_all()
            wait_for(partial(_leads_no_more, play, leader), "another leads", 60)
        play.fleet.start_broker(leader)
        play.fleet.wait_in_sync(_KEYED)
        found = _last_value(play, b"key")
        play.expect(found == kept, f"the last value of the key is {found!r}, committed was {kept!r}")
        play.wait_progress()
        play.wait_in_sync()


def _leave_uncommitted(play: Play, leader: int, number: int) -> tuple[bytes, float]:
    """Cut the leader off with two values of the key that compaction has not seen, of which the first is committed.

    -> that one, and how many passes of compaction there have been.
    """
    others = [broker_name(broker) for broker in play.brokers if broker != leader]
    for attempt in range(_ATTEMPTS):
        passes, kept = _passes(play, leader), f"committed-{number}-{attempt}".encode()
        _fill(play, leader, b"key", kept, "all")
        play.fleet.network.cut_both(broker_name(leader), others)
        _fill(play, leader, b"key", f"uncommitted-{number}-{attempt}".encode(), "1")
        if _passes(play, leader) == passes:
            return kept, passes
        play.fleet.network.heal_all()
        play.fleet.wait_in_sync(_KEYED)
    raise AssertionError(f"compaction was faster {_ATTEMPTS} times")


def _leads_no_more(play: Play, old: int) -> bool:
    """Another leads the compacted topic."""
    return play.fleet.leader(_KEYED) not in (None, old)


def _fill(play: Play, leader: int, key: bytes, value: bytes, acks: str) -> None:
    """The value of the key, then enough of others that its segment is closed, and most of the log has come since."""
    url = f"{play.fleet.url(leader)}/v1/namespaces/default/topics/{_KEYED}/partitions/0/records?acks={acks}"
    with BlockingTransport(connect_timeout_s=1) as transport:
        others = [([b"other-%d" % (number % _OTHERS)], [b"x" * 4000]) for number in range(2 * _OTHERS)]
        for keys, values in [([key], [value]), *others]:
            body = b"".join(encode_batch(record_columns(values, keys, timestamps_ms=1)))
            answer = transport.request("POST", url, headers={"content-type": BATCH}, body=body, timeout_s=10)
            play.expect(answer.status == 200, f"acks={acks} to broker {leader}: HTTP {answer.status} {answer.body!r}")


def _passes(play: Play, broker: int) -> float:
    lines = http("GET", f"{play.fleet.url(broker)}/metrics").body.decode().splitlines()
    done = [line for line in lines if line.startswith("headrace_broker_compaction_passes_total{")]
    return sum(float(line.split()[-1]) for line in done)


def _has_compacted(play: Play, broker: int, passes: float) -> bool:
    """Once more since it had done so many passes."""
    return _passes(play, broker) > passes


def _last_value(play: Play, key: bytes) -> bytes | None:
    path = f"/v1/namespaces/default/topics/{_KEYED}/partitions/0/records"
    found: bytes | None = None
    offset, end = 0, 1
    with BlockingTransport() as transport:
        while offset < end:

            def read(at: int = offset) -> dict[str, object] | None:
                try:
                    answer = transport.request("GET", f"{play.fleet.url(0)}{path}?offset={at}", timeout_s=5)
                except HeadraceError:
                    return None
                return dict(json.loads(answer.body)) if answer.status == 200 else None

            page = wait_for(read, "the compacted topic can be read")
            records = page["records"]
            assert isinstance(records, list)
            for record in records:
                if record.get("key") == key.decode():
                    found = str(record["value"]).encode()
            offset = int(str(page["nextOffset"]))
            end = offset + 1 if page["highWatermark"] is None else int(str(page["highWatermark"]))
    return found


SCENARIOS = (
    Scenario(
        "S31",
        "compaction of what is not committed",
        compact_uncommitted,
        Setting(partitions=1, broker_options=("--housekeeping-interval", "4s")),
        short=1,
        long=4,
    ),
)
