"""The end of a run of claims as a story: what happened last, in the order of true time."""

from coordlib.core.wire import claims
from tests.tools.simulation.claims.world import ClaimsWorld

Line = tuple[int, int, str]


def tell(world: ClaimsWorld, newest: int = 60) -> list[str]:
    """The newest lines: what programs were told and did, and the log with its judgements."""
    lines = _programs(world) + _log(world)
    lines.sort(key=lambda line: (line[0], line[1]))
    return [f"{at_ms:>8} ms  {text}" for at_ms, _, text in lines[-newest:]]


def _programs(world: ClaimsWorld) -> list[Line]:
    found = []
    for number, each in enumerate(world.history):
        if each.what == "committed":
            continue
        at = f" at {each.offset}" if each.offset >= 0 else ""
        fence = f" fence {each.fence}" if each.fence >= 0 else ""
        detail = f" ({each.detail})" if each.detail else ""
        where = " ".join(each.partitions)
        text = f"{each.member or 'world':<12} {each.what} {where}{at}{fence}{detail}"
        found.append((each.t_ms, number, text.rstrip()))
    return found


def _log(world: ClaimsWorld) -> list[Line]:
    found = []
    for number, reading in enumerate(world.ledger.readings):
        times = world.ledger.times[number]
        rows = zip(reading.judgements, reading.clocks, times, strict=True)
        for judgement, clock_ms, true_ms in rows:
            message = judgement.message
            who = "somebody" if message is None else f"{message.client} {message.instance}"
            what = "" if message is None else type(message).__name__
            where = "" if judgement.key is None else f"{judgement.key[1]}-{judgement.key[2]}"
            offset = getattr(message, "offset", "") if _has_offset(message) else ""
            text = (
                f"log {number}-{judgement.offset} at {clock_ms}: {who} {what} {where} {offset} "
                f"{judgement.verdict.value} {judgement.error}"
            )
            found.append((true_ms, judgement.offset, text.rstrip()))
    return found


def _has_offset(message: claims.AnyMessage | None) -> bool:
    return isinstance(
        message, claims.Heartbeat | claims.ReleasingPartition | claims.ClaimingMessages
    )
