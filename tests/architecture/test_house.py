"""How the product is cut into files and folders, and which words its identifiers do not have."""

import re

import pytest

from tests.tools import size

#: Files below 80 lines, each with the reason why it is no part of another one.
SHORT = {
    "core/registry.py": "the one file of the core that names all protocols",
    "core/wire/codec.py": "all that is encoded or decoded imports it, and it imports nothing",
    "exit_codes.py": "everybody's",
    "folders.py": "everybody's",
    "installation.py": "imported before anything that may be missing",
    "job/main/claims.py": "an application that Spark starts by its path",
    "job/warm_daemon.py": "a module that Spark starts by its name",
    "local/java.py": "asked before anything that needs Java is imported",
    "local/progress.py": "of commands and of the set-up, which import nothing else together",
    "spark_reasons.py": "of the job, of clients and of the archive, which do not import each other",
    "spark_stopping.py": "of the job and of clients, which do not import each other",
    "testing/signing.py": "for users' tests",
}
FILE_LINES_MIN = 80
#: Banned words in identifiers of the product. The number may only fall: lower it with each change.
BANNED_LEFT = 0
#: Pairs of top folders of which one imports the other.
ARROWS_MAX = 46


def test_a_short_file_has_a_reason() -> None:
    """Many small files cost a reader more than they explain."""
    found = {
        str(path.relative_to(size.ROOT / size.PACKAGE))
        for path in size.files()
        if path.name != "__init__.py" and size.lines(path) < FILE_LINES_MIN
    }

    assert found == set(SHORT)


def test_no_files_and_no_folders_import_each_other_in_a_circle() -> None:
    """Imports for type hints and those inside functions count, too."""
    graph = size.imports()

    assert size.circles(graph) == []
    assert size.circles(size.folded(graph, 2)) == []
    assert len(size.arrows(size.folded(graph, 1))) <= ARROWS_MAX


def test_no_test_replaces_the_clock_of_every_thread() -> None:
    """A thread that an earlier test left ran a stand-in of `sleep`, once in some twenty runs."""
    replaced = re.compile(r"setattr\(\s*(time,|\"[\w.]*time\.(sleep|monotonic|time)\")")
    found = [
        path
        for path in sorted(size.ROOT.glob("tests/**/*.py"))
        if replaced.search(path.read_text())
    ]

    assert found == [], "use tests/kit/own_time.py"


def test_banned_words_become_fewer() -> None:
    """Names are standard terms: a reader looks them up in Kafka's documentation, not in ours."""
    found = size.banned(size.files())

    assert sum(found.values()) <= BANNED_LEFT, dict(found)
    if sum(found.values()) < BANNED_LEFT:
        pytest.fail(f"Lower BANNED_LEFT to {sum(found.values())}")
