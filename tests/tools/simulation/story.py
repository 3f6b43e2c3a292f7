"""The end of a run as a story: what happened last, in the order of true time, for people."""

import msgspec

from coordlib.core.wire import api, codec
from tests.tools.simulation.world import PREFIX, World

Line = tuple[int, int, str]


def tell(world: World, newest: int = 60) -> list[str]:
    """The newest lines: the members' side, the log of requests, and the coordinator's history."""
    lines = _members(world) + _requests(world) + _events(world)
    lines.sort(key=lambda line: (line[0], line[1]))
    return [f"{at_ms:>8} ms  {text}" for at_ms, _, text in lines[-newest:]]


def _members(world: World) -> list[Line]:
    found = []
    for number, each in enumerate(world.history):
        where = " ".join(each.partitions) or " ".join(f"{p}={o}" for p, o in each.offsets.items())
        at = f" at {each.offset}" if each.offset >= 0 else ""
        fence = f" fence {each.fence}" if each.fence >= 0 else ""
        detail = f" ({each.detail.splitlines()[0]})" if each.detail else ""
        text = f"{each.member or 'world':<12} {each.what} {where}{at}{fence}{detail}"
        found.append((each.t_ms, number, text.rstrip()))
    return found


def _requests(world: World) -> list[Line]:
    found = []
    for shard in range(world.plan.shards):
        for record in world.cluster.partitions[(f"{PREFIX}.requests", shard)].records:
            request = codec.decode_request(record.value)
            if isinstance(request, api.Request):
                text = f"{request.client:<12} writes {_request(request)} [r{shard}-{record.offset}]"
                found.append((record.true_ms, record.offset, text))
    return found


def _request(request: api.Request) -> str:
    parts = [type(request).__name__, request.group]
    member, generation = getattr(request, "member", ""), getattr(request, "generation", None)
    parts += [member] if member else []
    parts += [f"generation {generation}"] if generation is not None else []
    return " ".join(parts)


def _events(world: World) -> list[Line]:
    found = []
    for shard in range(world.plan.shards):
        for record in world.cluster.partitions[(f"{PREFIX}.events", shard)].read(0)[0]:
            event = msgspec.json.decode(record.value or b"{}")
            text = f"coordinator  {event['type']} {event['group']} generation {event['generation']}"
            text += f" {event['member']} because {event['reason'] or event['cause']}"
            found.append((record.true_ms, record.offset, text))
    return found
