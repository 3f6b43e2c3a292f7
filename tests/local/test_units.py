"""Units for systemd and manifests for Kubernetes: they are valid, and stop where a job says so.

No test starts them. What a shell does in a pod is run here, with another program for `coord`.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import msgspec
import pytest
import yaml

from coordlib import exit_codes
from coordlib.job.background.loop import ClaimsStatus, JobStatus
from coordlib.job.main.arguments import claims_options, parse_arguments, parse_claims_arguments

CONF: Final = Path(__file__).parents[2] / "conf"
UNITS: Final = sorted((CONF / "systemd").glob("*.service"))
MANIFESTS: Final = sorted((CONF / "kubernetes").glob("*.yaml"))
#: A template: its instances are named by their shards.
CELL: Final = "coord-instance@"
#: Another start fixes nothing.
LASTING: Final = sorted({exit_codes.USAGE, exit_codes.FENCED, exit_codes.REFUSED})
#: The oldest that has podFailurePolicy without a gate, and the newest that is known here.
VERSIONS: Final = ("1.31", "1.37")


def documents() -> list[Any]:
    return [each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text())]


JOBS: Final = [each for each in documents() if each["kind"] == "Job"]


def container_of(job: Any) -> Any:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return container


def name_of(thing: Any) -> str:
    return thing.name if isinstance(thing, Path) else thing["metadata"]["name"]


def named(name: str) -> Any:
    (job,) = (each for each in JOBS if name_of(each) == name)
    return job


def test_there_are_units_and_manifests_for_all_jobs() -> None:
    names = ["coord-archive", "coord-claims", "coord-job"]

    assert [unit.stem for unit in UNITS if unit.stem != CELL] == names
    assert sorted(map(name_of, JOBS)) == names


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    """It looks whether the program is there, so the copy names another one."""
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/coordlib/bin/coord", "/bin/true"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )

    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_refuses_a_wrong_unit(tmp_path: Path) -> None:
    """A check that finds nothing may be blind."""
    wrong = tmp_path / "wrong.service"
    wrong.write_text(UNITS[0].read_text().replace("KillMode=mixed", "KillMod=mixed"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(wrong)], capture_output=True, text=True, check=False
    )

    assert "KillMod" in checked.stdout + checked.stderr


def test_the_unit_of_a_cell_has_the_arguments_of_a_job_with_its_shards() -> None:
    """Two of them on one machine share neither checkpoint nor status."""
    (unit,) = (each for each in UNITS if each.stem == CELL)
    said = unit.read_text().replace("%i", "0-7").replace("%S", "/var/lib").replace("\\\n", " ")
    said = re.sub(r"\$\{\w+\}", "word", said)
    words = re.search(r"coordinate (.*) \$COORD_JOB_LOGIN", said)
    assert words is not None

    given = parse_arguments(words[1].split())

    assert given.shards is not None
    assert given.checkpoint.endswith("/0-7")
    assert "instance-0-7" in str(given.status_file)


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_systemd_starts_again_what_another_start_fixes(unit: Path) -> None:
    lines = unit.read_text().splitlines()

    assert "Restart=on-failure" in lines
    assert f"RestartPreventExitStatus={' '.join(map(str, LASTING))}" in lines
    assert "KillMode=mixed" in lines, "SIGTERM to the JVM would end it in the middle of a batch"


@pytest.mark.parametrize("unit", UNITS, ids=name_of)
def test_every_variable_of_a_unit_stands_in_the_example(unit: Path) -> None:
    """systemd puts nothing in the place of a variable that is not set."""
    example = (CONF / "systemd" / "coord.env").read_text()
    used = re.findall(r"\$\{(\w+)\}", unit.read_text())

    assert used
    assert [each for each in used if f"\n{each}=" not in example] == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", documents(), ids=name_of)
def test_kubernetes_takes_the_manifest(document: Any, version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_kubernetes_refuses_a_wrong_manifest() -> None:
    """A check that finds nothing may be blind."""
    wrong = msgspec.json.decode(msgspec.json.encode(JOBS[0]))
    wrong["spec"]["podFailurePolice"] = {}

    with pytest.raises(kubernetes_validate.ValidationError, match="podFailurePolice"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("job", JOBS, ids=name_of)
def test_kubernetes_starts_again_what_another_start_fixes(job: Any) -> None:
    rule = job["spec"]["podFailurePolicy"]["rules"][0]

    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"] == {
        "containerName": container_of(job)["name"],
        "operator": "In",
        "values": LASTING,
    }


@pytest.mark.parametrize("job", JOBS, ids=name_of)
def test_a_pod_keeps_its_files_on_a_claim_that_is_there(job: Any) -> None:
    claims = {name_of(each) for each in documents() if each["kind"] == "PersistentVolumeClaim"}
    volumes = job["spec"]["template"]["spec"]["volumes"]

    assert {v["persistentVolumeClaim"]["claimName"] for v in volumes[:1]} <= claims


def in_the_pod(job: Any, tmp_path: Path, coord: str) -> subprocess.Popen[str]:
    """The pod's shell, with this program in the place of `coord`."""
    program = tmp_path / "coord"
    program.write_text(f"#!/bin/sh\n{coord}\n")
    program.chmod(0o755)
    (text,) = container_of(job)["args"]
    return subprocess.Popen(
        [*container_of(job)["command"], text],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HERE": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("job", JOBS, ids=name_of)
@pytest.mark.parametrize(("code", "told"), [(1, 1), (2, 2), (3, 3), (4, 4), (137, 137), (0, 143)])
def test_a_pod_ends_with_the_jobs_code_but_never_with_0(
    job: Any, code: int, told: int, tmp_path: Path
) -> None:
    """0 would complete the Job when its node is drained, and nobody would judge any more."""
    assert in_the_pod(job, tmp_path, f"exit {code}").wait(60) == told


@pytest.mark.parametrize("job", JOBS, ids=name_of)
def test_a_pod_that_is_ended_waits_for_the_batch(job: Any, tmp_path: Path) -> None:
    """The shell has SIGTERM for it; the job takes a second to stop."""
    pod = in_the_pod(
        job,
        tmp_path,
        "trap 'sleep 1; touch $HERE/stopped; exit 0' TERM; sleep 0.5; touch $HERE/up; "
        "while true; do sleep 0.1; done",
    )
    while not (tmp_path / "up").exists():
        time.sleep(0.02)
    pod.send_signal(signal.SIGTERM)

    assert pod.wait(60) == 128 + signal.SIGTERM
    assert (tmp_path / "stopped").exists()


def words_in_the_pod(job: Any, tmp_path: Path) -> list[str]:
    """What follows `coord` there."""
    pod = in_the_pod(job, tmp_path, 'printf "%s\\n" "$@"; exit 1')
    return pod.communicate(timeout=20)[0].splitlines()


def test_a_pod_starts_the_job_with_arguments_that_it_takes(tmp_path: Path) -> None:
    words = words_in_the_pod(named("coord-job"), tmp_path)
    given = parse_arguments(words[words.index("coordinate") + 1 :])

    assert words[:3] == ["submit", "--master", "local[4]"]
    assert given.checkpoint == "/var/lib/coord/checkpoint"
    assert given.without_archive


def test_a_pod_follows_claims_with_arguments_that_are_taken(tmp_path: Path) -> None:
    words = words_in_the_pod(named("coord-claims"), tmp_path)
    given = parse_claims_arguments(words[words.index("claims") + 1 :])

    assert words[:3] == ["submit", "--master", "local[2]"]
    assert given.topic == "__marshal"
    assert given.checkpoint == "/var/lib/coord/checkpoint-claims"


def test_the_unit_of_claims_has_arguments_that_are_taken() -> None:
    (unit,) = (each for each in UNITS if each.stem == "coord-claims")
    example = dict(
        line.split("=", 1)
        for line in (CONF / "systemd" / "coord.env").read_text().splitlines()
        if "=" in line and not line.startswith("#")
    )
    (command,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)$", unit.read_text(), re.MULTILINE)
    words = re.sub(r"\$\{(\w+)\}", lambda found: example[found[1]], command.replace("\\\n", ""))
    words = words.replace(" $COORD_CLAIMS_LOGIN", " --kafka b=c").split()
    given = parse_claims_arguments(words[words.index("claims") + 1 :])

    assert claims_options(given).topic == "__marshal"
    assert given.checkpoint == "/shared/coord/checkpoint-claims"


@pytest.mark.parametrize("job", ["coord-job", "coord-claims"])
@pytest.mark.parametrize(("state", "is_ready"), [("running", True), ("starting", False)])
@pytest.mark.parametrize("of_claims", ["running", "failed", None])
def test_a_pod_is_ready_when_its_job_runs(
    job: str, state: str, of_claims: str | None, is_ready: bool, tmp_path: Path
) -> None:
    """The claims query has a state of its own in the same file, which says nothing of groups."""
    *shell, text = container_of(named(job))["readinessProbe"]["exec"]["command"]
    status = tmp_path / "status.json"
    claims = None if of_claims is None else ClaimsStatus(topic="__marshal", state=of_claims)
    status.write_bytes(msgspec.json.encode(JobStatus(state=state, pid=1, claims=claims)))
    (file,) = re.findall(r"/tmp/\w+\.json", text)
    text = text.replace(file, str(status))

    assert (subprocess.run([*shell, text], check=False).returncode == 0) is is_ready
