"""Agents over the real core: what programs are told, and when they may act as leaders."""

from tests.client.controller.world import T0, World


def test_a_broker_comes_and_leads_what_is_made() -> None:
    world = World()
    (one,) = world.start(1)
    world.create((1,))

    assert one.told == [("unfenced",), ("leader", "t", 0, 0)]
    assert one.agent.may_lead("t", 0)
    assert one.agent.must_acknowledge("t", 0) == {1}
    assert one.agent.state == "Active"


def test_others_follow() -> None:
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))

    assert ("leader", "t", 0, 0) in one.told
    assert ("follower", "t", 0, 0, 1) in two.told
    assert not two.agent.may_lead("t", 0)
    assert two.agent.must_acknowledge("t", 0) == frozenset()


def test_a_dead_leader_is_followed_by_another_within_its_bound() -> None:
    """Its power went: nobody says anything."""
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))
    world.run(3_000)

    one.transport.is_cut = True
    one.is_busy = True
    took_ms = world.until(lambda: two.agent.may_lead("t", 0))

    assert took_ms <= 8_000 + 2_000
    assert two.leads[T0].epoch == 1


def test_one_that_is_cut_off_stops_before_another_leads_and_comes_back_as_a_follower() -> None:
    """Its door is closed only after its session has ended; it leads nothing long before."""
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))
    one.transport.is_cut = True

    world.until(lambda: not one.agent.may_lead("t", 0))
    assert not two.agent.may_lead("t", 0)
    assert not one.agent.is_fenced
    world.until(lambda: one.agent.is_fenced)
    assert two.agent.may_lead("t", 0)

    one.transport.is_cut = False
    world.until(lambda: one.agent.state == "Active" and not one.agent.is_fenced)
    world.run(1_000)
    assert one.kinds()[-4:-2] == ["leader", "fenced"]
    assert set(one.told[-2:]) == {("unfenced",), ("follower", "t", 0, 1, 2)}


def test_a_planned_stop_moves_what_it_leads_without_a_session() -> None:
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))

    one.agent.stop()
    took_ms = world.until(lambda: one.is_over)

    assert took_ms < 2_000
    assert two.agent.may_lead("t", 0)
    assert ("resign", (T0,)) in one.told


def test_one_that_reads_and_cannot_write_stops_by_its_lease_before_another_leads() -> None:
    """A firewall lets only answers through: it reads that it was put out, after it has stopped."""
    world = World()
    one, two = world.start(1, 2)
    world.create((1, 2))
    world.run(3_000)
    one.transport.is_mute = True

    lease_ms = world.until(lambda: not one.agent.may_lead("t", 0))
    assert lease_ms <= 6_000
    assert (one.agent.state, one.kinds()) == ("Active", ["unfenced", "leader"])
    assert not two.agent.may_lead("t", 0)
    took_ms = lease_ms + world.until(lambda: two.agent.may_lead("t", 0))
    assert took_ms <= 8_000 + 2_000
    world.until(lambda: one.agent.is_fenced)
    assert one.told[2] == ("fenced", "the controller has declared it Inactive")

    world.run(30_000)
    assert one.kinds()[3:] == ["follower"]
    one.transport.is_mute = False
    world.until(lambda: one.agent.state == "Active" and not one.agent.is_fenced)
    assert two.agent.may_lead("t", 0)
    assert one.told[-1] == ("unfenced",)


def test_one_that_cannot_write_closes_its_door_by_its_own_clock() -> None:
    """The job is away as well, so nobody declares it Inactive."""
    world = World()
    (one,) = world.start(1)
    world.create((1,))
    world.log.job_is_up = False
    one.transport.is_mute = True

    lease_ms = world.until(lambda: not one.agent.may_lead("t", 0))
    took_ms = lease_ms + world.until(lambda: one.agent.is_fenced)

    assert lease_ms <= 6_000
    assert 8_000 < took_ms <= 16_000
    assert one.told[-1] == ("fenced", "no contact with the log for the fence timeout")
