"""The tree of commands, with their help."""

import textwrap
from typing import TYPE_CHECKING, Final

from cyclopts import App
from cyclopts.help import PlainFormatter

from coordlib.cli.claims import claims, claims_admin, claims_check, claims_verify
from coordlib.cli.controller import (
    cluster,
    cluster_admin,
    cluster_history,
    cluster_moves,
    cluster_topics,
)
from coordlib.cli.groups import groups, history, offsets, removal
from coordlib.cli.main import acl, demo, log, maintain, sql, stack, submit, topics
from coordlib.cli.transactions import (
    transactions,
    transactions_admin,
    transactions_decide,
    transactions_finish,
    transactions_hanging,
    transactions_history,
)

if TYPE_CHECKING:
    from rich.console import Console

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
    app.command(demo.demo, name="demo")
    app.command(submit.build())
    app.command(sql.sql, name="sql")
    groups_app = App(name="groups", help="Inspect and administer consumer groups.")
    groups_app.command(groups.list_groups, name="list")
    groups_app.command(groups.describe, name="describe")
    groups_app.command(history.history, name="history")
    groups_app.command(groups.release, name="release")
    groups_app.command(groups.delete, name="delete")
    groups_app.command(removal.remove_members, name="remove-members")
    offsets_app = App(name="offsets", help="Delete committed offsets of groups.")
    offsets_app.command(offsets.delete, name="delete")
    topics_app = App(name="topics", help="Create and check the coordinator's own topics.")
    topics_app.command(topics.create, name="create")
    topics_app.command(topics.check, name="check")
    claims_app = App(name="claims", help="Inspect and administer groups that share by claims.")
    claims_app.command(claims.list_claims, name="list")
    claims_app.command(claims.describe, name="describe")
    claims_app.command(claims.history, name="history")
    claims_app.command(claims.decode, name="decode")
    claims_app.command(claims_admin.pause, name="pause")
    claims_app.command(claims_admin.resume, name="resume")
    claims_app.command(claims_admin.set_position, name="set-position")
    claims_app.command(claims_check.create, name="create")
    claims_app.command(claims_check.check, name="check")
    claims_app.command(claims_verify.verify, name="verify")
    history_app = App(name="history", help="Maintain the tables of the history.")
    history_app.command(maintain.maintain, name="maintain")
    acl_app = App(name="acl", help="Print and grant what each role may do at the brokers.")
    acl_app.command(acl.print_rights, name="print")
    acl_app.command(acl.apply, name="apply")
    log_app = App(name="log", help="Check recorded histories of members.")
    log_app.command(log.check, name="check")
    ours = (groups_app, claims_app, _of_clusters(), _of_transactions(), offsets_app, topics_app)
    for part in (*ours, history_app, acl_app, log_app):
        app.command(part)
    return app


def _of_clusters() -> App:
    app = App(name="cluster", help="Inspect and administer clusters of brokers.")
    app.command(cluster.list_clusters, name="list")
    app.command(cluster.describe, name="describe")
    app.command(cluster.brokers, name="brokers")
    app.command(cluster.partitions, name="partitions")
    app.command(cluster_history.history, name="history")
    app.command(cluster_topics.create_topic, name="create-topic")
    app.command(cluster_topics.create_partitions, name="create-partitions")
    app.command(cluster_topics.delete_topic, name="delete-topic")
    app.command(cluster_moves.elect, name="elect")
    app.command(cluster_moves.reassign, name="reassign")
    app.command(cluster_admin.remove_broker, name="remove-broker")
    app.command(cluster_admin.unregister, name="unregister")
    app.command(cluster_admin.release, name="release")
    app.command(cluster_admin.delete, name="delete")
    return app


def _of_transactions() -> App:
    app = App(name="transactions", help="Inspect transactions, and end those that hang.")
    app.command(transactions.list_ids, name="list")
    app.command(transactions.describe, name="describe")
    app.command(transactions.pending, name="pending")
    app.command(transactions_history.history, name="history")
    app.command(transactions_hanging.find_hanging, name="find-hanging")
    app.command(transactions_admin.abort, name="abort")
    app.command(transactions_decide.decide, name="decide")
    app.command(transactions_finish.finish, name="finish")
    app.command(transactions_admin.release, name="release")
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
