"""A server-assigned group at rest: what its members believe is what its coordinator has kept."""

from coordlib.client.kit.events import TopicPartition
from coordlib.core.groups.assigned.group import Group, State
from coordlib.core.registry import REGISTRY
from coordlib.core.wire.envelope import shard_of
from tests.tools.simulation.plan import ASSIGNED
from tests.tools.simulation.teams import Team
from tests.tools.simulation.world import GROUP, PREFIX, Violation, World


def saved_group(world: World, name: str = GROUP) -> Group | None:
    """A server-assigned group as the compacted topic has it."""
    shard = shard_of(name, world.plan.shards)
    records, _ = world.cluster.partitions[(f"{PREFIX}.groups", shard)].read(0)
    values = [record.value for record in records if record.key == name.encode()]
    value = values[-1] if values else None
    if value is None or b'"assigned"' not in value:
        return None
    group: Group = REGISTRY.kinds[ASSIGNED].load(value)
    return group


def check(world: World, team: Team) -> None:
    """INV-28: Stable, nobody is waited for, and members and coordinator agree on each fence."""
    group = saved_group(world, team.name)
    if group is None:
        raise Violation("INV-28: nobody has made a server-assigned group")
    if group.state is not State.STABLE or group.guards:
        open_ = [name for name, member in group.members.items() if member.demands]
        raise Violation(
            f"INV-28: the group is {group.state.value}; {open_} owe a Release, "
            f"{list(group.guards)} are guarded"
        )
    believed = {p.consumer.member.member_id: p for p in team.living}
    if believed.keys() != group.members.keys():
        raise Violation(f"INV-28: members are {list(group.members)}, and {list(believed)} run")
    for name, program in believed.items():
        kept = {
            TopicPartition(topic, each): grant.fence
            for grant in group.members[name].grants
            for topic, some in grant.partitions.items()
            for each in some
        }
        held = program.fences()
        if held != kept:
            raise Violation(f"INV-28: {name} holds {held}, and was granted {kept}")
