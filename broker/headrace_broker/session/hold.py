"""The partition that a channel is about, for as long as this broker leads it in one epoch."""

from dataclasses import dataclass

from headrace.core.errors import HeadraceError, NotLeaderError
from headrace.core.frames.session_terms import Standing
from headrace.core.log.epochs import Fence
from headrace.core.types import Offset
from headrace_broker.fetch import known_end
from headrace_broker.partition import Partition
from headrace_broker.proxy import Elsewhere
from headrace_broker.requests import Place
from headrace_broker.serving import Serving

_REMEDY = "; open a session there"


@dataclass(frozen=True, slots=True)
class Hold:
    """`fence` is the topic and the epoch that the channel began in."""

    serving: Serving
    partition: Partition
    fence: Fence

    @classmethod
    def take(cls, serving: Serving, place: Place, fence: Fence) -> "Hold":
        """Raises what `Serving.locate` and `Replica.check_leader` raise, and NotLeaderError."""
        target = serving.locate(place, fence)
        if isinstance(target, Elsewhere):
            raise target.error(_REMEDY)
        epoch = target.replica.check_leader(str(place), fence)
        return cls(serving, target, Fence(target.key.uid, epoch))

    @property
    def is_over(self) -> bool:
        replica = self.partition.replica
        return not replica.leads or replica.leader_epoch != self.fence.leader_epoch

    @property
    def max_message_bytes(self) -> int:
        """Raises what `Serving.topic` raises."""
        return self.serving.topic(self.partition.place.topic, self.fence).spec.max_message_bytes

    def why_over(self) -> HeadraceError:
        """What `is_over` means to the client: who leads now, where that is known."""
        place = self.partition.place
        try:
            target = self.serving.locate(place, Fence(self.fence.topic_uid))
            if isinstance(target, Elsewhere):
                return target.error(_REMEDY)
            self.partition.replica.check_leader(str(place), self.fence)
        except HeadraceError as error:
            return error
        raise AssertionError("it was over")

    def with_leader(self, error: HeadraceError) -> HeadraceError:
        """The same error; where another broker leads, with its address."""
        if isinstance(error, NotLeaderError):
            now = self.why_over() if self.is_over else error
            if isinstance(now, NotLeaderError):
                return NotLeaderError(error.message, **now.details)
        return error

    def standing(self, offset: Offset | None = None) -> Standing:
        """Raises what `Serving.topic` raises."""
        topic_uid, epoch = self.fence.topic_uid, self.fence.leader_epoch
        assert topic_uid is not None, "taken with both"
        assert epoch is not None, "taken with both"
        return Standing(
            topic_uid=topic_uid,
            leader_epoch=epoch,
            log_start_offset=self.partition.log.log_start_offset,
            high_watermark=known_end(self.partition),
            max_message_bytes=self.max_message_bytes,
            offset=offset,
        )
