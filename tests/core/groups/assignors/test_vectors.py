"""Kafka's own cases against the assignors here, and the program that runs such files."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tools import vectors
from tests.tools.assignor_cases import Case, read_cases

# What Kafka's tests say, as facts; the file's `source` names their commit.
FILE = Path(__file__).with_name("kafka_vectors.json")
DRAWN = Path(__file__).with_name("drawn_vectors.json")
CASES = [case for path in (FILE, DRAWN) for case in read_cases(path)[1]]

ONE: dict[str, Any] = {
    "name": "one",
    "assignor": "range",
    "partitions_per_topic": {"t": 1},
    "members": {"m": {"topics": ["t"]}},
    "expected_assignment": {"m": [["t", 0]]},
}


def write(folder: Path, *cases: dict[str, Any]) -> str:
    path = folder / "cases.json"
    path.write_text(json.dumps({"source": "here", "vectors": list(cases)}))
    return str(path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_assigns_as_kafka_does(case: Case) -> None:
    report = vectors.Report("")

    report.run(case, scale_divisor=25)

    assert report.summary()["mismatches"] == []


def test_says_what_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stated = {**ONE, "name": "stated", "assignor": "sticky", "expected_properties": ["valid"]}

    assert vectors.main([write(tmp_path, ONE, stated)]) == 0

    summary = json.loads(capsys.readouterr().out)
    assert (summary["cases"], summary["agree"], summary["mismatches"]) == (2, 2, [])
    assert (summary["properties"]["cases"], summary["properties"]["agree"]) == (1, 1)
    assert summary["properties"]["held"]["valid"] == 1


@pytest.mark.parametrize(
    ("change", "what", "actual"),
    [
        ({"expected_assignment": {"m": []}}, "assignment", {"m": [["t", 0]]}),
        ({"expected_assignment": {"m": [["t", 0]], "n": []}}, "assignment", {"m": [["t", 0]]}),
        ({"expected_assignment": None, "expected_error": "x"}, "error", {"m": [["t", 0]]}),
        ({"assignor": "uniform", "partitions_per_topic": {}}, "error", None),
    ],
)
def test_tells_every_mismatch(
    change: dict[str, Any],
    what: str,
    actual: object,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert vectors.main([write(tmp_path, ONE, {**ONE, "name": "other", **change})]) == 1

    summary = json.loads(capsys.readouterr().out)
    assert (summary["cases"], summary["agree"]) == (2, 1)
    (mismatch,) = summary["mismatches"]
    assert (mismatch["case"], mismatch["what"]) == ("other", what)
    assert actual is None or mismatch["actual"] == actual


def test_a_property_that_does_not_hold_is_a_mismatch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Round robin is not balanced here; the same words over another assignor must fail."""
    case = next(
        case for case in CASES if case.source_test == "testPoorRoundRobinAssignmentScenario"
    )
    row = next(row for row in json.loads(FILE.read_text())["vectors"] if row["name"] == case.name)

    assert vectors.main([write(tmp_path, {**row, "assignor": "roundrobin"})]) == 1

    summary = json.loads(capsys.readouterr().out)
    assert summary["properties"]["failed"] == {case.source_test: 1}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no test cases"),
        ("[]", "Expected `object`"),
        ('{"cases": []}', "missing required field `vectors`"),
        (json.dumps({"vectors": [{**ONE, "assignor": "fair"}]}), "assignor 'fair' is not known"),
        (
            json.dumps({"vectors": [{**ONE, "members": {"m": {}}}]}),
            "missing required field `topics`",
        ),
        (
            json.dumps({"vectors": [{**ONE, "partitions_per_topic": {"t": -1}}]}),
            "Expected `int` >= 0",
        ),
        (
            json.dumps({"vectors": [{**ONE, "expected_assignment": None}]}),
            "nothing is expected of it",
        ),
    ],
)
def test_a_file_that_cannot_be_run_is_refused(
    text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cases.json"
    path.write_text(text)

    assert vectors.main([str(path)]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert complaint in err


def test_a_file_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vectors.main([str(tmp_path / "none.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["--fast"]])
def test_wrong_arguments_are_answered_with_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert vectors.main(arguments) == 2
    assert vectors.USAGE in capsys.readouterr().err
