"""How the drivers of a seed's world sign, and since when; and who writes what only they may.

All of it is drawn from luck of its own, so that the worlds of seeds stay what they were. Most sign
with a cheap stand-in, some with Ed25519 itself; both have the same lengths, so it makes no other
difference. Where the job's library is not installed all have the stand-in.
"""

from importlib.util import find_spec
from random import Random
from typing import TYPE_CHECKING, Final

from coordlib.job.control import ED25519, Signatures
from coordlib.testing.signing import stand_in

if TYPE_CHECKING:
    from tests.tools.simulation.plan import Plan

#: Of the seeds, those that begin with drivers of before.
UNSIGNED_SHARE: Final = 0.15
#: Of the seeds, those that sign with Ed25519 itself.
ED25519_SHARE: Final = 0.1


def draw_unsigned_ms(seed: int, length_ms: int) -> int:
    """Until when drivers are of before, and sign nothing; 0: from the beginning they do."""
    luck = Random(f"unsigned {seed}")
    if luck.random() >= UNSIGNED_SHARE:
        return 0
    return luck.randrange(length_ms // 4, length_ms * 3 // 4)


def believes_forgeries(plan: "Plan") -> bool:
    """Whether somebody writes ticks while drivers still sign nothing: then they count.

    A shard that believes that all could be read ends times too early. Rule 17 promises something
    from the first signed record on.
    """
    return plan.unsigned_ms > 0 and any(fault.kind == "forged-ticks" for fault in plan.faults)


def signatures_of(seed: int) -> Signatures:
    """A world's way to sign; secrets are drawn from the seed."""
    luck = Random(f"keys {seed}")
    is_real = luck.random() < ED25519_SHARE and find_spec("nacl") is not None
    kind = ED25519 if is_real else stand_in(b"")
    return kind._replace(new_secret=lambda: luck.randbytes(32))
