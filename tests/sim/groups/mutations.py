"""Rules of groups deleted in turn: as `tests.sim.mutations`, and looked for in the same way, in runs with a group."""

from typing import Any

from headrace.core.coordinator import Coordinator
from headrace.core.groups import group, rebalancing
from headrace.core.groups.group import Group
from headrace.core.groups.group_machine import GroupMachine
from headrace.core.groups.members import Members
from headrace.core.groups.membership import MemberState
from headrace.core.groups.sessions import Sessions
from tests.sim.groups import deletions
from tests.sim.groups.coordinating import Coordinating
from tests.sim.mutations import Mutation, Patch


def _mutation(name: str, owner: Any, attribute: str, replacement: Any, *, rests: bool = False, **plan: Any) -> Mutation:
    return Mutation(name, (Patch(owner, attribute, replacement),), plan, rests, in_group=True)


def _scripted(name: str, golden: str, breaks: str, *patches: Patch, covers: bool = False) -> Mutation:
    return Mutation(name, patches, golden=golden, breaks=breaks, covers=covers, in_group=True)


FOR_EVER: dict[str, Any] = {"retention_days": -1}

GROUP_MUTATIONS = (
    _mutation("given before it was given up", rebalancing, "advance", deletions.everything_is_free),
    _mutation("taken away without a word", rebalancing, "advance", deletions.taken_away),
    _mutation("a member says what it has not given up", MemberState, "_next_request", deletions.says_it_gave_up),
    _mutation("commits of any partition", group, "may_commit", deletions.may_always_commit),
    _mutation("commits of anybody", group, "check_commit", deletions.commits_of_anybody),
    _mutation("sessions never end", Sessions, "overdue", deletions.never_overdue, rests=True, focus="member killed"),
    _mutation(
        "a member never thinks that it is lost",
        MemberState,
        "valid_until_ms",
        property(deletions.holds_for_ever),
        focus="member pauses",
        skew=False,
    ),
    _scripted(
        "a new coordinator waits for nobody",
        "everybody-gets-a-session",
        "ReadsWhatItOwns",
        Patch(Sessions, "begin", deletions.no_session),
    ),
    _mutation("told before it is committed", Coordinator, "_released", deletions.told_at_once),
    _mutation("any target fits", rebalancing, "misfit", deletions.fits_whoever_has_members, focus="target wrong"),
    _mutation("reset whoever reads", group, "check_empty", deletions.whoever_is_in_it),
    _scripted("reset again", "reset-said-twice", "ResetOnceAndEmpty", Patch(Group, "_reset", deletions.resets_again)),
    _mutation(
        "a log read before it is committed", Coordinating, "may_read", property(deletions.reads_what_is_not_committed)
    ),
    _mutation("shown before it is committed", GroupMachine, "is_settled", deletions.may_always_be_shown),
    _scripted(
        "a new coordinator takes the default retention",
        "kept-as-the-log-says",
        "OffsetsAreKept",
        Patch(Group, "__init__", deletions.takes_the_default),
    ),
    _mutation(
        "a ConsumerGroup that is gone means the defaults",
        GroupMachine,
        "act",
        deletions.gone_means_the_defaults,
        **(FOR_EVER | {"focus": "group vanishes"}),
    ),
    _mutation("a live static member is replaced", Sessions, "is_silent", deletions.is_always_silent, members=5),
    _scripted(
        "only the current epoch and revision give up",
        "late-heartbeat",
        "NoDoubleAssignment",
        Patch(Members, "heartbeat", deletions.gives_up_whenever_it_said_so),
    ),
    _scripted(
        "what a member said in an earlier life",
        "heartbeat-of-an-earlier-life",
        "NoDoubleAssignment",
        Patch(Members, "heartbeat", deletions.gives_up_whenever_it_said_so),
        Patch(Members, "_checked", deletions.whatever_life_it_is_of),
        covers=True,
    ),
    _scripted(
        "answers of an earlier life",
        "answer-of-an-earlier-life",
        "ReadsWhatItOwns",
        Patch(MemberState, "_forget", deletions.remembers_what_it_asked),
    ),
    _scripted(
        "a coordinator answers without being sure",
        "coordinator-out-of-touch",
        "ReadsWhatItOwns",
        Patch(Coordinating, "_problem", deletions.always_sure),
    ),
)
