"""The spark-submit command: nothing of the user's is lost, no secret is shown."""

from pathlib import Path

import pytest

from coordlib.errors import SetupError
from coordlib.exit_codes import USAGE
from coordlib.local import submit
from coordlib.local.submission import JOBS, Submission, python_environment, read_properties

JARS = (Path("/jars/a.jar"), Path("/jars/b.jar"))


def composed(*arguments: str, archive: str | None = None) -> list[str]:
    job = Submission.parse(arguments)
    return job.command(Path("/run/p.conf"), JARS, archive, Path("/spark"))


def test_bare_script_runs_on_the_laptop() -> None:
    assert composed("job.py", "--prefix", "coord") == [
        *("/spark/bin/spark-submit", "--master", "local[3]"),
        *("--properties-file", "/run/p.conf", "--jars", "/jars/a.jar,/jars/b.jar"),
        *("job.py", "--prefix", "coord"),
    ]


@pytest.mark.parametrize("name", JOBS)
def test_a_job_of_the_package_is_submitted_by_its_name(name: str) -> None:
    """Who has installed a wheel has no folder jobs/."""
    *_, script, arguments = composed("--verbose", name, "coordinate")

    assert Path(script).is_file()
    assert Path(script).parts[-3:] == ("job", "main", f"{name}.py")
    assert arguments == "coordinate"


@pytest.mark.parametrize("path", ["./coordinate", "coordinate.py", "jobs/coordinate.py"])
def test_a_script_is_taken_as_it_is_named(path: str) -> None:
    assert composed(path)[-1] == path


def test_flags_pass_through_and_lists_are_joined() -> None:
    given = ["--master", "yarn", "--conf", "a=b", "--jars=/x.jar", "--archives", "m.zip#m"]
    assert composed(
        *given, "--verbose", "--queue", "q", "job.py", "--jars", "mine", archive="e.tgz"
    ) == [
        *("/spark/bin/spark-submit", "--master", "yarn", "--properties-file", "/run/p.conf"),
        *("--jars", "/jars/a.jar,/jars/b.jar,/x.jar", "--archives", "e.tgz#environment,m.zip#m"),
        *("--conf", "a=b", "--verbose", "--queue", "q", "job.py", "--jars", "mine"),
    ]


def test_laptop_settings_stay_on_the_laptop() -> None:
    """A plain-rename checkpoint on an object store would lose batches."""
    key = "spark.sql.streaming.checkpointFileManagerClass"
    assert key in Submission.parse(["job.py"]).properties()
    assert key in Submission.parse(["--master", "local[4]", "job.py"]).properties()
    assert key not in Submission.parse(["--master", "local-cluster[1,1,1024]", "j.py"]).properties()
    assert key not in Submission.parse(["--conf", "spark.master=yarn", "job.py"]).properties()


ELSEWHERE = [
    ["--deploy-mode=cluster"],
    ["--deploy-mode", "cluster"],
    ["--conf", "spark.submit.deployMode=cluster"],
    ["-c", "spark.submit.deployMode=cluster"],
    ["--properties-file", "mine.conf"],
]


@pytest.mark.parametrize("given", ELSEWHERE, ids=" ".join)
def test_a_driver_that_would_run_elsewhere_is_refused(
    given: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A supervisor was told by exit code 0 that the job had stopped; YARN was starting it again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.conf").write_text("spark.submit.deployMode cluster\n")
    monkeypatch.setattr(submit, "find_java", lambda: None)
    monkeypatch.setattr(submit, "ensure_jars", lambda: pytest.fail("jars were looked at"))

    assert submit.main(["--master", "yarn", *given, "job.py"]) == USAGE
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 3
    assert told[0].endswith("--deploy-mode cluster is not built.")


@pytest.mark.parametrize("given", [[], ["--deploy-mode", "client"]], ids=" ".join)
def test_a_driver_that_runs_here_is_not_refused(
    given: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(submit, "find_java", lambda: None)

    def end_here() -> None:
        raise SetupError("No jars.")

    monkeypatch.setattr(submit, "ensure_jars", end_here)

    assert submit.main(["--master", "yarn", *given, "job.py"]) == USAGE
    assert capsys.readouterr().err == "No jars.\n"


def test_users_properties_file_wins_and_may_name_the_master(tmp_path: Path) -> None:
    mine = tmp_path / "mine.conf"
    mine.write_text("# mine\nspark.master   yarn\nspark.scheduler.mode=FIFO\n\nspark.x a = b\n")
    job = Submission.parse(["--properties-file", str(mine), "job.py"])
    assert job.master == "yarn"
    assert job.properties()["spark.scheduler.mode"] == "FIFO"
    assert job.properties()["spark.x"] == "a = b"
    assert "spark.master" not in job.properties()


def test_java_options_keep_the_quiet_console() -> None:
    options = Submission.parse(["--driver-java-options", "-Dx=y", "job.py"]).properties()
    assert options["spark.driver.extraJavaOptions"].startswith("-Dlog4j2.configurationFile=file:")
    assert options["spark.driver.extraJavaOptions"].endswith(" -Dx=y")


def test_properties_given_by_conf_are_joined_as_flags_are() -> None:
    """`--conf spark.driver.extraClassPath=…` took Kafka's and Delta's jars off the class path, and
    `--conf spark.driver.extraJavaOptions=…` the settings of Java's log."""
    job = Submission.parse(
        [
            *("--conf", "spark.driver.extraJavaOptions=-Dmine=1"),
            *("-c", "spark.driver.extraClassPath=/mine", "--conf", "spark.a=b", "coordinate"),
        ]
    )
    given = job.local_properties(JARS, None)

    assert given["spark.driver.extraClassPath"] == "/jars/a.jar:/jars/b.jar:/mine"
    assert "log4j2.properties" in given["spark.driver.extraJavaOptions"]
    assert given["spark.driver.extraJavaOptions"].endswith(" -Dmine=1")
    command = job.command(Path("/run/p.conf"), (), None, Path("/spark"))
    assert [word for word in command if word.startswith("spark.")] == ["spark.a=b"]


@pytest.mark.parametrize("place", ["--conf", "file"])
def test_lists_given_as_properties_are_joined_on_a_cluster(place: str, tmp_path: Path) -> None:
    """Spark takes --jars, which are ours, in the place of spark.jars."""
    file = tmp_path / "mine.conf"
    file.write_text("spark.jars /mine/c.jar\nspark.archives /mine/e.tgz#environment\n")
    by_conf = ["--conf", "spark.jars=/mine/c.jar", "-c", "spark.archives=/mine/e.tgz#environment"]
    given = by_conf if place == "--conf" else ["--properties-file", str(file)]
    job = Submission.parse(["--master", "spark://h:1", *given, "coordinate"])
    command = job.command(Path("/run/p.conf"), JARS, None, Path("/spark"))

    assert job.brings_environment
    assert command[command.index("--jars") + 1] == "/jars/a.jar,/jars/b.jar,/mine/c.jar"
    assert command[command.index("--archives") + 1] == "/mine/e.tgz#environment"
    assert "--conf" not in command


def test_executors_of_a_cluster_run_the_shipped_python() -> None:
    assert python_environment(False, {})["PYSPARK_PYTHON"] == "./environment/bin/python"
    assert "SPARK_HOME" not in python_environment(True, {"SPARK_HOME": "/another"})


@pytest.mark.parametrize("arguments", [[], ["--master"], ["--master", "yarn"]])
def test_incomplete_command_line_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SetupError) as error:
        Submission.parse(arguments)
    assert "Usage" in error.value.hint


def test_repeated_key_of_a_properties_file_takes_the_last(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text("a 1\na 2\n")
    assert read_properties(path) == {"a": "2"}


def test_a_laptops_jars_are_on_the_class_path_of_its_one_jvm() -> None:
    job = Submission.parse(["--driver-class-path", "/mine.jar", "coordinate"])
    properties = job.local_properties(JARS, Path("/quiet.jar"))

    assert (
        properties["spark.driver.extraClassPath"]
        == f"/quiet.jar:{':'.join(map(str, JARS))}:/mine.jar"
    )
    assert properties["spark.hadoop.fs.file.impl"] == "QuietLocalFileSystem"
    assert "--driver-class-path" not in job.command(Path("/p"), (), None, Path("/spark"))


def test_without_the_small_class_hadoops_own_files_are_used() -> None:
    properties = Submission.parse(["coordinate"]).local_properties(JARS, None)

    assert "spark.hadoop.fs.file.impl" not in properties
    assert properties["spark.driver.extraClassPath"] == ":".join(map(str, JARS))


def test_a_clusters_driver_keeps_the_class_path_that_is_given() -> None:
    arguments = ["--master", "spark://m:7077", "--driver-class-path", "/mine.jar", "coordinate"]
    command = Submission.parse(arguments).command(Path("/p"), JARS, None, Path("/spark"))

    assert command[command.index("--driver-class-path") + 1] == "/mine.jar"
