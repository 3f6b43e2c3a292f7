"""Figures of the batch benchmark: triggers by phase, CPU per batch, and the comparison. Pure but
for the reading of processes.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from statistics import median
from typing import Any, Final

import psutil

from tests.tools.bench.batch_variants import OFF, ON
from tests.tools.bench.figures import spread

#: Spark's `durationMs`, in the order in which a trigger has them.
PHASES: Final = (
    *("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch"),
    *("commitBatch", "commitOffsets"),
)
TRIGGER: Final = "triggerExecution"

Progress = Mapping[str, Any]


def of_triggers(progress: Iterable[Progress], from_s: float, to_s: float) -> dict[str, Any]:
    """Triggers with rows that began in this time, milliseconds. Times are epoch seconds.

    `phases_ms` are medians, `other` what is in no phase; a phase that Spark does not give is left
    out.
    """
    found = [
        each["durationMs"]
        for each in progress
        if each["numInputRows"] and from_s <= _began_s(each) <= to_s
    ]
    named = [phase for phase in PHASES if any(phase in each for each in found)]
    phases = {phase: median(each.get(phase, 0) for each in found) for phase in named}
    if found:
        phases["other"] = median(
            each[TRIGGER] - sum(each.get(phase, 0) for phase in named) for each in found
        )
    return {
        "batches": len(found),
        "trigger_ms": spread([each[TRIGGER] for each in found], 0.5, 0.9),
        "phases_ms": phases,
    }


def _began_s(progress: Progress) -> float:
    return datetime.fromisoformat(progress["timestamp"]).timestamp()


# -- CPU ------------------------------------------------------------------------------------------


def spent_s(jvm: int, driver: int, daemon_module: str) -> dict[str, float]:
    """CPU seconds by role since the beginning. The first two are process ids.

    `children` are processes that the JVM has started and that have ended, as chmod is. Workers are
    counted with their daemon, and with those workers that it has seen end.
    """
    machine = psutil.Process(jvm)
    times = machine.cpu_times()
    return {
        "jvm": times.user + times.system,
        "children": times.children_user + times.children_system,
        "driver": sum(psutil.Process(driver).cpu_times()[:2]),
        "workers": sum(_whole_times(machine.children(recursive=True), daemon_module)),
    }


def _whole_times(processes: Iterable[psutil.Process], daemon_module: str) -> Iterable[float]:
    for each in processes:
        with suppress(psutil.Error):  # it has ended: its daemon has its time
            if daemon_module in each.cmdline():
                yield sum(each.cpu_times()[:4])


def per_batch_ms(
    before: Mapping[str, float], after: Mapping[str, float], batches: int
) -> dict[str, float]:
    """Milliseconds of CPU for each batch, by role and in all; empty without batches."""
    if not batches:
        return {}
    spent = {role: 1_000 * (after[role] - before[role]) / batches for role in after}
    return {role: round(ms, 1) for role, ms in {**spent, "all": sum(spent.values())}.items()}


# -- the comparison -------------------------------------------------------------------------------


def summary(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each variant: medians over its turns, and what they are of all off and all on."""
    names = list(dict.fromkeys(block["variant"] for block in blocks))
    rows = {
        name: _row(name, [block for block in blocks if block["variant"] == name]) for name in names
    }
    return [
        row
        | {
            "of_off": ratios(row, rows[OFF]) if OFF in rows else None,
            "of_on": ratios(row, rows[ON]) if ON in rows else None,
        }
        for row in rows.values()
    ]


def _row(name: str, blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    phases = dict.fromkeys(phase for block in blocks for phase in block["phases_ms"])
    roles = dict.fromkeys(role for block in blocks for role in block["cpu_ms"])
    return {
        "variant": name,
        "turns": [block["trigger_ms"]["p50"] for block in blocks],
        "batches": sum(block["batches"] for block in blocks),
        "trigger_ms": _middle(block["trigger_ms"]["p50"] for block in blocks),
        "trigger_p90_ms": _middle(block["trigger_ms"]["p90"] for block in blocks),
        "join_s": _middle(block["join_s"]["p50"] for block in blocks),
        "phases_ms": {
            phase: _middle(block["phases_ms"].get(phase) for block in blocks) for phase in phases
        },
        "cpu_ms": {role: _middle(block["cpu_ms"].get(role) for block in blocks) for role in roles},
    }


def _middle(values: Iterable[float | None]) -> float | None:
    """The median of what is known."""
    known = [value for value in values if value is not None]
    return round(median(known), 3) if known else None


def ratios(row: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, float | None]:
    """A variant's figures as shares of another one's; null where either has none."""
    return {
        "trigger": _share(row["trigger_ms"], base["trigger_ms"]),
        "join": _share(row["join_s"], base["join_s"]),
        "cpu": _share(row["cpu_ms"].get("all"), base["cpu_ms"].get("all")),
    }


def _share(value: float | None, of: float | None) -> float | None:
    return None if value is None or not of else round(value / of, 2)
