"""Compose the spark-submit command: the user's arguments, and those that every run needs.

Spark's own flags come first, then the script, then the script's arguments, as with spark-submit.
No argument of the user is dropped; lists (`--jars`, `--archives`) and Java options are joined with
ours, also where the user has given them by `--conf` or in a `--properties-file`: Spark itself would
take one of the two. A `--properties-file` is laid over coordlib/conf/spark-defaults.conf and, on a
laptop, over spark-local.conf.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordlib.errors import SetupError
from coordlib.installation import PACKAGE, conf_file
from coordlib.local.class_archive import QUIET_CLASS, QUIET_PROPERTY
from coordlib.local.home import pyspark_home

ENVIRONMENT = "environment"  # the folder's name beside an executor
DEFAULT_MASTER = "local[3]"

COORDINATE: Final = "coordinate"
ARCHIVE: Final = "archive"
CLAIMS: Final = "claims"
#: Scripts that come with the package, in coordlib/job/main/, by the name that is given for them.
JOBS: Final = (COORDINATE, ARCHIVE, CLAIMS)

_SWITCHES = frozenset(
    {"--help", "-h", "--supervise", "--usage-error", "--verbose", "-v", "--version"}
    | {"--load-spark-defaults"}
)
_OURS = frozenset(
    {"--master", "--properties-file", "--jars", "--archives", "--driver-java-options"}
    | {"--driver-class-path"}
)
_CLASS_PATH: Final = "spark.driver.extraClassPath"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
#: Spark's flags with lists, and the properties that they stand for.
_LISTS: Final = {"--jars": "spark.jars", "--archives": "spark.archives"}


@dataclass(frozen=True, slots=True)
class Submission:
    """A command line of `coord submit` or spark-submit.sh, taken apart."""

    flags: tuple[tuple[str, str | None], ...]  # Spark's; a switch has no value
    application: tuple[str, ...]  # the script's path and its arguments

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> "Submission":
        """Split Spark's flags from the job and its arguments.

        Raises:
            SetupError: a flag lacks its value, or no job is named.
        """
        flags: list[tuple[str, str | None]] = []
        rest = list(arguments)
        while rest and rest[0].startswith("-"):
            flag, equals, value = rest.pop(0).partition("=")
            if flag in _SWITCHES:
                flags.append((flag, None))
            elif equals or rest:
                flags.append((flag, value if equals else rest.pop(0)))
            else:
                raise SetupError(f"{flag} lacks its value.", "coord submit", _USAGE)
        if not rest and not any(value is None for _, value in flags):
            raise SetupError("No job was given.", "coord submit", _USAGE)
        return cls(tuple(flags), (*map(_script, rest[:1]), *rest[1:]))

    def last(self, name: str) -> str | None:
        """The value of a flag; the last one wins, as in Spark."""
        return next((value for flag, value in reversed(self.flags) if flag == name), None)

    @property
    def helped(self) -> str | None:
        """The job of ours whose help is asked for; None: the job is to run."""
        script, *given = self.application or ("",)
        name = next((each for each in JOBS if _script(each) == script), None)
        return name if {"-h", "--help"} & {*given} else None

    @property
    def master(self) -> str:
        """Where it runs: --master, else --conf spark.master, else a properties file, else here."""
        given = self._named("--master", "spark.master")
        return given or read_properties(conf_file("spark-local.conf")).get(
            "spark.master", DEFAULT_MASTER
        )

    @property
    def runs_driver_elsewhere(self) -> bool:
        """Whether the cluster starts the driver, on a machine of its own."""
        return self._named("--deploy-mode", "spark.submit.deployMode") == "cluster"

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one JVM on this machine (local-cluster is not)."""
        return self.master == "local" or self.master.startswith("local[")

    @property
    def brings_environment(self) -> bool:
        """Whether the user ships a Python environment already."""
        return any(f"#{ENVIRONMENT}" in each for each in self._listed("--archives"))

    def properties(self) -> dict[str, str]:
        """Every Spark property from files, with our logging in front of the Java options."""
        merged = read_properties(conf_file("spark-defaults.conf"))
        if self.is_local:
            merged |= read_properties(conf_file("spark-local.conf"))
        user = self.last("--properties-file")
        if user is not None:
            merged |= read_properties(Path(user))
        merged.pop("spark.master", None)  # given as a flag
        given = self.last("--driver-java-options") or self._conf(_JAVA_OPTIONS)
        options = given or merged.get(_JAVA_OPTIONS, "")
        logging = f"-Dlog4j2.configurationFile={conf_file('log4j2.properties').as_uri()}"
        merged[_JAVA_OPTIONS] = f"{logging} {options}".strip()
        return merged

    def local_properties(
        self, jars: Sequence[Path], small_class: Path | None, class_archive: str = ""
    ) -> dict[str, str]:
        """`properties`, with all jars on the class path of the one JVM that a laptop has.

        There the JVM itself loads them, so that a class archive may have them; what `--jars` names
        is loaded by Spark.

        Args:
            small_class: the jar of `quiet_jar`; None: it could not be made.
            class_archive: Java's options that use it (`class_archive.py`).
        """
        merged = self.properties()
        given = self.last("--driver-class-path") or self._conf(_CLASS_PATH)
        named = given or merged.get(_CLASS_PATH)
        ours = [str(jar) for jar in (small_class, *jars) if jar is not None]
        merged[_CLASS_PATH] = ":".join([*ours, *([named] if named else [])])
        if small_class is not None:
            merged.setdefault(QUIET_PROPERTY, QUIET_CLASS)
        merged[_JAVA_OPTIONS] = f"{class_archive} {merged[_JAVA_OPTIONS]}".strip()
        return merged

    def command(
        self, properties_file: Path, jars: Sequence[Path], archive: str | None, spark_home: Path
    ) -> list[str]:
        """The whole command line of Spark's own spark-submit; `jars`: for Spark to distribute."""
        lists = {"--jars": [str(jar) for jar in jars], "--archives": []}
        if archive is not None:
            lists["--archives"].append(f"{archive}#{ENVIRONMENT}")
        for flag, given in lists.items():
            given += self._listed(flag)
        command = [str(spark_home / "bin" / "spark-submit"), "--master", self.master]
        command += ["--properties-file", str(properties_file)]
        for flag, values in lists.items():
            if values:
                command += [flag, ",".join(values)]
        for name, value in self.flags:
            if not self._is_joined(name, value):
                command += [name] if value is None else [name, value]
        return [*command, *self.application]

    def _listed(self, flag: str) -> list[str]:
        """The lists that a flag has, or else the property that it stands for."""
        given = [value for name, value in self.flags if name == flag and value]
        named = self._named(flag, _LISTS[flag])
        return given or ([named] if named else [])

    def _is_joined(self, name: str, value: str | None) -> bool:
        """Whether an argument stands among ours already."""
        key = (value or "").partition("=")[0].strip() if name in _CONF else None
        if name == "--driver-class-path" or key == _CLASS_PATH:
            return self.is_local
        return name in _OURS or key in (_JAVA_OPTIONS, *_LISTS.values())

    def _named(self, flag: str, key: str) -> str | None:
        """A value given as a flag, else by --conf, else in a properties file; the user's wins."""
        given = self.last(flag) or self._conf(key)
        if given is None:
            user = self.last("--properties-file")
            files = [Path(user)] if user else []
            found: dict[str, str] = {}
            for path in [conf_file("spark-defaults.conf"), *files]:
                found |= read_properties(path)
            given = found.get(key)
        return given

    def _conf(self, key: str) -> str | None:
        pairs = (value.partition("=") for name, value in self.flags if name in _CONF and value)
        return next((value for name, _, value in reversed(list(pairs)) if name == key), None)


_CONF = ("--conf", "-c")
_USAGE = (
    "Usage: coord submit [flags of spark-submit] coordinate|archive|claims|SCRIPT.py "
    "[its arguments]; in a checkout ./spark-submit.sh takes the same."
)


def _script(name: str) -> str:
    return str(PACKAGE / "job" / "main" / f"{name}.py") if name in JOBS else name


def python_environment(is_local: bool, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of spark-submit: which Python the driver and the executors run."""
    workers = sys.executable if is_local else f"./{ENVIRONMENT}/bin/python"
    chosen = dict(environ) | {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": workers}
    if is_local:
        chosen.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # A JVM that composes the command line of the next one, and ends.
        chosen.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    chosen.pop("SPARK_HOME", None)  # another Spark's would be started instead of pyspark's
    return chosen


def spark_home(environ: Mapping[str, str]) -> Path:
    """pyspark's own Spark, or the cluster's of the same version, named in COORD_SPARK_HOME.

    Raises:
        SetupError: there is none.
    """
    named = environ.get("COORD_SPARK_HOME")
    if named and not (Path(named) / "bin" / "spark-submit").is_file():
        raise SetupError(
            "There is no Spark: bin/spark-submit is missing.",
            f"COORD_SPARK_HOME {named}",
            "Name the folder of Spark, or unset it for that of the pyspark package.",
        )
    return Path(named) if named else pyspark_home()


def read_properties(path: Path) -> dict[str, str]:
    """A properties file as Spark reads it: key, then blanks or `=`, then the value.

    Raises:
        SetupError: it cannot be read.
    """
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except OSError as error:
        raise SetupError(
            "A properties file cannot be read.",
            f"{path}: {error.strerror}",
            "Check --properties-file.",
        ) from error
    pairs = (re.split(r"\s*[=\s]\s*", line, maxsplit=1) for line in lines if line[:1] not in "#!")
    return {pair[0]: pair[1] if len(pair) == 2 else "" for pair in pairs}


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a properties file that only this user can read: it may hold passwords."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    lines = [f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in properties.items()]
    path.write_text("".join(lines))
