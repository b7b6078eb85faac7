"""Safety rules deleted in turn: the simulator must catch each of them, or it would catch no mistake either.

A mutation replaces functions (`deletions`). Each says where it is looked for: in a script that leads to where the rule
matters, or in plans in which it does. What is played without the mutation must pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.core.control import cluster_recovery, elections
from headrace.core.control.broker_reports import PromisedLog
from headrace.core.control.observed import Observed
from headrace.core.log.group_commit import GroupCommit
from headrace.core.replication import following, isr, leadership, seats, set_writer
from headrace.core.replication.following import Following
from headrace.core.replication.isr import Ends, Followers, Isr
from headrace.core.replication.leadership import Leadership
from headrace.core.replication.replica import Replica
from headrace.core.replication.seats import SeenEpochs
from headrace.core.replication.set_writer import SetWriter
from headrace.core.resources.topic import Durability
from headrace_broker.partition.shell import PartitionShell, Waiters
from tests.sim import brokers, deletions, deletions_beyond, deletions_shell, disk, life, operating
from tests.sim.api import Api
from tests.sim.calling import BrokerCaller
from tests.sim.disk import Disk, Log
from tests.sim.life import Life


@dataclass(frozen=True)
class Patch:
    owner: Any
    attribute: str
    replacement: Any


@dataclass(frozen=True)
class Mutation:
    name: str
    patches: Sequence[Patch]
    plan: Mapping[str, Any] = field(default_factory=dict)
    """The fixed values of the plans that it is searched in."""
    rests: bool = False
    """True where it shows only when the cluster is to come to rest."""
    golden: str = ""
    """The script that leads to where it does harm; chance seldom does."""
    breaks: str = ""
    """The rule that is broken then."""
    covers: bool = False
    """True where each of these rules stands behind the other: on its own none of `patches` does harm there."""
    in_group: bool = False
    """True where it is searched in runs with a group."""


def _mutation(name: str, owner: Any, attribute: str, replacement: Any, *, rests: bool = False, **plan: Any) -> Mutation:
    return Mutation(name, (Patch(owner, attribute, replacement),), plan, rests)


def _scripted(name: str, golden: str, breaks: str, *patches: Patch, covers: bool = False, **plan: Any) -> Mutation:
    return Mutation(name, patches, plan, breaks == "Liveness", golden, breaks, covers)


TWO_OF_THREE: dict[str, Any] = {"moves": False, "brokers": 3, "min_insync_replicas": 2, "unclean": False}
GIVING_UP: dict[str, Any] = {"focus": "call given up", "drill": False, **TWO_OF_THREE}
LOSING_DISKS: dict[str, Any] = {"focus": "disk lost", **TWO_OF_THREE}
RESTORED: dict[str, Any] = {"restores": True, "perils": False, "focus": "", "drill": False, **TWO_OF_THREE}
PERILLED: dict[str, Any] = {"restores": False, "perils": True, "focus": "", "drill": False, **TWO_OF_THREE}
FSYNC: dict[str, Any] = {"durability": Durability.FSYNC}
FAILING: dict[str, Any] = {"focus": "sync fails", "drill": False, **FSYNC}
LOST = "NoCommittedRecordLost"


def _floors(*owners: Any) -> tuple[Patch, ...]:
    return tuple(Patch(owner, "floor", deletions.floor_1) for owner in owners)


def _in_shell(name: str, attribute: str, replacement: Any, *, rests: bool = False, **plan: Any) -> Mutation:
    return _mutation(f"shell: {name}", PartitionShell, attribute, replacement, rests=rests, **plan)


SHELL_MUTATIONS = (
    _in_shell("answers before the sync", "append", deletions_shell.answers_at_once),
    _in_shell("appends in an epoch that is over", "append", deletions_shell.appends_in_its_first_epoch),
    _in_shell("a sync that is begun is done", "_begin_sync", deletions_shell.syncs_are_done_at_once, **FSYNC),
    _in_shell("a sync that failed is done", "_begin_sync", deletions_shell.failed_syncs_are_done, **FAILING),
    _in_shell("syncs after the close", "_begin_sync", deletions_shell.syncs_what_is_closed, focus="drain", **FSYNC),
    _in_shell("appends after the close", "close", deletions_shell.closes_alone, focus="drain leader"),
    _mutation("shell: answers twice", Waiters, "answer", deletions_shell.answers_twice),
    _in_shell("never answers what is over", "_carry_out", deletions_shell.lets_wait),
    _in_shell("no time for those who wait", "_step", deletions_shell.never_ticks),
    _in_shell("wakes before the commit", "_carry_out", deletions_shell.wakes_at_the_append),
    _in_shell("wakes nobody when another leads", "_carry_out", deletions_shell.wakes_nobody_when_it_resigns),
    _in_shell("a failed disk is kept to itself", "_carry_out", deletions_shell.tells_no_failure, rests=True, **FAILING),
    _in_shell("truncation skipped", "_follow", deletions_shell.cuts_nothing),
    _in_shell("reports before it is on disk", "_follow", deletions_shell.reports_what_is_written, **FSYNC),
    _mutation(
        "shell: remembers what its disk may lose",
        Replica,
        "vouched_high_watermark",
        property(deletions_shell.remembers_all),
        **FSYNC,
    ),
)
"""The rules of the broker's own shell.

That nothing of an older leader is appended is for `test_shell`: streams here bring nothing that is over."""

MUTATIONS = (
    _scripted("no maximal ISR", "addition-in-flight", LOST, Patch(Isr, "maximal", property(deletions.landed))),
    _mutation(
        "a removal counted early", Isr, "maximal", property(deletions.early), focus="call given up", unclean=False
    ),
    _mutation("truncation by high watermark", Following, "_ask", deletions.to_high_watermark),
    _mutation("no truncation", following, "reconcile", deletions.never),
    _scripted(
        "truncation in one round only",
        "two-quick-elections",
        "LogMatching",
        Patch(following, "reconcile", deletions.one_round),
    ),
    _scripted(
        "a log's start holds whoever leads",
        "start-above-the-leaders-end",
        "ConsistentRead",
        Patch(following, "reconcile", deletions.goes_on_from_its_start),
    ),
    _scripted(
        "only a present seat holds a log",
        "older-seat-holds-its-log",
        LOST,
        Patch(Following, "_named", deletions.only_its_present_seat),
    ),
    _scripted(
        "votes from a start that nobody has checked",
        "start-of-another-history",
        LOST,
        Patch(Following, "_reported", deletions.votes_at_once),
    ),
    _scripted(
        "no truncation fence", "log-being-cut", LOST, Patch(PartitionShell, "check_serves", deletions.serves_anyone)
    ),
    _scripted(
        "reconciliation only when the epoch rises",
        "stream-lost-while-asking",
        LOST,
        Patch(Following, "_ask", deletions.once_in_an_epoch),
    ),
    _scripted(
        "void seats are electable",
        "void-seat-elected",
        LOST,
        Patch(elections.Elections, "_elect", deletions.elects_void),
        Patch(Observed, "serves", deletions.counts_void),
    ),
    _mutation("renewal whatever was lost", seats, "_renewed", deletions.always_intact, **LOSING_DISKS),
    _mutation(
        "renewal by a disk without the partition",
        disk,
        "why_not_intact",
        deletions.an_empty_disk_will_do,
        focus="disk lost",
        **TWO_OF_THREE,
    ),
    _scripted(
        "renewal after memory was lost",
        "memory-lost",
        LOST,
        Patch(disk, "why_not_intact", deletions.memory_never_fails),
        durability=Durability.REPLICATED,
    ),
    _scripted(
        "no voidBefore", "void-seat", LOST, Patch(seats, "why_void", deletions.void_is_forgotten), **LOSING_DISKS
    ),
    _scripted(
        "seats judged at the opening only",
        "void-seat-comes-late",
        LOST,
        Patch(Life, "read_first", deletions.later_seats_are_good),
        **LOSING_DISKS,
    ),
    _mutation("votes of what is not on disk", Ends, "vouched", deletions.log_end, durability=Durability.FSYNC),
    _mutation(
        "the leader's own vote is not on disk",
        GroupCommit,
        "vouched_end",
        property(deletions.own_log_end),
        durability=Durability.FSYNC,
    ),
    _scripted(
        "a sync across a truncation vouches",
        "sync-across-a-cut",
        LOST,
        Patch(GroupCommit, "truncating", deletions.truncating_carelessly),
        durability=Durability.FSYNC,
    ),
    _scripted(
        "no sync at a start",
        "synced-at-a-start",
        LOST,
        Patch(Log, "recover", deletions.recovers_without_sync),
        durability=Durability.FSYNC,
    ),
    _scripted("no floor", "last-replica-standing", LOST, *_floors(isr, elections, seats), **LOSING_DISKS),
    _scripted("no floor under commits", "too-few-in-sync", "MinIsr", *_floors(leadership)),
    _scripted(
        "an unknown write is taken as failed",
        "late-write",
        LOST,
        Patch(SetWriter, "unanswered", deletions.unknown_is_failed),
        **GIVING_UP,
    ),
    _scripted(
        "an unknown write is taken as done",
        "lost-removal",
        LOST,
        Patch(SetWriter, "unanswered", deletions.unknown_is_done),
    ),
    _scripted("a 409 decides", "conflict", LOST, Patch(BrokerCaller, "conflicted", deletions.conflict_is_failure)),
    _scripted(
        "a read of the same version decides", "read-same-version", LOST, Patch(SetWriter, "read", deletions.any_version)
    ),
    _scripted("reads that began before", "read-began-before", LOST, Patch(SetWriter, "read", deletions.from_before)),
    _mutation("reads from a stale cache", Api, "get", deletions.cached, rests=True),
    _scripted(
        "votes of any epoch",
        "votes-of-an-older-epoch",
        LOST,
        Patch(Leadership, "_heard", deletions.heard_whatever_epoch),
        Patch(PartitionShell, "check_serves", deletions.serves_anyone),
        covers=True,
    ),
    _scripted(
        "votes of any life",
        "votes-of-an-older-life",
        LOST,
        Patch(Followers, "vote", deletions.vote_of_any_life),
        **LOSING_DISKS,
    ),
    _scripted(
        "expansion before the epoch's start",
        "joined-before-the-epoch",
        LOST,
        Patch(Followers, "_may_join", deletions.joins_before_the_epoch),
    ),
    _mutation("expansion below the high watermark", Followers, "_may_join", deletions.joins_below),
    _scripted(
        "leadership renewed under its epoch",
        "leadership-renewed",
        "Liveness",
        Patch(seats, "_renewed", deletions.renews_leadership),
    ),
    _scripted(
        "leadership renewed, epochs change leaders",
        "leadership-renewed",
        "LogMatching",
        Patch(seats, "_renewed", deletions.renews_leadership),
        Patch(SeenEpochs, "regression", deletions.only_lower_epochs),
        covers=True,
    ),
    _scripted(
        "an incarnation used twice",
        "incarnation-used-twice",
        LOST,
        Patch(brokers, "greatest_incarnation", deletions.only_the_disk_knows),
        focus="disk lost",
        **TWO_OF_THREE,
    ),
    _scripted(
        "the last ISR entry given up",
        "last-entry-given-up",
        "NeverEmpty",
        Patch(set_writer, "give_up", deletions.gives_up_the_last),
    ),
    _scripted("give-ups empty the ISR", "isr-emptied", "NeverEmpty", Patch(seats, "_renewed", deletions.empties)),
    _scripted(
        "renewal by a disk that missed a life",
        "disk-missed-a-life",
        LOST,
        Patch(disk, "why_not_intact", deletions.misses_nothing),
    ),
    _scripted("epochs are not persisted", "epochs-forgotten", LOST, Patch(Disk, "start", deletions.forgets_epochs)),
    _mutation(
        "a lost PUT holds the high watermark",
        SetWriter,
        "write",
        deletions.waits_for_ever,
        focus="call lost",
        rests=True,
    ),
    _mutation("what is latest before the epoch's start", Leadership, "check_latest", deletions_beyond.says_at_once),
    _scripted(
        "what is latest, out of touch",
        "out-of-touch",
        "ConsistentRead",
        Patch(Leadership, "_check_in_touch", deletions_beyond.out_of_touch),
        skew=False,
    ),
    _mutation(
        "elections upon data that went back", operating, "regressed_of", deletions_beyond.nobody_regressed, **RESTORED
    ),
    _mutation(
        "recover in epochs that are known",
        cluster_recovery,
        "_highest",
        deletions_beyond.only_what_is_shown,
        **RESTORED,
    ),
    _scripted(
        "recover elects any replica",
        "recovered-with-less",
        LOST,
        Patch(cluster_recovery, "_best", deletions_beyond.last_replica),
        **RESTORED,
    ),
    _scripted(
        "recover waits for nobody, and tells no losses",
        "recovered-too-early",
        LOST,
        Patch(cluster_recovery, "_why_blocked", deletions_beyond.nobody_blocks),
        Patch(cluster_recovery, "_losses", deletions_beyond.tells_no_losses),
        covers=True,
        **RESTORED,
    ),
    _mutation("the last resort elects the least", PromisedLog, "rank", deletions_beyond.the_least, **PERILLED),
    _mutation("the last resort passes who is intact", life, "why_void", deletions_beyond.why_any, **PERILLED),
    *SHELL_MUTATIONS,
)
