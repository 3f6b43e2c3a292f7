"""`coord cluster remove-broker|unregister|release|delete`: what takes brokers out of a cluster, and
clusters out of the coordinator."""

from typing import TYPE_CHECKING

from coordlib.cli.kit.cluster_asking import asking
from coordlib.cli.kit.confirm import confirm
from coordlib.cli.kit.names import ClusterName
from coordlib.cli.kit.numbers import BrokerId
from coordlib.cli.kit.output import now, print_json, say, visible
from coordlib.cli.kit.where import HERE, Where
from coordlib.errors import ErrorCode, GroupError

if TYPE_CHECKING:
    from coordlib.core.controller.cluster import Broker


def remove_broker(
    cluster: ClusterName,
    broker: BrokerId,
    /,
    *,
    reason: str | None = None,
    yes: bool = False,
    where: Where = HERE,
) -> int:
    """Make a broker Inactive that hangs, or that sends no heartbeats by its version.

    Stop its process first: one that still runs comes back. What it led is led by others when it
    reports that it has stopped, or must have stopped. It stays registered: see unregister.

    Parameters
    ----------
    cluster
        The cluster's name.
    broker
        The broker's id.
    reason
        The reason, for the cluster's history.
    yes
        Remove without asking.
    """
    from coordlib.core.wire.brokers import CLUSTER

    known = _registered(where, cluster, broker)
    confirm(f"Removing broker {broker}", f"cluster {cluster}", yes)
    with asking(where) as admin:
        (row,) = admin.remove_members(cluster, [known.member], reason=reason, space=CLUSTER)
    if row.error != ErrorCode.NONE.name:
        raise GroupError(
            ErrorCode[row.error],
            f"cluster {cluster}, broker {broker}, incarnation {known.incarnation}",
            "It was registered anew meanwhile: try again.",
        )
    said = (
        f"Broker {broker} of {visible(cluster)} is removed; see: coord cluster describe {cluster}"
    )
    return _told(where, "remove-broker", cluster, said, broker=broker)


def unregister(
    cluster: ClusterName, broker: BrokerId, /, *, yes: bool = False, where: Where = HERE
) -> int:
    """Forget an Inactive broker that is gone for ever, with all that its replicas had.

    No deletion waits for it any more. Partitions of which it was the last replica in sync need an
    unclean election.

    Parameters
    ----------
    cluster
        The cluster's name.
    broker
        The broker's id.
    yes
        Unregister without asking.
    """
    where.reach()
    confirm(f"Unregistering broker {broker}", f"cluster {cluster}", yes)
    with asking(where) as admin:
        admin.unregister_broker(cluster, broker)
    said = f"Broker {broker} of {visible(cluster)} is unregistered"
    return _told(where, "unregister", cluster, said, broker=broker)


def release(cluster: ClusterName, /, *, where: Where = HERE) -> int:
    """Let a quarantined cluster go on, from its state before the request that failed.

    Its event GroupQuarantined has the exception. Its brokers get their full timeouts again.

    Parameters
    ----------
    cluster
        The cluster's name.
    """
    from coordlib.core.wire.brokers import CLUSTER

    with asking(where) as admin:
        admin.release_quarantine(cluster, space=CLUSTER)
    return _told(where, "release", cluster, f"{visible(cluster)} is released")


def delete(cluster: ClusterName, /, *, yes: bool = False, where: Where = HERE) -> int:
    """Delete a cluster that has no brokers and no topics.

    Parameters
    ----------
    cluster
        The cluster's name.
    yes
        Delete without asking.
    """
    from coordlib.core.wire.brokers import CLUSTER

    where.reach()
    confirm("Deleting a cluster", f"cluster {cluster}", yes)
    with asking(where) as admin:
        admin.delete_group(cluster, space=CLUSTER)
    return _told(where, "delete", cluster, f"{visible(cluster)} is deleted")


def _registered(where: Where, cluster: str, number: int) -> "Broker":
    """A broker as the topics have it; the coordinator knows members by their ids.

    Raises:
        GroupError: GROUP_ID_NOT_FOUND, BROKER_ID_NOT_REGISTERED.
    """
    from coordlib.cli.controller.cluster_view import read_cluster

    view = read_cluster(where.client(), where.reach(), where.topic_prefix(), cluster)
    broker = view.seen.brokers.get(number)
    if broker is None:
        raise GroupError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"cluster {cluster}, broker {number}",
            f"Check its id: coord cluster brokers {cluster}",
        )
    return broker


def _told(where: Where, command: str, cluster: str, said: str, **fields: object) -> int:
    if where.format == "json":
        print_json(f"cluster {command}", now(), cluster=cluster, **fields)
    else:
        say(said)
    return 0
