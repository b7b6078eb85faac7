"""A page in a real browser attacks `headrace dev`: it changes nothing, and reads no answer.

What the page tries is worth trying: programs that send the same do change and read all of it, and so does the page
itself where its name is one of this machine.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_objects import pod, topic
from tests.support.browser import UNREADABLE, Attempt, Seen, Site, shown_by, visit
from tests.support.cluster import http
from tests.support.dev import dev_home
from tests.support.tools import require_tool
from tests.support.waiting import wait_for
from tests.support.world import TOPICS

TOPIC = "orders"
DESCRIBED = f"/v1/namespaces/default/topics/{TOPIC}"
RECORDS = f"{DESCRIBED}/partitions/0/records"
READ = f"{RECORDS}?offset=2"
GROUPS = "/v1/namespaces/default/groups"
PODS = "/api/v1/namespaces/default/pods"
INSIDE = f"{PODS}/headrace-0/proxy/v1/cluster"
JSON, LINES, TEXT = "application/json", "application/x-ndjson", "text/plain"
RESET = json.dumps({"id": "once", "offsets": [{"topic": TOPIC, "partition": 0, "offset": 1}]})
ELSEWHERE = "attacker.test"
"""Its name leads to this machine, as all names do in these browsers."""


@dataclass(frozen=True, slots=True)
class Target:
    api: str
    broker: str

    def state(self) -> dict[str, Any]:
        """All that a page may want to change."""
        offsets = http("GET", self.broker + DESCRIBED).json["partitions"][0]["offsets"]
        return {
            "topics": self._names(TOPICS),
            "pods": self._names(PODS),
            "start": offsets["logStartOffset"],
            "end": offsets["highWatermark"],
            "committed": http("GET", f"{self.broker}{GROUPS}/readers/offsets").json.get("offsets", []) != [],
        }

    def reset(self, group: str) -> bool:
        """Return whether its coordinator has done so: the first one takes a moment."""
        return (
            http("POST", f"{self.broker}{GROUPS}/{group}/reset", RESET.encode(), {"Content-Type": JSON}).status == 200
        )

    def base(self, path: str) -> str:
        return self.broker if path.startswith("/v1/") else self.api

    def _names(self, path: str) -> list[str]:
        return sorted(each["metadata"]["name"] for each in http("GET", self.api + path).json["items"])


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One broker, a topic with three records, and a coordinator of groups that takes requests."""
    require_tool("chromium")
    with dev_home(tmp_path_factory.mktemp("dev") / "home") as dev:
        dev.start_with_topic(TOPIC)
        state = dev.status()
        target = Target(state["api"]["url"], state["brokers"][0]["url"])
        lines = b'{"value": 1}\n{"value": 2}\n{"value": 3}\n'
        assert http("POST", target.broker + RECORDS, lines, {"Content-Type": LINES}).status == 200
        wait_for(lambda: target.reset("another"), "there is a coordinator")
        yield target


def made(name: str, **annotations: str) -> str:
    document = topic(name, partitions=1, replicas=1)
    document["metadata"]["annotations"] = annotations
    return json.dumps(document)


def unasked(api: str, broker: str) -> list[Attempt]:
    """The requests that a browser sends for any page without asking before."""
    return [
        Attempt("topic", "no-cors", api + TOPICS, "POST", made("untyped")),
        Attempt("topic as text", "no-cors", api + TOPICS, "POST", made("text"), TEXT),
        Attempt("topic by form", "form", api + TOPICS, "POST", made("form", sign="=")),
        Attempt("pod", "no-cors", api + PODS, "POST", json.dumps(pod("door"))),
        Attempt("topics", "cors", api + TOPICS),
        Attempt("image", "img", api + INSIDE),
        Attempt("socket", "socket", f"{api}{PODS}?watch=true"),
        Attempt("records", "no-cors", broker + RECORDS, "POST", '{"value": 4}\n'),
        Attempt("records as text", "no-cors", broker + RECORDS, "POST", '{"value": 5}\n', TEXT),
        Attempt("records by form", "form", broker + RECORDS, "POST", '{"value": "="}'),
        Attempt("reset", "no-cors", f"{broker}{GROUPS}/readers/reset", "POST", RESET, TEXT),
        Attempt("script", "script", broker + READ),
        Attempt("read", "cors", broker + READ),
    ]


def at_home(api: str = "", broker: str = "") -> list[Attempt]:
    """The requests that a browser sends for pages of the same site alone; for others it asks first (OPTIONS)."""
    return [
        Attempt("typed topic", "cors", api + TOPICS, "POST", made("typed"), JSON),
        Attempt("typed records", "cors", broker + RECORDS, "POST", '{"value": 6}\n', LINES),
        Attempt("typed reset", "cors", f"{broker}{GROUPS}/readers/reset", "POST", RESET, JSON),
        Attempt("delete", "cors", f"{broker}{RECORDS}?beforeOffset=2", "DELETE"),
    ]


def looks() -> list[Attempt]:
    return [Attempt(path, "cors", path) for path in (TOPICS, INSIDE, READ, "/v1/cluster")]


def changed(before: dict[str, Any]) -> dict[str, Any]:
    """The state once all of `at_home` is done."""
    return before | {
        "topics": sorted([*before["topics"], "typed"]),
        "start": 2,
        "end": before["end"] + 1,
        "committed": True,
    }


@pytest.mark.parametrize(("page", "host"), [(ELSEWHERE, "127.0.0.1"), ("localhost", "localhost")], ids=["site", "port"])
def test_should_change_and_show_nothing_when_a_page_of_elsewhere_attacks(
    target: Target, tmp_path: Path, page: str, host: str
) -> None:
    before = target.state()
    attacked = [url.replace("127.0.0.1", host) for url in (target.api, target.broker)]
    with Site(unasked(*attacked) + at_home(*attacked)).serving() as site:
        found = visit(site, page, tmp_path / "profile")
    assert found == {attempt.name: UNREADABLE for attempt in site.plan}
    assert target.state() == before


def test_should_change_and_show_nothing_when_the_name_of_a_page_is_made_to_lead_here(
    target: Target, tmp_path: Path
) -> None:
    before = target.state()
    with Site(at_home() + looks(), {"/v1/": target.broker, "/": target.api}).serving() as site:
        found = visit(site, ELSEWHERE, tmp_path / "profile")
    assert {name: answered.status for name, answered in found.items()} == {each.name: 403 for each in site.plan}
    assert TOPIC not in " ".join(answered.text for answered in found.values())
    assert target.state() == before


def test_should_show_a_user_what_is_asked_for_by_a_name_of_this_machine_alone(target: Target, tmp_path: Path) -> None:
    for url, what in ((target.api + TOPICS, TOPIC), (f"{target.broker}/v1/cluster", '"underReplicated"')):
        profile = tmp_path / "profile"
        assert what in shown_by(url.replace("127.0.0.1", "localhost"), profile)
        refused = shown_by(url.replace("127.0.0.1", ELSEWHERE), profile)
        assert "this server answers to this machine alone" in refused
        assert what not in refused


def test_should_take_from_programs_what_the_page_sends(target: Target, tmp_path: Path) -> None:
    before = target.state()
    with Site().serving() as witness:
        base = witness.url("127.0.0.1")
        with Site(unasked(base, base) + at_home(base, base)).serving() as site:
            visit(site, ELSEWHERE, tmp_path / "profile")
    assert Counter(seen.method for seen in witness.seen) == Counter(POST=8, GET=5, OPTIONS=4)
    sent = [seen for seen in witness.seen if seen.method != "OPTIONS" and "upgrade" not in seen.headers]
    statuses = {named(seen): seen.repeated_by_a_program(target.base(seen.path)).status for seen in sent}
    assert statuses == {
        ("POST", TOPICS, ""): 201,
        ("POST", TOPICS, TEXT): 415,
        ("POST", PODS, ""): 201,
        ("GET", TOPICS, ""): 200,
        ("GET", INSIDE, ""): 200,
        ("POST", RECORDS, ""): 400,
        ("POST", RECORDS, TEXT): 400,
        ("POST", f"{GROUPS}/readers/reset", TEXT): 200,
        ("GET", READ, ""): 200,
    }
    after = target.state()
    assert set(after["topics"]) - set(before["topics"]) == {"untyped"}
    assert set(after["pods"]) - set(before["pods"]) == {"door"}
    assert after["committed"]


def named(seen: Seen) -> tuple[str, str, str]:
    return seen.method, seen.path, seen.headers.get("content-type", "")


def test_should_obey_the_same_page_when_its_name_is_of_this_machine(target: Target, tmp_path: Path) -> None:
    before = target.state()
    with Site(at_home() + looks(), {"/v1/": target.broker, "/": target.api}).serving() as site:
        found = visit(site, "localhost", tmp_path / "profile")
    assert {name: answered.status // 100 for name, answered in found.items()} == {each.name: 2 for each in site.plan}
    assert TOPIC in found[TOPICS].text
    assert target.state() == changed(before)
