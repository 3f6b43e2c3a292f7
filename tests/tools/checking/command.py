"""`python -m tests.tools check FILE`: does a recorded history keep every promise?"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from coordlib.cli.kit.output import Format, counted, print_json, print_line
from coordlib.errors import SetupError

_GIVE_HISTORY = (
    "Give a recorded run's file: history.jsonl in the folder of the demo's stack, or a test's."
)
#: What members do, what clients of a replicated store do, and what transactions begin with.
_COUNTED = ("act", "put", "got", "begin")
Choice = Annotated[Format, Parameter(env_var="COORD_FORMAT")]


def check(
    history: Path,
    *,
    format: Choice = "text",  # the option's name
) -> int:
    """Check that a recorded history of members, stores or transactions keeps every promise.

    Of members: one owner, nothing lost or skipped. Of a replicated store: one acting leader, no put
    lost, no read stale. Of transactions: each is whole, and each input record is in the committed
    output once.

    Of groups that consume at most once it says how many records were never handed out. Exit code
    1: a promise is broken.

    Parameters
    ----------
    history
        A file of JSON lines, as the demo and the simulation record it.
    format
        text: a line for each broken promise; json: one object.
    """
    import msgspec

    from coordlib.demo import history as recorded
    from tests.tools.checking import checkers

    try:
        found = recorded.read(history)
    except FileNotFoundError as problem:
        raise SetupError("There is no history file.", str(history), _GIVE_HISTORY) from problem
    except OSError as problem:
        what = f"The history cannot be read: {problem.strerror}"
        raise SetupError(what, str(history), _GIVE_HISTORY) from problem
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        what = f"This is no history: {problem}"
        raise SetupError(what, str(history), _GIVE_HISTORY) from problem
    if not found:
        raise SetupError("This is no history: nothing is in it.", str(history), _GIVE_HISTORY)
    broken = checkers.check(found)
    acts, puts, reads, begun = (sum(each.what == what for each in found) for what in _COUNTED)
    never = checkers.never_handed_out(found)
    if format == "json":
        counts = {"acts": acts, "puts": puts, "reads": reads, "transactions": begun}
        print_json("check", None, lines=len(found), **counts, never_handed_out=never, broken=broken)
    else:
        for sentence in broken:
            print_line(sentence)
        lines, promises = counted(len(found), "line"), counted(len(broken), "broken promise")
        is_of_members = acts or not (puts or reads or begun)
        done = [f"{counted(acts, 'record')} processed"] if is_of_members else []
        if puts or reads:
            done.append(f"{counted(puts, 'put')} and {counted(reads, 'read')} answered")
        if begun:
            done.append(counted(begun, "transaction"))
        if never is not None:
            done.append(f"{never:,} never handed out")
        print_line(f"{lines}, {', '.join(done)}: {promises}")
    return 1 if broken else 0
