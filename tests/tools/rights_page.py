"""The table of rights of each role on its page: `python -m tests.tools.rights_page`.

It is drawn from the code's own table, and a test holds the page against it.
"""

import sys
from pathlib import Path
from typing import Final

from coordlib.kafka.roles import TABLE, Row

PAGE: Final = Path(__file__).parents[2] / "docs/reference/rights.md"
BEGIN, END = "<!-- rights: begin -->\n", "<!-- rights: end -->\n"
_PLACES: Final = {
    "{prefix}": "PREFIX",
    "{topic}": "TOPIC",
    "{group}": "GROUP",
    "{claims}": "COORDINATION",
    "{transaction}": "TRANSACTIONAL_ID",
    "{output}": "OUTPUT",
}


def table() -> str:
    """All rows of all roles, as Markdown."""
    lines = ["| role | right | on | what needs it |", "|---|---|---|---|"]
    for role, rows in TABLE.items():
        for number, row in enumerate(rows):
            name = f"**{role}**" if number == 0 else ""
            lines.append(f"| {name} | {row.operation} | {_resource(row)} | {row.purpose} |")
    return "".join(f"{line}\n" for line in lines)


def _resource(row: Row) -> str:
    name = row.name
    for place, word in _PLACES.items():
        name = name.replace(place, word)
    if row.name == "*":
        return f"every {row.kind}"
    if row.is_prefix:
        return f"{row.kind}s that begin with `{name}`"
    return f"{row.kind} `{name}`"


def with_table(page: str) -> str:
    """The page with the table as the code has it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has not both marks of the table")
    return before + begin + table() + end + after


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
    sys.stderr.write(f"{PAGE} has the table of the code\n")
