"""The course of events, from an empty folder to a stopped stack.

Three members share a topic while records come; when a third is consumed, one is killed without a
word; the others take its partitions over when its session has expired; then a fourth joins.
Whatever happens, also Ctrl-C, no process is left behind; the folder stays, to look into.
"""

import fcntl
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from coordlib.errors import SetupError
from coordlib.local.demo import facts as of
from coordlib.local.demo import recorded, show
from coordlib.local.demo.members import Members, end_leftovers
from coordlib.local.demo.production import Production
from coordlib.local.demo.verdict import Facts, judge
from coordlib.local.demo.watch import Watch, partitions_text
from coordlib.local.home import stack_home
from coordlib.local.progress import Progress, phase
from coordlib.local.stack import Stack
from coordlib.records.partitioner import shard_of

NAME: Final = "demo"
TOPIC: Final = "orders"
GROUP: Final = "order-readers"
RECORDS: Final = 20_000
PARTITIONS: Final = 6
PER_SECOND: Final = 700
KILL_AT: Final = RECORDS // 3
HOLD_AT: Final = RECORDS * 9 // 10
#: Records that the victim has read and not committed when it is killed: so there is something that
#: has to be read again.
UNCOMMITTED_MIN: Final = 20
FIRST: Final = ("member-1", "member-2", "member-3")
VICTIM: Final = "member-2"
FOURTH: Final = "member-4"
MEMBER: Final = {
    "group.id": GROUP,
    "coord.prefix": NAME,
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 10_000,
    "max.poll.interval.ms": 20_000,
    "heartbeat.interval.ms": 2_000,
}
JOB_ARGS: Final = (
    *("--set", "group.initial_rebalance_delay_ms=0"),
    *("--set", "engine.archive_interval_ms=5000"),
)
HISTORY_TIMEOUT_S = 60.0


def play(progress: Progress, print_table: show.PrintTable, keep: bool) -> int:
    """The whole demo; returns its exit code."""
    live = show.Live(progress)
    with _ended_by_signals(), _alone(stack_home(NAME).with_suffix(".lock")):
        stack = Stack(NAME, prefix=NAME)
        is_done = False
        try:
            _start(stack, live)
            found = _course(stack, live)
            is_done = True
        finally:
            if not is_done:
                live("Interrupted or failed: everything is stopped first")
            with _undisturbed():
                end_leftovers(stack.home)
                if not (keep and is_done):
                    stack.down(progress=live)
    checks = [*judge(found), recorded.check(stack.home / recorded.FILE)]
    show.tables(found, print_table)
    show.verdict(checks, live.elapsed_s())
    live(f"Look around: coord groups history {GROUP} --owners --stack {NAME}")
    live(f'             coord sql --stack {NAME} "select * from ownership"')
    if keep:
        live(f"             coord status --stack {NAME}; and then: coord down --stack {NAME}")
    return 0 if all(check.is_ok for check in checks) else 1


def _start(stack: Stack, live: show.Live) -> None:
    """An empty folder, broker, topics, job."""
    if stack.home.exists():
        live("An earlier demo was left: it is stopped and deleted first")
        end_leftovers(stack.home)
        stack.down(wipe=True, progress=live)
    stack.up(live, JOB_ARGS)
    with phase(live, f"Creating the data topic {TOPIC} with {PARTITIONS} partitions"):
        admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
        try:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        except KafkaException as problem:
            raise SetupError(
                f"The topic {TOPIC} was not created", str(problem), str(stack.home)
            ) from problem


def _course(stack: Stack, live: show.Live) -> Facts:
    """Members and records, until everything is consumed, told to Delta, and gathered."""
    config = {**MEMBER, "bootstrap.servers": stack.bootstrap_servers}
    with (
        Members(stack.home, TOPIC, config) as members,
        Production(stack.bootstrap_servers, TOPIC, RECORDS, PER_SECOND, HOLD_AT) as production,
    ):
        watch = Watch(stack, members, production, live, records=RECORDS, partitions=PARTITIONS)
        _kill_one_and_start_another(watch)
        live(f"{FOURTH} has joined and consumes too")
        production.go_on()  # the last records are held until then, for machines of any speed
        watch.all_consumed()
        with phase(live, "Stopping the members: they commit and leave"):
            members.stop()
        history = stack.home / recorded.FILE
        recorded.record(history, members.witnesses.values(), members.killed_ns, TOPIC, GROUP)
        return _gather(stack, members, production, live)


def _kill_one_and_start_another(watch: Watch) -> None:
    live, members = watch.live, watch.members
    with phase(live, f"Starting {', '.join(FIRST)}; the job's first batches take longest"):
        for name in FIRST:
            members.start(name)
        watch.until("They share the partitions", lambda: watch.is_shared_among(FIRST))
    live(f"Producing {RECORDS:,} records, {PER_SECOND:,} a second")
    watch.production.start()
    victim = members.witnesses[VICTIM]
    watch.until(
        f"A third of the records is consumed by {len(FIRST)} members",
        lambda: (
            watch.consumed() >= KILL_AT
            and watch.is_shared_among(FIRST)
            and victim.uncommitted >= UNCOMMITTED_MIN
        ),
    )
    members.kill(VICTIM)
    victim.read_on()
    live(
        f"Killed {VICTIM} (SIGKILL) in generation {victim.generation} after "
        f"{len(victim.consumed):,} records, {victim.uncommitted} of them not committed; it owned "
        f"{partitions_text(victim)}"
    )
    left = [name for name in FIRST if name != VICTIM]
    watch.until(
        "The others own its partitions", lambda: watch.is_shared_among(left, victim.generation)
    )
    live(f"Its session has expired, the others own its partitions; starting {FOURTH}")
    members.start(FOURTH)
    watch.until(f"{FOURTH} owns partitions", lambda: watch.is_shared_among([*left, FOURTH]))


def _gather(stack: Stack, members: Members, production: Production, live: show.Live) -> Facts:
    history = of.History(stack.tables, GROUP, TOPIC)
    client: dict[str, Any] = {"bootstrap.servers": stack.bootstrap_servers}
    shard = shard_of(GROUP, stack.shards)
    committed = of.committed_in_kafka(client, f"{NAME}.committed", shard, GROUP, TOPIC)
    with phase(live, "Waiting until Delta has the whole history"):
        deadline = time.monotonic() + HISTORY_TIMEOUT_S
        while not history.is_complete(committed) and time.monotonic() < deadline:
            live.show(f"{history.events():,} events of the group are in Delta, not yet its end")
            time.sleep(0.5)
    with phase(live, "Reading owners and commits from Delta, log ends from the broker"):
        return Facts(
            records=RECORDS,
            placed=production.placed,
            consumed=[each for w in members.witnesses.values() for each in w.consumed],
            generations=history.generations(),
            owners=history.owners(),
            commits=history.commits(),
            committed=committed,
            committed_in_history=history.committed(),
            log_ends=of.log_ends(client, TOPIC, PARTITIONS),
            killed=VICTIM,
        )


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Two demos at once would delete each other's folder."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(
                "Another demo is running", str(lock), "Wait until it is done, or stop it (Ctrl-C)."
            ) from None
        yield


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and a closed terminal end the demo as Ctrl-C does: everything is stopped first."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C must not stop the stopping."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
