"""The states of a slot: the table, its page, and that dice come through all of it."""

from coordlib.core.claims.slots import Verdict
from coordlib.core.claims.soundness import TRANSITIONS, State, state_of
from coordlib.core.claims.world import World
from tests.tools.claims import logs, page


def test_the_page_is_drawn_from_the_table() -> None:
    """`make diagrams` writes it; a page that lies is worse than none."""
    text = page.PAGE.read_text()

    assert text == page.with_drawing(text)


def test_dice_come_along_every_arrow_and_no_other() -> None:
    """INV-46: an arrow that nothing takes is a guess, one that is missing a defect."""
    taken: dict[tuple[State, State], set[Verdict]] = {}
    for seed in range(25):
        log = logs.hostile(seed, 200)
        for begins in (0, 20, 60, 100):
            world = World("__marshal", 0, 1)
            for each in log[begins:]:
                world.advance(each.offset, each.timestamp_ms)
                states = {key: state_of(world, slot) for key, slot in world.slots.items()}
                judgement = world.decide(each.value)
                if judgement.key is None or judgement.after is judgement.before:
                    continue
                before = states.get(judgement.key, State.UNCLAIMED)
                step = before, state_of(world, judgement.after)
                taken.setdefault(step, set()).add(judgement.verdict)

    assert taken == {step: set(verdicts) for step, verdicts in TRANSITIONS.items()}


def test_every_state_is_explained() -> None:
    """Meaning and action stand below each member of the enum."""
    rows = list(page.rows_of(State))

    assert len(rows) == len(State)
    assert all(row.count("|") == 4 and "|  |" not in row for row in rows)
