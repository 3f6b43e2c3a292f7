"""Commands for those who work on coordlib: `python -m tests.tools`, with the manners of `coord`."""

import sys
from collections.abc import Sequence

from cyclopts import App

from coordlib.cli.main import main as cli
from coordlib.cli.main.commands import empty
from tests.tools import sim
from tests.tools.bench import commands as bench
from tests.tools.bench import commands_entities as entities
from tests.tools.checking.command import check


def build() -> App:
    """The tree of commands."""
    app = empty(
        "python -m tests.tools",
        "Play simulated worlds, check histories, and measure the engine.",
    )
    app.command(sim.sim, name="sim")
    app.command(check, name="check")
    bench_app = App(name="bench", help="Measure the engine on this machine.")
    for command in (
        bench.settle,
        bench.load,
        bench.core,
        entities.hostile,
        bench.rebuild,
        entities.consumers,
        entities.brokers,
        entities.transactions,
        entities.cells,
        bench.history,
        bench.spark,
    ):
        bench_app.command(command, name=command.__name__)
    bench_app.command(entities.claims_app())
    app.command(bench_app)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return cli.main(sys.argv[1:] if arguments is None else arguments, build)
