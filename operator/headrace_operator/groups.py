"""The loop for consumer groups, beside the one for topics: neither waits for the other.

    watch of ConsumerGroups ──┐
    pictures of the other loop ├──> plan_groups ──> writes, each a compare-and-set ──> a check of what has landed
    answers of brokers ───────┘         └──> errands: deletions and resets, each a task of its own

The groups are as the watch shows them, and as this operator's own writes have left them; where that is old, the write
meets a conflict, and the group is read again. Owned by the operator process; everything runs in its one event loop, but
plans, which take a second for the greatest of groups, are made in a thread. While another operator acts, this one only
watches.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from random import Random
from typing import assert_never

from headrace.core.control.actions import GroupAction, TopicAction
from headrace.core.control.group_errands import Errand, GroupAsking, Wish, errand
from headrace.core.control.group_plan import askable, next_change_ms, plan_groups
from headrace.core.control.group_view import GroupPatience, GroupResting, GroupView
from headrace.core.control.observed import BrokerState
from headrace.core.groups.identity import GroupName
from headrace.core.limits import GROUP_CALLS_MAX, RECONCILE_BACKOFF_MAX_MS, RECONCILE_RESYNC_MS
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.kube.client import Backoff, KubeClient
from headrace.kube.errors import ApiError, NotFoundError, UnreadableObjectError
from headrace.kube.resource import CONSUMER_GROUPS, ObjectKey
from headrace.kube.watch import Changed, Listed, Removed, Unreadable, WatchEvent, watch
from headrace_operator.applier import GroupApplier, Outcome
from headrace_operator.broker_calls import GroupCalls
from headrace_operator.metrics import OperatorGroupMetrics
from headrace_operator.observer import Picture, Scope, monotonic_ms

GROUP_WRITES_PER_PASS_MAX = 64
"""The operator's writes in one pass, the most urgent first: a group that waits for an assignment does not wait for a
thousand conditions."""
GROUP_PASS_INTERVAL_MS_MIN = 20
"""The time between two passes of the operator over groups: the coordinator waits for an assignment, but not for
long."""


_log = logging.getLogger(__name__)


class Groups:
    def __init__(
        self, client: KubeClient, scope: Scope, applier: GroupApplier, calls: GroupCalls, metrics: OperatorGroupMetrics
    ) -> None:
        self._client = client
        self._scope = scope
        self._applier = applier
        self._calls = calls
        self._metrics = metrics
        self._asking = GroupAsking()
        self._resting = GroupResting()
        self._groups: dict[GroupName, ConsumerGroup] | None = None
        self._unreadable: set[ObjectKey] = set()
        """The groups that are there, and cannot be read: the log has the reason."""
        self._picture: Picture | None = None
        self._topic_tried: Picture | None = None
        """The picture from which the internal topic was last written: the next one shows the result."""
        self._patience = GroupPatience()
        self._reads = asyncio.Semaphore(GROUP_CALLS_MAX)
        self._backoff = Backoff(Random(), most_ms=RECONCILE_BACKOFF_MAX_MS)
        self._rung = asyncio.Event()
        self._waiting: frozenset[str] = frozenset()
        """The uids of groups whose turn did not come in the last pass."""
        self._errands: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        """The error that ended an errand unexpectedly, so that the process ends with it."""

    def ring(self) -> None:
        self._rung.set()

    def show(self, picture: Picture) -> None:
        """Take the picture that the other loop has just read."""
        self._picture = picture
        self.ring()

    async def run(self, acts: Callable[[], bool]) -> None:
        """Run until cancelled; `acts`: whether it is this process' turn."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch(), name="watch-groups")
                tasks.create_task(self._loop(acts), name="groups")
        finally:
            for task in self._errands:
                task.cancel()

    @property
    def known(self) -> Mapping[GroupName, ConsumerGroup] | None:
        """Return the groups as they were seen last, those of other clusters included; None: not known yet."""
        return self._groups

    def take(self, event: WatchEvent[ConsumerGroup]) -> None:
        """Take an event of a watch."""
        known = self._groups or {}
        match event:
            case Listed(items, unreadable):
                known = {group.name: group for group in items}
                self._unreadable = {*unreadable}
            case Changed(group):
                known[group.name] = group
                self._unreadable.discard(ObjectKey(*group.name))
            case Removed(group):
                if _is_same(known.get(group.name), group):
                    del known[group.name]
            case Unreadable(key, is_gone):
                self._unreadable = self._unreadable - {key} if is_gone else self._unreadable | {key}
                known.pop(GroupName(*key), None)
            case _:
                assert_never(event)
        self._metrics.unreadable.set(len(self._unreadable))
        self._groups = known
        self.ring()

    async def _watch(self) -> None:
        async with aclosing(watch(self._client, CONSUMER_GROUPS)) as events:
            async for event in events:
                self.take(event)

    async def _loop(self, acts: Callable[[], bool]) -> None:
        while True:
            await self._wait_for_work()
            self._rung.clear()
            wait_ms: float = GROUP_PASS_INTERVAL_MS_MIN
            try:
                await self._one_pass(acts)
                self._backoff.reset()
            except ApiError as error:
                _log.warning("a pass over groups failed: %s", error)
                self.ring()
                wait_ms = self._backoff.next_ms()
            await asyncio.sleep(wait_ms / 1000)

    async def _one_pass(self, acts: Callable[[], bool]) -> None:
        """Make one pass. Raises ApiUnavailableError."""
        if self._failure is not None:
            raise self._failure
        view = self._view()
        if view is None or not acts():
            self._asking.drop()
            self._metrics.stuck.set(0)  # The operator that acts reports that.
            return
        self._metrics.seen(view.ours)
        self._send(view)  # This holds whatever becomes of the writes.
        with self._metrics.pass_seconds.time():
            verdicts = self._asking.verdicts()
            view = replace(view, resting=self._resting.among(view, verdicts), waited=self._waiting)
            plan = await asyncio.to_thread(plan_groups, view, verdicts, _wall_ms())
            self._resting.settle(view, verdicts, {action.group.metadata.uid for action in plan.groups})
            # Both come to their end: a write that is still under way when the next pass begins would be its conflict.
            writes = (self._apply(plan.groups), self._apply_topic(plan.topic))
            for failure in await asyncio.gather(*writes, return_exceptions=True):
                if failure is not None:
                    raise failure

    def _view(self) -> GroupView | None:
        picture = self._picture
        if picture is None or self._groups is None:
            return None
        return GroupView(
            tuple(self._groups.values()),
            picture.topics,
            picture.observed,
            self._scope.lease_namespace,
            picture.settled,
            is_whole=picture.unreadable == 0,
        )

    async def _apply(self, planned: Sequence[GroupAction]) -> None:
        """Apply the actions. Raises ApiUnavailableError."""
        now_ms = monotonic_ms()
        held = self._patience.held({group.metadata.uid for group in (self._groups or {}).values()}, now_ms)
        allowed = [action for action in planned if action.group.metadata.uid not in held]
        actions = allowed[:GROUP_WRITES_PER_PASS_MAX]
        self._waiting = frozenset(action.group.metadata.uid for action in allowed[GROUP_WRITES_PER_PASS_MAX:])
        if self._waiting:
            self.ring()
        outcomes = await self._applier.apply_groups(actions, self._landed)
        for action, outcome in zip(actions, outcomes, strict=True):
            self._note(action.group.metadata.uid, outcome, now_ms)
        self._metrics.stuck.set(self._patience.stuck)
        overtaken = (action for action, outcome in zip(actions, outcomes, strict=True) if outcome is Outcome.OVERTAKEN)
        await asyncio.gather(*(self._read_again(action.group) for action in overtaken))

    def _note(self, uid: str, outcome: Outcome, now_ms: int) -> None:
        match outcome:
            case Outcome.DONE:
                self._patience.landed(uid)
            case Outcome.OVERTAKEN:
                self._patience.overtaken(uid, now_ms)
            case Outcome.BUSY:
                self._patience.failed(uid, now_ms)
            case Outcome.REFUSED:
                self._patience.refused(uid, now_ms)
            case _:
                assert_never(outcome)

    async def _apply_topic(self, action: TopicAction | None) -> None:
        """Apply the action about an internal topic. Raises ApiUnavailableError."""
        if action is not None and self._topic_tried is not self._picture:
            self._topic_tried = self._picture
            await self._applier.apply_topic(action)

    def _landed(self, action: GroupAction, group: ConsumerGroup) -> None:
        self._metrics.landed(action)
        self._keep(action.group, None if group.deleting and not group.metadata.finalizers else group)

    def _keep(self, seen: ConsumerGroup, group: ConsumerGroup | None) -> None:
        """Replace what was `seen` by `group`; None: it is gone. If the watch has reported its end already, that
        counts."""
        known = self._groups or {}
        if _is_same(known.get(seen.name), seen):
            known.pop(seen.name) if group is None else known.update({seen.name: group})
        self.ring()

    async def _read_again(self, group: ConsumerGroup) -> None:
        try:
            async with self._reads:
                found = await self._client.get(CONSUMER_GROUPS, group.metadata.name, group.metadata.namespace)
        except (NotFoundError, UnreadableObjectError):
            self._keep(group, None)
        except ApiError as error:
            _log.error("group %s cannot be read: %s", group.name, error)
        else:
            self._keep(group, found)

    def _send(self, view: GroupView) -> None:
        due = self._asking.due(askable(view), monotonic_ms())
        shapes = view.shapes() if due else {}
        for group, wish in due:
            carried_out = errand(group, wish, shapes.get(group.metadata.namespace, {}))
            what = f"{'deletion' if wish.reset is None else f'reset {wish.reset.id}'} of group {group.name}"
            task = asyncio.create_task(self._run(what, wish, carried_out, _urls(view, group)), name=what)
            self._errands.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._errands.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
            self.ring()

    async def _run(self, what: str, wish: Wish, carried_out: Errand, urls: list[str]) -> None:
        verdict = await self._calls.carry_out(carried_out, urls)
        self._metrics.asked(wish, verdict)
        if self._asking.answered(wish, verdict, monotonic_ms()) and verdict.cause:
            _log.warning("%s: %s: %s", what, verdict.result.value, verdict.cause)
        self.ring()

    async def _wait_for_work(self) -> None:
        now_ms = monotonic_ms()
        due_ms = self._asking.next_due_ms()
        view = self._view()
        wall_ms = _wall_ms()
        ends_ms = next_change_ms(view, wall_ms) if view is not None else None
        waits = [RECONCILE_RESYNC_MS]
        waits += [due_ms - now_ms] if due_ms is not None else []
        free_ms = self._patience.next_ms(now_ms)
        waits += [free_ms - now_ms] if free_ms is not None else []
        waits += [ends_ms - wall_ms] if ends_ms is not None else []
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0, min(waits)) / 1000):
                await self._rung.wait()


def _is_same(known: ConsumerGroup | None, group: ConsumerGroup) -> bool:
    """Return whether it is the same group: under its name there may be another one by now."""
    return known is not None and known.metadata.uid == group.metadata.uid


def _urls(view: GroupView, group: ConsumerGroup) -> list[str]:
    """Return the URLs of brokers that serve, the group's coordinator first."""
    brokers = view.observed.in_state(BrokerState.READY, BrokerState.DRAINING)
    brokers.sort(key=lambda broker: broker.id != group.status.coordinator)
    return [broker.url for broker in brokers]


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
