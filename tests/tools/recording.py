"""Draws the logs that `tests.tools.recorded` keeps: all protocols, honest and hostile, and worlds.

A log is of one shard, in the order in which it was judged. Those of simulated worlds come from the
topics of a run with its faults; the longest log of a shard is taken.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import msgspec

from coordlib.core.claims.fold import MESSAGES
from coordlib.core.claims.history import SPACE as CLAIMS_SPACE
from coordlib.core.controller.protocol import Clusters
from coordlib.core.groups.protocol import Groups
from coordlib.core.transactions.protocol import Transactions
from coordlib.testing import signing
from tests.tools import (
    assigned_logs,
    driving,
    pending_logs,
    random_logs,
    stored_clusters,
    stored_transactions,
)
from tests.tools.broker_logs import Life
from tests.tools.claims import driving as of_claims
from tests.tools.claims import logs as claims_logs
from tests.tools.core import InputRecord, ShardSettings
from tests.tools.driving import Conversation
from tests.tools.fuzz import shards as hostile
from tests.tools.fuzz import transactions as hostile_ids
from tests.tools.recorded import STRATEGIES, Recorded, Settings
from tests.tools.simulation import drawing, run
from tests.tools.simulation.checks import evidence_of
from tests.tools.simulation.claims import kinds as claims_kinds
from tests.tools.simulation.claims import run as claims_run
from tests.tools.simulation.claims.world import ClaimsWorld
from tests.tools.simulation.one_fold import in_order_of_batches
from tests.tools.simulation.plan import ASSIGNED, Plan
from tests.tools.simulation.signed_worlds import signatures_of
from tests.tools.simulation.world import World
from tests.tools.stored_state import SETTINGS as WITH_FAILING

LENGTH: Final = 400
#: Of a world, where the first plan that fits is taken.
_SEEDS: Final = 4_000
_RECORDS_MAX: Final = 2_500
Log = tuple[list[InputRecord], ShardSettings]


def record(store: Callable[[str, Recorded], None]) -> None:
    """Draw all, and hand each over with its name."""
    for name, draw in LOGS.items():
        records, settings = draw()
        store(name, Recorded(_settings(settings), list(records)))


def _settings(of: ShardSettings) -> Settings:
    common: dict[str, Any] = {
        "shard": of.shard,
        "shards": of.shards,
        "reply_partitions": of.reply_partitions,
        "incarnation": of.incarnation,
        "bounds": of.bounds,
        "checks_invariants": of.checks_invariants,
        "keys": of.keys,
    }
    if CLAIMS_SPACE in of.families:
        followed = of.families[CLAIMS_SPACE]
        return Settings(**common, coordination=(followed.topic, followed.topic_id))
    grouped, producing = of.of(Groups), of.of(Transactions)
    known = {strategy: name for name, strategy in STRATEGIES.items()}
    return Settings(
        **common,
        group=grouped.config,
        strategies=tuple(known[each] for each in grouped.strategies.values()),
        brokers=of.of(Clusters).config,
        transactions=producing.config,
        new_per_second_max=producing.new_per_second_max,
    )


# -- drawn by dice ---------------------------------------------------------------------------


def _classic(seed: int, **bounds: Any) -> Log:
    how = driving.settings(**bounds)
    return random_logs.draw_log(seed, LENGTH, how, positions=True)[0], how


def _assigned(seed: int) -> Log:
    how = assigned_logs.SETTINGS
    return assigned_logs.draw_log(seed, LENGTH, how)[0], how


def _pending(seed: int, **bounds: Any) -> Log:
    how = driving.settings(**bounds)
    return pending_logs.draw_log(seed, LENGTH, how, positions=True)[0], how


def _hostile(seed: int) -> Log:
    talk = hostile.HostileConversation(driving.settings(bytes_max=9_000), Random(seed))
    random_logs.draw_log(seed, LENGTH, talk.settings, positions=True, talk=talk)
    return talk.log, talk.settings


def _producers(seed: int) -> Log:
    luck = Random(seed)
    talk = hostile.HostileConversation(driving.settings(), luck)
    hostile_ids.use_ids(luck, talk)
    return talk.log, talk.settings


def _brokers(seed: int) -> Log:
    life = Life(seed)
    life.run(LENGTH)
    return life.talk.log, life.talk.settings


def _everything(*plays: Callable[[Conversation], None]) -> Log:
    """What the fixtures of stored states come of."""
    talk = Conversation(WITH_FAILING)
    for play in plays:
        play(talk)
        talk.end_batch()
    return talk.log, talk.settings


# -- of simulated worlds ---------------------------------------------------------------------


def _world(fits: Callable[[Plan], bool]) -> Log:
    """The longest log of a shard in a world, of the first seed that fits.

    Signatures are those of the stand-in, which needs no library.
    """
    for seed in range(_SEEDS):
        chosen = drawing.draw(seed)
        if not fits(chosen) or signatures_of(seed).verify is not signing.verify:
            continue
        world = World(chosen)
        outcome = run.run_in(world)
        assert outcome.violation is None, outcome.violation
        found = max(_logs_of(world), key=lambda log: len(log[0]))
        if len(found[0]) <= _RECORDS_MAX:
            return found
    raise LookupError("no seed has such a world")


def _logs_of(world: World) -> Iterator[Log]:
    evidence = evidence_of(world)
    for shard in range(world.plan.shards):
        settings = msgspec.structs.replace(world.engine.settings, shard=shard)
        yield list(in_order_of_batches(world, evidence, shard)), settings


def _world_of_claims(first: int) -> Log:
    """The log of a coordination partition, of the first seed from here on that keeps it whole."""
    for seed in range(first, _SEEDS):
        world = ClaimsWorld(claims_kinds.draw(seed))
        outcome = claims_run.run_in(world)
        assert outcome.violation is None, outcome.violation
        records = world.cluster.partitions[world.plan.topic, 0].records
        log = [
            InputRecord(MESSAGES, each.offset, each.timestamp_ms, each.value)
            for each in records
            if not each.is_marker
        ]
        if log and log[0].offset == 0:
            return log, msgspec.structs.replace(world.engine.settings, shard=0)
    raise LookupError("no seed has such a world")


LOGS: Final[dict[str, Callable[[], Log]]] = {
    "classic": lambda: _classic(1, initial_rebalance_delay_ms=0, max_size=4),
    "classic-known-ids": lambda: _classic(2, requires_member_id=True),
    "classic-small": lambda: _classic(
        3,
        groups_per_shard_max=2,
        offsets_retention_ms=15_000,
        check_interval_ms=4_000,
        offsets_bytes_per_group_max=250,
    ),
    "classic-hostile": lambda: _hostile(4),
    "assigned": lambda: _assigned(5),
    "assigned-more": lambda: _assigned(6),
    "pending": lambda: _pending(7),
    "pending-small": lambda: _pending(
        8, offsets_per_group_max=5, offsets_retention_ms=15_000, check_interval_ms=4_000
    ),
    "producers-hostile": lambda: _producers(9),
    "producers-stored": lambda: _everything(
        stored_transactions.have_everything, stored_transactions.go_on
    ),
    "brokers": lambda: _brokers(10),
    "brokers-more": lambda: _brokers(11),
    "brokers-stored": lambda: _everything(stored_clusters.have_everything, stored_clusters.go_on),
    "claims-hostile": lambda: (claims_logs.hostile(12, LENGTH), of_claims.settings()),
    "claims-crowded": lambda: (claims_logs.crowded(13, LENGTH), of_claims.settings()),
    "world-claims": lambda: _world_of_claims(14),
    "world-claims-more": lambda: _world_of_claims(40),
    "world-classic": lambda: _world(
        lambda drawn: drawn.has_groups_alone and drawn.kind != ASSIGNED
    ),
    "world-assigned": lambda: _world(
        lambda drawn: drawn.has_groups_alone and drawn.kind == ASSIGNED
    ),
    "world-stores": lambda: _world(lambda drawn: drawn.brokers > 0),
    "world-copiers": lambda: _world(lambda drawn: drawn.copiers > 0),
    "world-couriers": lambda: _world(lambda drawn: drawn.couriers > 0),
    "world-lake": lambda: _world(lambda drawn: drawn.lake_members > 0),
}
