"""Requests about one consumer group over HTTP, as a program without our SDK makes them, and a member that does no more.

A call is repeated for as long as its refusal says that this may help, at the next broker where one does not answer.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.core.resources.topic import INTERNAL_LABEL
from tests.support.cluster import Answer, Cluster, http
from tests.support.waiting import wait_for

OFFSETS_TOPIC = "headrace-offsets"


def create_offsets_topic(cluster: Cluster, *, partitions: int = 4, replicas: int = 1) -> None:
    """Before any group is there; else the operator makes it, with as many partitions as it has on a real cluster."""
    cluster.create_topic(
        OFFSETS_TOPIC,
        partitions=partitions,
        replicas=replicas,
        labels={INTERNAL_LABEL: "true"},  # as the operator's own: it makes no others of its partitions
        cleanupPolicy="Compact",
        deletionPolicy="Retain",
    )


@dataclass
class GroupCalls:
    urls: list[str]
    """Of brokers; the first is asked."""
    group: str = "billing"

    def once(self, method: str, path: str = "", body: object = None) -> Answer:
        content = b"" if body is None else json.dumps(body).encode()
        return http(method, f"{self.urls[0]}/v1/namespaces/default/groups/{self.group}{path}", content)

    def call(self, method: str, path: str = "", body: object = None) -> Answer:
        """Whatever is not worth another attempt."""

        def attempt() -> Answer | None:
            try:
                answer = self.once(method, path, body)
            except OSError:
                self.urls.append(self.urls.pop(0))
                return None
            return answer if answer.status < 400 or not answer.json["retriable"] else None

        return wait_for(attempt, f"{method} {self.group}{path} is answered")

    def get(self, path: str = "") -> Any:
        answer = self.call("GET", path)
        assert answer.status == 200, answer.body
        return answer.json

    def offsets(self) -> dict[tuple[str, int], int]:
        return {(each["topic"], each["partition"]): each["offset"] for each in self.get("/offsets")["offsets"]}

    def commit(
        self, offsets: Mapping[int, int], member: Mapping[str, object] | None = None, topic: str = "flights"
    ) -> Answer:
        listed = [{"topic": topic, "partition": number, "offset": offset} for number, offset in offsets.items()]
        return self.call("POST", "/offsets", {**(member or {}), "offsets": listed})


@dataclass
class PlainMember:
    calls: GroupCalls
    id: str
    topics: tuple[str, ...] = ("flights",)
    seen: tuple[int, int] | None = None
    owned: list[dict[str, Any]] = field(default_factory=list)

    @property
    def partitions(self) -> list[int]:
        """Of all of its topics."""
        return sorted(number for each in self.owned for number in each["partitions"])

    @property
    def credentials(self) -> dict[str, object]:
        assert self.seen is not None, "it has joined"
        return {"memberId": self.id, "memberEpoch": self.seen[0]}

    def join(self, **more: object) -> Answer:
        answer = self.calls.call("PUT", f"/members/{self.id}", {"topics": list(self.topics), **more})
        if answer.status == 200:
            self._take(answer.json)
        return answer

    def heartbeat(self, *, wait_ms: int = 100) -> Answer:
        assert self.seen is not None, "it has joined"
        said = {"memberEpoch": self.seen[0], "revision": self.seen[1], "owned": self.owned, "waitMs": wait_ms}
        answer = self.calls.call("POST", f"/members/{self.id}/heartbeat", said)
        if answer.status == 200:
            self._take(answer.json)
        return answer

    def leave(self) -> Answer:
        return self.calls.call("DELETE", f"/members/{self.id}")

    def _take(self, told: Mapping[str, Any]) -> None:
        mark = told["memberEpoch"], told["revision"]
        if self.seen is None or mark > self.seen:
            self.seen, self.owned = mark, told["assignment"] or []


def settle(members: Iterable[PlainMember], partitions: int) -> None:
    """Until they share that many, each at one of them, and all of them have what they are to have."""
    members = [*members]

    def shared() -> bool:
        is_stable = members[0].calls.get()["state"] == "Stable"
        for member in members:
            assert member.heartbeat().status == 200
        owned = sorted(number for member in members for number in member.partitions)
        return is_stable and owned == [*range(partitions)]

    wait_for(shared, f"{partitions} partitions are shared out")
