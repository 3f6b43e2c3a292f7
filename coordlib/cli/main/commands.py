"""The tree of commands, with their help."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter
from cyclopts.help import PlainFormatter

from coordlib.cli.claims import app as claims_commands
from coordlib.cli.controller import app as controller_commands
from coordlib.cli.groups import app as groups_commands
from coordlib.cli.kit.output import print_table, say
from coordlib.cli.main import provision, sql, stack
from coordlib.cli.transactions import app as transactions_commands

if TYPE_CHECKING:
    from rich.console import Console


def require_acts(_: Any, names: Sequence[str]) -> None:
    """Raises SetupError for a name that no act has, before anything is deleted or started."""
    from coordlib.demo.acts import chosen

    chosen(names)


Acts = Annotated[
    tuple[str, ...], Parameter(negative="", show_default=False, validator=require_acts)
]


def demo(
    *,
    act: Acts = (),
    keep: bool = False,
) -> int:
    """Run groups on a stack of their own, kill a member of each, and check the outcome.

    Exit code 0 only if every check of the verdict holds.

    Parameters
    ----------
    act
        Name of an act, or "all"; may be repeated; by default classic and assigned.
    keep
        Leave the stack running at the end.
    """
    from coordlib.demo import run

    return run(say, print_table, keep, act)


_HELP_ARGUMENTS: Final = ((), ("--help",), ("-h",))


def build_submit() -> App:
    """The command. Nothing that follows it is an option of `coord`: the job has a --help too."""
    app = App(
        name="submit",
        usage=(
            "Usage: coord submit [SPARK-SUBMIT FLAGS] coordinate|archive|claims|SCRIPT.py "
            "[ARGUMENTS]"
        ),
        help_epilogue=(
            "Exit codes are the job's: 0 stopped when asked, 1 failed, 2 wrong usage or settings, "
            "3 a newer driver does this prefix's work, 4 refused: topics or checkpoint are not "
            "what they must be. After 1 a supervisor is to start it again. --deploy-mode cluster "
            "is refused: the driver runs where this command does."
        ),
        help_flags=(),
        version_flags=(),
        end_of_options_delimiter="\0",  # which no argument has: "--" and "" are passed on
    )

    @app.default
    def submit(
        *arguments: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    ) -> int:
        """Launch a job with spark-submit, and stay until it ends; SIGTERM and Ctrl-C stop it.

        coordinate is the coordination job. archive writes the history in an application of its
        own, claims follows a coordination topic in one. SCRIPT.py is any script of yours. To see
        the arguments of a job: coord submit coordinate --help

        Without --master the job runs on this machine. For a cluster this Python environment is
        packed and shipped, without what only the command line needs. COORD_ENV_ARCHIVE names a
        ready archive instead, and COORD_SPARK_HOME another Spark than that of the pyspark package.
        """
        if arguments in _HELP_ARGUMENTS:
            build().help_print(["submit"])
            return 0
        from coordlib.local.submit import run

        return run(arguments)

    return app


HELP_WIDTH_MAX: Final = 100


def empty(name: str, help: str) -> App:
    """An application without commands, with help and errors as those of `coord`."""
    return App(
        name=name,
        help=help,
        help_epilogue=(
            "Exit codes: 0 done, 1 failed, 2 wrong usage or settings, 3 unhealthy, 4 nothing "
            "answers.\n\n"
            "Results go to stdout, everything else to stderr. With --format json stdout is one "
            "JSON object."
        ),
        help_formatter=Paragraphs(),
        help_format="plaintext",
        version=_version,
        default_parameter=None,
        result_action="return_value",
    )


def build() -> App:
    """The tree of commands."""
    about = "Coordinate consumer groups with Kafka and Spark: run, inspect and query them."
    app = empty("coord", about)
    app.command(stack.up, name="up")
    app.command(stack.down, name="down")
    app.command(stack.status, name="status")
    app.command(demo, name="demo")
    app.command(build_submit())
    app.command(sql.sql, name="sql")
    topics_app = App(name="topics", help="Create and check the coordinator's own topics.")
    topics_app.command(provision.create, name="create")
    topics_app.command(provision.check, name="check")
    history_app = App(name="history", help="Maintain the tables of the history.")
    history_app.command(sql.maintain, name="maintain")
    acl_app = App(name="acl", help="Print and grant what each role may do at the brokers.")
    acl_app.command(provision.print_rights, name="print")
    acl_app.command(provision.apply, name="apply")
    app.command(groups_commands.build())
    app.command(claims_commands.build())
    app.command(controller_commands.build())
    app.command(transactions_commands.build())
    app.command(groups_commands.build_offsets())
    for part in (topics_app, history_app, acl_app):
        app.command(part)
    return app


class Paragraphs(PlainFormatter):
    """Plain help whose paragraphs are wrapped anew: a docstring's line breaks do not fit the
    terminal."""

    def _print_plain(self, console: "Console", text: str) -> None:
        width = min(console.width, HELP_WIDTH_MAX)
        for number, paragraph in enumerate(text.split("\n\n")):
            if number:
                console.print()
            indent = paragraph[: len(paragraph) - len(paragraph.lstrip())]
            lines = textwrap.wrap(
                " ".join(paragraph.split()),
                width,
                initial_indent=indent,
                subsequent_indent=indent * 3,
                break_long_words=False,
                break_on_hyphens=False,
            )
            for line in lines:
                console.print(line, highlight=False, markup=False, soft_wrap=True)


def _version() -> str:
    from importlib.metadata import version

    return version("coordlib")
