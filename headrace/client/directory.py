"""What a client knows of topics and of the way to their brokers. Pure: time comes in as `now_ms`.

One per producer or consumer, shared by its threads: every step is one operation on a dictionary, and a layout is
replaced whole.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.client.calls import Answer, Call, check, parse_json
from headrace.client.discovery import Servers
from headrace.client.layout import Routes, TopicLayout
from headrace.client.record import TopicPartition
from headrace.core.errors import BrokerUnreachableError, StaleTopicError, UnknownPartitionError, UntrustedBrokerError


@dataclass(slots=True)
class Directory:
    servers: Servers
    routes: Routes = field(init=False)
    newest: Callable[[str], TopicLayout | None] = field(init=False)
    """What is known of a topic, however old it is. Every `send` asks: a look-up, and no call of ours."""
    _layouts: dict[str, TopicLayout] = field(default_factory=dict)
    _pinned: dict[str, str] = field(default_factory=dict)
    """Uids of topics in which somebody has positions."""

    def __post_init__(self) -> None:
        self.routes = Routes(self.servers.urls, self.servers.reaches_leaders, self.servers.sends_to)
        self.newest = self._layouts.get

    # -- topics ------------------------------------------------------------------------------------------------------

    def fresh(self, topic: str, now_ms: int) -> TopicLayout | None:
        """None: a broker must be asked."""
        known = self._layouts.get(topic)
        return known if known is not None and not known.is_old(now_ms) else None

    def learn(self, topic: str, answer: Answer, now_ms: int) -> TopicLayout:
        """Take over what a broker said. Raises StaleTopicError where positions belong to an older topic of the name."""
        layout = TopicLayout.parse(parse_json(answer.body), now_ms)
        if layout.uid != self._pinned.get(topic, layout.uid):
            raise StaleTopicError(
                f"{topic} was deleted and created again: positions in the old one mean nothing in the new one;"
                " make a new Consumer"
            )
        self._layouts[topic] = layout
        self.routes.learn(layout)
        return layout

    def pin(self, layout: TopicLayout) -> TopicLayout:
        """From now on a topic of this name that was created again is a StaleTopicError."""
        self._pinned.setdefault(layout.topic, layout.uid)
        return layout

    def pin_anew(self, topic: str, uid: str) -> None:
        """From now on positions belong to this topic of the name, whatever they belonged to before."""
        known = self._layouts.get(topic)
        if known is not None and known.uid != uid:
            self.forget(topic)
        self._pinned[topic] = uid

    def forget(self, topic: str) -> None:
        """Ask a broker before the metadata of `topic` is used next."""
        self._layouts.pop(topic, None)

    def check_partition(self, layout: TopicLayout, partition: TopicPartition) -> None:
        """Raises UnknownPartitionError."""
        count = len(layout.partitions)
        if partition.partition < count:
            return
        # It may have been added since; and if not, what comes next must not be told from old metadata.
        self.forget(layout.topic)
        raise UnknownPartitionError(
            f"partition {partition.partition} of {layout.topic} does not exist: it has {count}, numbered from 0",
            partitions=count,
        )

    # -- the way there -----------------------------------------------------------------------------------------------

    def url_for(self, call: Call, now_ms: int) -> str:
        return self.routes.choose(call.leader_url, now_ms)

    def leader_url(self, layout: TopicLayout, partition: int, now_ms: int) -> str | None:
        """The leader itself; None where only requests lead there, which other brokers pass on."""
        url = layout.partitions[partition].leader_url
        reached = url is not None and self.servers.reaches_leaders and self.routes.choose(url, now_ms) == url
        return url if reached else None

    def headers_of(self, call: Call) -> Mapping[str, str]:
        return {**self.servers.headers, **call.headers}

    def answered(self, url: str, answer: Answer) -> None:
        """Raises the error that came back."""
        self.routes.answered(url)
        check(answer, url)

    def unreachable(self, url: str, error: BrokerUnreachableError, now_ms: int) -> BrokerUnreachableError:
        """What to raise. No retry helps against a certificate that is not trusted, but another broker may."""
        self.routes.failed(url, now_ms)
        if isinstance(error, UntrustedBrokerError) and self.routes.has_other(now_ms):
            return BrokerUnreachableError(error.message, **error.details)
        return error
