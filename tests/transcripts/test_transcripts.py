"""Whole conversations, effect for effect. Rewrite a file only if you understand the difference:
`python -m tests.tools.transcript --rewrite tests/transcripts/*.txt`.
"""

from pathlib import Path

import pytest

from tests.tools import transcript

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_conversation_goes_as_written(path: Path) -> None:
    """The races that made real groups hang or lose work, told record by record."""
    assert transcript.differences(path) == []


def test_a_difference_is_shown_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A transcript that lies must not pass because nobody compared it."""
    path = tmp_path / "lie.txt"
    path.write_text("a join\n----\nanswer a#a1 JoinGroup generation=9\n")

    assert transcript.main([str(path)]) == 1
    assert "-answer a#a1 JoinGroup generation=9" in capsys.readouterr().out
    assert transcript.main(["--rewrite", str(path)]) == 0
    assert transcript.main([str(path)]) == 0
