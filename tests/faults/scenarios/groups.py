"""S20, S25: members of consumer groups that die, stand still, are cut off or there twice; coordinators that die."""

from functools import partial
from typing import Final

from tests.faults.fleet import API, OPERATOR, broker_name
from tests.faults.group_history import Death
from tests.faults.group_judge import judge_group, repeated
from tests.faults.history import Row
from tests.faults.members import Members
from tests.faults.play import TOPIC, Play, Setting
from tests.faults.scenarios.scenario import Scenario

_GROUP: Final = "readers"
_CROWD: Final = 50
_CROWD_TOPIC: Final = "crowd"
_FENCED: Final = ("FencedMember", "UnknownMember")
_MORE: Final = 20
"""Records of each partition after a fault that somebody must be given."""
_SHOWN: Final = 8


def lose_members(play: Play) -> None:
    """S25: one is killed while another is cut off, one comes and one goes while nobody controls; nothing is skipped."""
    members = _members(play)
    members.start("m-0")
    members.start("m-1", "--commits")
    members.start("m-2")
    members.wait_shared("m-0", "m-1", "m-2")
    for number in range(play.rounds):
        victim, lonely, witness = (f"m-{(number + place) % 3}" for place in range(3))
        with play.journal.fault("a member killed, another cut off"):
            known = members.described(victim)
            deaths = [members.kill(victim), members.cut_off(lonely)]
            _note_moves(play, members, deaths, "killed or cut off")
            _expect_fenced(play, members, victim, known, deaths[0])
            play.fleet.network.heal_all()
            members.wait_shared(lonely, witness)
        with play.journal.fault("neither operator nor API server"):
            play.fleet.kill(OPERATOR)
            play.fleet.pause(API)
            members.start(victim, *(["--commits"] if victim == "m-1" else []))
            members.wait_shared(victim, lonely, witness)
            play.fleet.stop(witness)
            members.wait_shared(victim, lonely)
            _wait_more(play, members)
            play.fleet.resume(API)
            play.fleet.start_operator()
        leader = play.leader()
        with play.journal.fault(f"broker {leader} killed"):
            play.fleet.kill(broker_name(leader))
            members.start(witness, *(["--commits"] if witness == "m-1" else []))
            members.wait_shared("m-0", "m-1", "m-2")
            _wait_more(play, members)
        play.fleet.start_broker(leader)
        play.wait_in_sync()


def confuse_members(play: Play) -> None:
    """S20: members stand still beyond their session, an instance is there twice, the coordinator dies, fifty join."""
    members = _members(play)
    members.start("m-0", "--instance", "one")
    members.start("m-1", "--commits")
    members.start("m-2")
    members.wait_shared("m-0", "m-1", "m-2")
    twin = "m-0"
    for number in range(play.rounds):
        other = f"twin-{number}"
        members.start(other, "--instance", "one")
        with play.journal.fault("members stand still beyond their session, one with a twin"):
            known = members.described("m-1")
            deaths = [members.pause("m-1"), members.pause(twin)]
            _note_moves(play, members, deaths, "stopped")
            _expect_fenced(play, members, "m-1", known, deaths[0])
            members.resume("m-1")
            members.resume(twin)
            members.wait_shared(other, "m-1", "m-2")
            _wait_more(play, members)
            # It hears that another has its place, or waits for the place until that one is gone.
            play.expect(not members.owned()[twin], f"{twin}, whose place {other} has, has partitions as well")
            play.fleet.kill(twin)
        twin = other
        coordinator = members.coordinator()
        with play.journal.fault("the coordinator killed"):
            play.fleet.kill(broker_name(coordinator))
            _wait_more(play, members)
        play.fleet.start_broker(coordinator)
        play.wait_in_sync()
    _join_at_once(play)


def _join_at_once(play: Play) -> None:
    """Each of so many members gets its share."""
    play.fleet.create_topic(_CROWD_TOPIC, partitions=_CROWD, replicas=1)
    play.fleet.wait_led(_CROWD_TOPIC, _CROWD)
    crowd = Members(play.fleet, play.journal, _CROWD_TOPIC, _CROWD_TOPIC, _CROWD)
    crowd.start("crowd", "--crowd", str(_CROWD))
    crowd.wait_shared(*(f"crowd-{number}" for number in range(_CROWD)))
    began = [fact["at"] for fact in crowd.facts() if fact["what"] == "joins"]
    shared = [fact["at"] for fact in crowd.facts() if fact["what"] == "assigned"]
    play.notes.append(f"{_CROWD} members that joined at once had their shares after {max(shared) - min(began):.1f} s")
    findings = judge_group(crowd.end({}))
    play.wrong += [f"the crowd: {finding}" for finding in findings[:_SHOWN]]


def _members(play: Play) -> Members:
    members = Members(play.fleet, play.journal, _GROUP, TOPIC, play.setting.partitions)
    play.at_end.append(partial(_judge, play, members))
    return members


def _judge(play: Play, members: Members, final: dict[int, tuple[Row, ...]]) -> None:
    rows = {partition: {row.offset: row.value.decode() for row in found} for partition, found in final.items()}
    history = members.end(rows)
    findings = judge_group(history)
    play.wrong += [f"{members.group}: {finding}" for finding in findings[:_SHOWN]]
    if len(findings) > _SHOWN:
        play.wrong.append(f"{members.group}: ... and {len(findings) - _SHOWN} more")
    play.notes.append(
        f"members were given {len(history.given)} records, {repeated(history)} of them again; commits of their own:"
        f" {sum(not commit.code for commit in history.commits)} taken,"
        f" {sum(bool(commit.code) for commit in history.commits)} refused; offsets asked for {len(history.seen)} times"
    )


def _note_moves(play: Play, members: Members, deaths: list[Death], what: str) -> None:
    moved = [f"{death.member}'s after {members.wait_moved(death):.1f} s" for death in deaths]
    play.notes.append(f"partitions of members that were {what} moved: {', '.join(moved)}")


def _expect_fenced(play: Play, members: Members, name: str, known: dict[str, object], death: Death) -> None:
    """A commit of the dead, which would throw its group back, is refused."""
    answer = members.commit_for(name, known, dict.fromkeys(death.partitions, 0))
    is_fenced = answer.status >= 400 and answer.json["code"] in _FENCED
    play.expect(is_fenced, f"a commit for {name}, which is dead: HTTP {answer.status} {answer.body!r}")


def _wait_more(play: Play, members: Members) -> None:
    """Records that are written from now on are given to somebody, and committed."""
    before = members.committed()
    play.wait_progress()
    wanted = {number: before.get(number, 0) + _MORE for number in range(play.setting.partitions)}
    members.wait_committed(wanted)


_SETTING: Final = Setting(partitions=4)
SCENARIOS = (
    Scenario("S20", "members stopped, doubled, and fifty at once", confuse_members, _SETTING, short=1, long=6),
    Scenario("S25", "consumers across rebalances", lose_members, _SETTING, short=1, long=8),
)
