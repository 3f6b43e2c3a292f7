"""`coord log check`: check a recorded history of members against the promises."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from coordlib.cli.output import Format, counted, print_json
from coordlib.errors import SetupError

_GIVE_HISTORY = "Give the file of a recorded run: history.jsonl in the folder of the demo's stack."
Choice = Annotated[Format, Parameter(env_var="COORD_FORMAT")]


def check(
    history: Path,
    *,
    format: Choice = "text",  # the option's name
) -> int:
    """Check that a recorded history keeps every promise: one owner, nothing lost or skipped.

    Exit code 1: a promise is broken.

    Parameters
    ----------
    history
        A file of JSON lines, as the demo and the simulation record it.
    format
        text: a line for each broken promise; json: one object.
    """
    import msgspec

    from coordlib.checking import checkers
    from coordlib.checking import history as recorded

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
    acts = sum(each.what == "act" for each in found)
    if format == "json":
        print_json("log check", None, lines=len(found), acts=acts, broken=broken)
    else:
        for sentence in broken:
            print(sentence)
        lines, promises = counted(len(found), "line"), counted(len(broken), "broken promise")
        print(f"{lines}, {counted(acts, 'record')} processed: {promises}")
    return 1 if broken else 0
