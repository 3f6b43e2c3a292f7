"""The course of the act `claims`, until the last consumers share the partitions again."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from coordlib.client.claims import ClaimsAdmin
from coordlib.client.kit.events import TopicPartition
from coordlib.client.kit.process import boottime_ns
from coordlib.demo import show
from coordlib.demo.act import JOB_ARGS, NAME, Act
from coordlib.demo.watch import Watch
from coordlib.demo.witness import Deed
from coordlib.local import stack_folder
from coordlib.local.progress import phase

#: Its heartbeat interval is 6 s, so that a dead owner's partitions are free after 12 s.
COORDINATION: Final = "__marshal.6s"
#: The program of a consumer.
CLAIMS: Final = "tests.stack.acts.claims_member"
OLDER: Final = "claimer-1"
NEWER: Final = "claimer-1-again"
VICTIM: Final = "claimer-2"
THIRD: Final = "claimer-3"
OPERATOR: Final = "demo-operator"
#: Records of each partition that are read again after the group was set back.
SET_BACK: Final = 50
PAUSE_S: Final = 60.0


def play(act: Act, watch: Watch) -> tuple[datetime, datetime]:
    """A twin, a kill without a job, a job that comes late; a pause and new positions meanwhile.

    Returns from when to when the job was down.
    """
    _share(act, watch)
    act.produce(watch)
    watch.until("All read", lambda: watch.consumed() >= act.holds[0])
    _start_twin(watch)
    watch.production.go_on()
    _read_on(act, watch)
    down_since = _kill_job(watch)
    act.kill(watch)
    begin = _launch_job(watch)
    _until_taken_over(act, watch)
    down = down_since, datetime.now(UTC)
    _begin_job(watch, begin)
    _set_back(act, watch)
    return down


def _is_held_by(act: Act, watch: Watch, names: Iterable[str]) -> bool:
    """Whether each of these owns partitions, together they own all, and none has two owners."""
    found = [watch.members.witnesses[name].partitions or () for name in names]
    owned = sorted(each for some in found for each in some)
    return all(found) and owned == list(range(act.partitions))


def _read_on(act: Act, watch: Watch) -> None:
    """The victim must be in the middle of its work."""
    victim, (first, second) = watch.members.witnesses[VICTIM], act.holds
    before = len(victim.consumed)
    watch.until(
        f"{VICTIM} reads on",
        lambda: watch.consumed() >= first + (second - first) // 3 and len(victim.consumed) > before,
    )


def _share(act: Act, watch: Watch) -> None:
    """The limits leave partitions for the third one, and let it take over those of another."""
    live, members = watch.live, watch.members
    first = (OLDER, VICTIM)
    with phase(live, f"Starting {', '.join((*first, THIRD))}: they claim without a coordinator"):
        for name in first:
            members.start(name, CLAIMS, maximum_claims=2)
        watch.until(
            "Two have their partitions",
            lambda: all(len(members.witnesses[name].partitions or ()) == 2 for name in first),
        )
        members.start(THIRD, CLAIMS, maximum_claims=4)
        watch.until("They share the partitions", lambda: _is_held_by(act, watch, (*first, THIRD)))


def _start_twin(watch: Watch) -> None:
    """A second process of a client id: the newer one goes on."""
    live, members = watch.live, watch.members
    older = members.witnesses[OLDER]
    had = older.partitions or ()
    live(f"Starting a second process of {OLDER}, which owns {show.partitions_text(older)}")
    members.start(NEWER, CLAIMS, maximum_claims=2, client_id=OLDER)
    newer = members.witnesses[NEWER]
    watch.until(
        "The newer process has the older one's partitions",
        lambda: newer.partitions == had and not older.partitions,
    )
    live("The newer process has taken them back, the older one has stopped reading")
    members.stop(OLDER)


def _kill_job(watch: Watch) -> datetime:
    """SIGKILL to the job, which nobody needs. Returns when it was gone."""
    watch.is_job_wanted = False
    watch.stack.kill_job()
    watch.live("Killed the job (SIGKILL)")
    return datetime.now(UTC)


def _launch_job(watch: Watch) -> Path:
    """Its JVM starts while the claims expire, which takes as long. It asks for no broker before it
    finds the file that is returned."""
    begin = watch.stack.home / stack_folder.BEGIN
    begin.unlink(missing_ok=True)
    watch.stack.launch_job(JOB_ARGS, begin_file=begin)
    watch.is_job_wanted = True
    return begin


def _begin_job(watch: Watch, begin: Path) -> None:
    """Nobody waits for it: consumers need none, and it reads what has happened without it."""
    begin.touch()
    watch.live("The job begins again, while the consumers go on")


def _until_taken_over(act: Act, watch: Watch) -> None:
    left = (NEWER, THIRD)
    watch.until("The others have its partitions", lambda: _is_held_by(act, watch, left))
    watch.live("Its claims have expired, and the others own its partitions, without a job")


def _set_back(act: Act, watch: Watch) -> None:
    """Pause the group, and set each partition back."""
    members = watch.members
    watch.until("All are read", lambda: watch.consumed() >= act.holds[1])
    config = {"bootstrap.servers": watch.stack.bootstrap_servers, "client.id": OPERATOR}
    with ClaimsAdmin(config | {"coord.prefix": NAME}, coordination_topic=COORDINATION) as admin:
        admin.pause(act.group, PAUSE_S)
        watch.until(
            "All have let go",
            lambda: not any(members.witnesses[name].partitions for name in members.running),
        )
        watch.live(f"The group is paused; setting its positions back by {SET_BACK} records")
        targets = {
            partition: max(0, 1 + end - SET_BACK) for partition, end in _read_to(watch).items()
        }
        watch.rewound.append(Deed(boottime_ns(), "rewound", offsets=targets))
        admin.set_positions(
            act.group, {TopicPartition(act.topic, each): to for each, to in targets.items()}
        )
    watch.until("They share the partitions again", lambda: _is_held_by(act, watch, members.running))
    watch.live("The group goes on from there")


def _read_to(watch: Watch) -> Mapping[int, int]:
    """Partition -> largest offset that anybody has read."""
    found: dict[int, int] = {}
    for witness in watch.members.witnesses.values():
        for each in witness.consumed:
            found[each.partition] = max(each.offset, found.get(each.partition, -1))
    return found
