"""`coord up`, `down` and `status`: the local stack; `status` also of a cluster."""

from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from coordlib.cli.kit.options import NotNegative, Partitions
from coordlib.cli.kit.output import (
    complain,
    confirm,
    millis_text,
    print_head,
    print_json,
    say,
    visible,
)
from coordlib.cli.kit.where import (
    TABLES_HERE,
    StackFolder,
    StackName,
    WhereTables,
    local_stack,
    named_stack,
    require_claims_topic,
    require_topic_prefix,
)
from coordlib.core.wire.topics import COORDINATION_TOPIC
from coordlib.errors import CoordError, SetupError
from coordlib.kafka.roles import Role
from coordlib.local.home import DEFAULT_STACK, command_for

if TYPE_CHECKING:
    from coordlib.local.stack import Stack


def up(  # noqa: PLR0913  # options of one command, each with a default
    *,
    stack: StackName = DEFAULT_STACK,
    stack_folder: StackFolder = None,
    prefix: Annotated[str, Parameter(validator=require_topic_prefix)] = "coord",
    shards: Partitions = 2,
    responses: Partitions | None = None,
    secure: Annotated[bool, Parameter(negative="")] = False,
    claims: bool | None = None,
    claims_topic: Annotated[
        str | None, Parameter(validator=require_claims_topic, show_default=False)
    ] = None,
    new_ports: bool = False,
    job_arg: Annotated[list[str] | None, Parameter(negative="")] = None,
) -> int:
    """Start broker, topics and job on this machine; running parts are left as they are.

    Parameters
    ----------
    stack
        Name of the stack: its folder below .coord/stacks.
    stack_folder
        Folder of a stack elsewhere: an empty one, or that of an earlier start.
    prefix
        First part of the topic names.
    shards
        Partitions of the requests topic; fixed from the first start on.
    responses
        Partitions of the responses topic, fixed from the first start on; by default four times the
        shards, at least 16.
    secure
        Start the broker with TLS, passwords and ACLs; fixed from the first start on.
    claims
        The job follows a coordination topic of claims, made if it is missing; later starts, too.
    claims_topic
        The name of that topic; one that ends in .6s has a heartbeat interval of 6 s, not 60.
    new_ports
        Use other ports than at the last start.
    job_arg
        An argument for the job (see: coord submit coordinate --help); may be repeated.
    """
    from coordlib.local.stack import Stack

    if claims is False and claims_topic is not None:
        raise SetupError(
            "A coordination topic is named, and none is to be followed.",
            f"--no-claims --claims-topic {claims_topic[:200]!r}",
            "Leave one of them out.",
        )
    topic = "" if claims is False else claims_topic
    running = Stack(named_stack(stack, stack_folder), prefix, shards, responses, secure, topic)
    if claims:
        running.claims = running.claims or COORDINATION_TOPIC
    with _telling_what_goes_on(running, besides=_parts(running)):
        running.up(say, job_arg or (), new_ports)
    say(f"Kafka answers at {running.bootstrap_servers}, topics {running.prefix}.*")
    if running.secured is not None:
        _say_clients(running)
    if running.claims:
        topic = visible(running.claims)
        say(f"The job follows the claims of {topic}: coord status shows its progress")
        if claims is None and claims_topic is None:
            say("  as at its last start; to end that: coord down, and then coord up --no-claims")
    say("Look around: coord status · coord groups list · coord demo")
    return 0


def _parts(stack: "Stack") -> set[str]:
    """The programs of a stack that run."""
    seen = stack.status()
    parts = {"the broker": seen.broker_state, "the job": seen.job_state}
    return {part for part, state in parts.items() if state in ("running", "starting")}


@contextmanager
def _telling_what_goes_on(stack: "Stack", besides: Container[str] = ()) -> Iterator[None]:
    """Of a command that is interrupted (Ctrl-C is for it alone), or fails half-way: which programs
    of the stack run on, but for those of before."""
    try:
        yield
    except (KeyboardInterrupt, CoordError):
        if parts := [part for part in sorted(_parts(stack)) if part not in besides]:
            down, words = command_for(stack.home, "down"), " and ".join(parts)
            goes = "goes" if len(parts) == 1 else "go"
            say(f"{words[0].upper()}{words[1:]} {goes} on. To end that: {down}")
        raise


def _say_clients(running: Any) -> None:
    """How each role connects: by a file, never by a password on a command line."""
    from coordlib.local.secured import ADMIN

    say("Nobody may do what no ACL allows. Who connects takes the file of a role:")
    for user in (*Role, ADMIN):
        say(f"  {user:<10} --kafka-file {running.secured.file_of(user)}")
    grant = command_for(running.home, "acl apply --role member --principal User:member")
    say(f"Members read topics that you name: {grant} --topics TOPIC")
    if running.claims:
        grant = command_for(running.home, "acl apply --role claimant --principal User:claimant")
        names = f"--claims {visible(running.claims)} --topics TOPIC --groups GROUP"
        say(f"So do claimants: {grant} {names}")


def down(
    *,
    stack: StackName = DEFAULT_STACK,
    stack_folder: StackFolder = None,
    wipe: bool = False,
    yes: bool = False,
) -> int:
    """Stop job and broker, and keep their data.

    Parameters
    ----------
    stack
        Name of the stack.
    stack_folder
        Folder of a stack elsewhere.
    wipe
        Also delete topics, checkpoint, tables and logs.
    yes
        Delete without asking.
    """
    from coordlib.local.stack_folder import require_stack

    named = local_stack(stack, stack_folder)
    is_named = stack != DEFAULT_STACK or stack_folder is not None
    if wipe and is_named and not named.home.exists():
        raise SetupError(
            "There is no such stack.", str(named.home), "Check --stack or --stack-folder."
        )
    if wipe and named.home.exists():
        require_stack(named.home)
        confirm("Deleting topics, checkpoint, tables and logs", str(named.home), yes)
    with _telling_what_goes_on(named):
        named.down(wipe, say)
    return 0


def status(
    *,
    max_lag_ms: NotNegative | None = None,
    max_archive_lag_ms: NotNegative | None = None,
    where: WhereTables = TABLES_HERE,
) -> int:
    """Show whether broker and job run, and how far they have come.

    Exit code 4: no broker answers. 3: the local job does not run or is too far behind, requests
    will soon be removed unread, its claims query fails, shards have no job, or topics, marker or
    tables cannot be read. 2: a setting is wrong. Whether the jobs of a cluster run cannot be seen
    from here; their lag shows it, and that of each job instance.

    Parameters
    ----------
    max_lag_ms
        Exit code 3 when the oldest unanswered request has waited for longer.
    max_archive_lag_ms
        Exit code 3 when the oldest record that is not archived is older, or its age is unknown;
        for a cluster it needs --tables.
    """
    from coordlib.cli.main.status import (
        added_lines,
        collect,
        exit_code,
        instance_lines,
        late_lines,
        note_late,
        trouble_lines,
    )

    if max_archive_lag_ms is not None:
        where.tables_dir()  # of a cluster they must be named
    found = collect(where)
    note_late(found, max_lag_ms, max_archive_lag_ms)
    if where.format == "json":
        print_json("status", found.as_of_time, **found.fields)
    else:
        _print(found.fields)
        for line in [*instance_lines(found), *added_lines(found), *trouble_lines(found, where)]:
            say(visible(line))
    for line in late_lines(found):
        say(line)
    for error in found.errors:
        complain(error.what, error.where, error.hint)
    return exit_code(found)


def _print(fields: dict[str, Any]) -> None:
    job, lag = fields["job"], fields["lag"]
    tables = {name: _table_text(table) for name, table in fields["tables"].items()}
    print_head(
        {
            "BOOTSTRAP-SERVERS": fields["bootstrap_servers"],
            "TOPIC-PREFIX": fields["topic_prefix"],
            "SHARDS": fields["shards"],
            "JOB": job["state"],
            "JOB-PID": job["pid"],
            "BATCH": job["batch_id"],
            "LAST-BATCH-MS": job["last_batch_ms"],
            "MARKER-AGE-MS": job["marker_age_ms"],
            "LAG-RECORDS": lag["records"],
            "LAG-MS": lag["ms"],
            **_claims_lines(fields["claims"]),
            "CHECKPOINT": fields["checkpoint"],
            "CHECKPOINT-ID": fields["checkpoint_id"],
            "ARCHIVE-LAG-RECORDS": fields["archive_lag"]["records"],
            "ARCHIVE-LAG-MS": fields["archive_lag"]["ms"],
            **{f"TABLE-{name.upper().replace('_', '-')}": text for name, text in tables.items()},
        }
    )


def _claims_lines(claims: dict[str, Any] | None) -> dict[str, Any]:
    if claims is None:
        return {}
    return {
        "CLAIMS-TOPIC": claims["topic"],
        "CLAIMS": claims["state"],
        "CLAIMS-FAILING-SINCE": millis_text(claims["failing_since_ms"]),
        "CLAIMS-BATCH": claims["batch_id"],
    }


def _table_text(table: dict[str, Any] | None) -> str | None:
    if table is None:
        return None
    return f"{table['path']} version {table['version']}, {table['files']} files"
