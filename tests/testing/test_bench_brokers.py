"""The figures of clusters: what is timed is the work that it says."""

from tests.tools.bench.brokers import chosen, topics_of
from tests.tools.bench.brokers_core import Fleet
from tests.tools.bench.brokers_terms import Terms

T0, T1 = ("t", 0), ("t", 1)


def test_the_cluster_is_at_rest_when_it_is_measured() -> None:
    """Otherwise the figure would be of partitions without leaders, or of refusals."""
    fleet = Fleet(brokers=4, partitions=1_200, replicas=3)
    rows = fleet.rows()

    assert len(rows) == 1_200
    assert {row.leader for row in rows.values()} == set(range(4))
    assert {len(row.isr) for row in rows.values()} == {3}
    assert fleet.fold([fleet.heartbeat(1)]).outputs[0].topic == "responses"


# -- on a stack ---------------------------------------------------------------------------------


def test_a_partition_pauses_from_letting_go_until_the_next_leader_was_told() -> None:
    """Both are told in other threads; what was told late, of an older epoch, is no news."""
    now = iter([1.0, 2.0, 5.0, 5.25, 9.0])
    terms = Terms(now_s=lambda: next(now))
    terms.leads(1, T0, 0)
    terms.leads(1, T1, 0)
    terms.resigned([T0])
    terms.leads(2, T0, 1)
    terms.leads(1, T0, 0)

    assert terms.pauses_s == [0.25]
    assert (terms.leader(T0), terms.led_by(1)) == (2, [T1])
    assert terms.left([T0, T1], 1) == [T1]
    assert terms.took_s([T0], 5.0) == [0.25]


def test_topics_have_all_partitions_and_other_brokers_stop_than_are_killed() -> None:
    made = list(topics_of(2_500, 3))

    assert [each.partitions for each in made] == [1_000, 1_000, 500]
    assert chosen(20, 3) == ([0, 1, 2], [3, 4, 5])
    assert chosen(4, 3) == ([0, 1, 2], [3, 0, 1])
