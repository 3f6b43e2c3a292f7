"""The acts of the demo, by name. A new protocol adds an act, and one line here."""

from collections.abc import Sequence
from typing import Final

from coordlib.demo import assigned_act, brokers_act, claims_act, classic_act, transactions_act
from coordlib.demo.act import Playable
from coordlib.errors import SetupError

ACTS: Final[dict[str, Playable]] = {
    "classic": classic_act.ACT,
    "assigned": assigned_act.ACT,
    "claims": claims_act.ACT,
    "brokers": brokers_act.ACT,
    "transactions": transactions_act.ACT,
}
#: The acts that are played when none is named; together two to three minutes.
USUAL: Final = ("classic", "assigned")
ALL: Final = "all"


def chosen(names: Sequence[str]) -> list[Playable]:
    """The acts with these names, each once and in this order; the usual ones without a name.

    Raises:
        SetupError: an act of a given name does not exist.
    """
    wrong = [name for name in names if name not in ACTS and name != ALL]
    if wrong:
        raise SetupError(
            f"The demo has no act {wrong[0][:100]!r}.",
            f"its acts: {', '.join(ACTS)}",
            f"Name one of them, several (--act NAME --act NAME), or all: --act {ALL}",
        )
    wanted = ACTS if ALL in names else dict.fromkeys(names or USUAL)
    return [ACTS[name] for name in wanted]
