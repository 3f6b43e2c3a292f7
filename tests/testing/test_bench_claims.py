"""The claims benchmarks: what their writer writes is honest."""

from collections import Counter

from coordlib.core.claims.slots import Verdict
from coordlib.core.claims.world import World
from coordlib.core.engine.state import InputRecord
from coordlib.core.wire import claims as marshal
from tests.tools.bench.claims_log import GROUPS, Owners, claims_of, topics_of_all

NOW_S = 1_700_000_000
SHARDS = 4


def won(count: int) -> Owners:
    """Owners of so many claims, each won at its own number."""
    owners = Owners(claims_of(count, SHARDS))
    for number in range(count):
        owners.won(number, number)
    return owners


def test_a_sign_is_what_marshals_encoder_writes() -> None:
    """It is put together from bytes, since a generator at 40,000 a second has no time to encode."""
    owners = won(300)
    held = owners.claims[257]
    expected = marshal.Heartbeat(
        2, NOW_S, f"{held.process}-257", held.client, held.group, held.topic, held.partition, 12
    )
    assert owners.sign(257, NOW_S, 12) == marshal.encode(expected)


def test_the_fold_accepts_what_the_owners_write() -> None:
    """A load whose signs were refused would look light: each is of its claim's own epoch, and an
    attempt meets a live claim."""
    claims, verdicts = 300, Counter[Verdict]()
    owners = Owners(claims_of(claims, SHARDS))
    worlds = [World("__marshal", shard, SHARDS) for shard in range(SHARDS)]

    def judge(shard: int, value: bytes) -> int:
        offset = worlds[shard].offset + 1
        record = InputRecord("m", offset, NOW_S * 1_000 + offset, value)
        verdicts[worlds[shard].judge(record).verdict] += 1
        return offset

    for number, held in enumerate(owners.claims):
        owners.won(number, judge(held.shard, owners.attempt(number, NOW_S)))
    assert verdicts == {Verdict.WON: claims}
    for number in range(10 * claims):
        judge(*owners.message(number, NOW_S))

    assert verdicts == {Verdict.WON: claims, Verdict.SIGN: 9 * claims, Verdict.IGNORED: claims}


def test_every_claim_has_signs_in_every_turn_but_one_of_ten() -> None:
    """Attempts at every tenth number met the same claims for ever, and these expired."""
    owners, beats = won(20), Counter[str]()
    for number in range(10 * 20):
        _, value = owners.message(number, NOW_S)
        message = marshal.read(value)
        assert not isinstance(message, marshal.Rejected)
        if isinstance(message, marshal.Heartbeat):
            beats[message.client] += 1
    assert set(beats.values()) == {9}


def test_who_attempts_is_of_the_group_that_has_the_claim() -> None:
    """A claim belongs to a group: an attempt of another one would win a slot of its own."""
    claims = claims_of(1_000, SHARDS)
    for number, held in enumerate(claims):
        assert claims[(number + GROUPS) % len(claims)].group == held.group


def test_claims_are_distinct_and_their_topics_lie_in_all_coordination_partitions() -> None:
    claims = claims_of(10_000, SHARDS)
    assert len({(each.group, each.topic, each.partition) for each in claims}) == 10_000
    assert len({each.client for each in claims}) == 200
    assert {each.shard for each in claims} == set(range(SHARDS))
    wanted = topics_of_all(SHARDS, "free")
    assert [marshal.partition_of(each, SHARDS) for each in wanted] == list(range(SHARDS))
