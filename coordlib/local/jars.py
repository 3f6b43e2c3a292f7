"""The jars of Spark and of the local broker: resolved once, by Ivy, checked every time."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from coordlib.errors import CoordError, NotReady, SetupError
from coordlib.installation import conf_file, how_to_install
from coordlib.local import class_archive
from coordlib.local.home import coord_home, one_at_a_time, pyspark_home
from coordlib.local.java import find_java
from coordlib.local.progress import Progress, phase, to_stderr

RESOLVE_TIMEOUT_S = 1_200  # 60 MB and some hundred POMs over a slow line


def retrieve(configuration: str, into: Path, cache: Path) -> None:
    """Bring the jars of one configuration of coordlib/conf/jars.xml into a folder.

    Raises:
        SetupError: no Java, no network, no space, or a jar that no repository has.
    """
    into.mkdir(parents=True, exist_ok=True)
    command = [
        *(str(find_java().path), "-jar", str(_ivy_jar())),
        *("-cache", str(cache), "-ivy", str(conf_file("jars.xml"))),
        *("-confs", configuration, "-retrieve", f"{into}/[artifact]-[revision].[ext]"),
    ]
    settings = os.environ.get("COORD_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise _no_network(f"no answer within {RESOLVE_TIMEOUT_S} s") from error
    if answer.returncode != 0 or "UNRESOLVED DEPENDENCIES" in answer.stdout:
        raise complaint(answer.stdout + answer.stderr, configuration)


def complaint(output: str, configuration: str) -> SetupError:
    """The one sentence behind Ivy's output of a failed run."""
    if "No space left on device" in output:
        return NotReady(
            "The disk is full.",
            f"while the {configuration} jars were downloaded",
            "Free 300 MB, then run the same command again: finished downloads are kept.",
        )
    network = re.search(
        r"(UnknownHost|NoRouteToHost|Connect|SocketTimeout|SSL\w*)Exception", output
    )
    if network or "connection timed out" in output.lower() or "Server access Error" in output:
        return _no_network(f"the {configuration} jars of coordlib/conf/jars.xml")
    missing = sorted(set(re.findall(r":: (\S+#\S+;\S+): not found", output)))
    return SetupError(
        "Some jars could not be resolved.",
        ", ".join(missing) or "\n".join(output.strip().splitlines()[-5:]),
        "Check the versions in coordlib/conf/jars.xml, and your mirror if COORD_IVY_SETTINGS names "
        "one.",
    )


def _no_network(where: str) -> NotReady:
    return NotReady(
        "The jar repository cannot be reached.",
        where,
        "Check the network, then run the same command again: finished downloads are kept. "
        "Behind a mirror, name an Ivy settings file in COORD_IVY_SETTINGS.",
    )


def _ivy_jar() -> Path:
    found = sorted((pyspark_home() / "jars").glob("ivy-*.jar"))
    if not found:
        raise SetupError(
            "Ivy is missing from pyspark.",
            str(pyspark_home() / "jars"),
            how_to_install("cli", "spark"),
        )
    return found[-1]


CONFIGURATIONS = ("spark", "broker")
FREE_SPACE_MIN = 300 * 1024 * 1024  # bytes: cache and copies are 62 MB each; room for a broker

Checksums = dict[str, str]
"""Name under jars/, such as `spark/kafka-clients-3.9.2.jar`, to SHA-256 in hex."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Verified jars: those that a Spark job needs, and those that the local broker needs."""

    spark: tuple[Path, ...]
    broker: tuple[Path, ...]


def ensure_jars(progress: Progress = to_stderr) -> JarSet:
    """Have every jar of coordlib/conf/jars.sha256 in place and verified.

    Raises:
        SetupError: no Java, no network, no space, or a jar whose checksum is wrong twice.
    """
    home = coord_home()
    jars = home / "jars"
    expected = read_checksums(conf_file("jars.sha256"))
    with one_at_a_time(home / "jars.lock"):  # else two set-ups at once resolve jars twice
        _resolve_wrong(expected, jars, home / "ivy", progress)
        _remove_strangers(expected, jars)
        class_archive.build_quiet_jar(progress)
    return JarSet(*(_of(expected, jars, name) for name in CONFIGURATIONS))


def read_checksums(path: Path) -> Checksums:
    """Parse a file in the format of sha256sum; comments start with #."""
    lines = (line.split("#")[0].split() for line in path.read_text().splitlines())
    return {parts[1]: parts[0] for parts in lines if len(parts) == 2}


def write_checksums(progress: Progress = to_stderr) -> Path:
    """Resolve coordlib/conf/jars.xml afresh, and write jars.sha256 beside it from the result."""
    home, path = coord_home(), conf_file("jars.xml").with_name("jars.sha256")
    with one_at_a_time(home / "jars.lock"):
        for name in CONFIGURATIONS:
            shutil.rmtree(home / "jars" / name, ignore_errors=True)
            with phase(progress, f"Resolving the {name} jars"):
                retrieve(name, home / "jars" / name, home / "ivy")
        found = sorted(p for name in CONFIGURATIONS for p in (home / "jars" / name).glob("*.jar"))
        lines = [f"{sha256(p)}  {p.parent.name}/{p.name}\n" for p in found]
    path.write_text("# Written by `make checksums` from coordlib/conf/jars.xml.\n" + "".join(lines))
    return path


def wrong_jars(expected: Checksums, jars: Path) -> list[str]:
    """The names whose jar is missing or has another checksum than expected."""
    stamps_file = jars / "verified.json"
    stamps = _read_stamps(stamps_file)
    good, wrong = {}, []
    for name, digest in expected.items():
        stamp = _stamp(jars / name, digest)
        if stamp is not None and (stamps.get(name) == stamp or sha256(jars / name) == digest):
            good[name] = stamp
        else:
            wrong.append(name)
    if good != stamps and jars.is_dir():
        stamps_file.write_text(json.dumps(good))
    return wrong


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _resolve_wrong(expected: Checksums, jars: Path, cache: Path, progress: Progress) -> None:
    wrong = wrong_jars(expected, jars)
    if not wrong:
        return
    _check_space(jars)
    for name in wrong:
        _discard(jars / name, expected[name], cache, progress)
    for configuration in CONFIGURATIONS:
        count = sum(name.startswith(configuration) for name in wrong)
        if count:
            with phase(progress, f"Resolving {count} {configuration} jars"):
                retrieve(configuration, jars / configuration, cache)
    still = wrong_jars(expected, jars)
    if still:
        raise SetupError(
            "A jar is not the one that this project was tested with.",
            ", ".join(f"{jars / name}" for name in still),
            "Somebody between you and the repository may have changed it. If it was changed on "
            "purpose in coordlib/conf/jars.xml, run `make checksums` and read the diff.",
        )


def _discard(jar: Path, digest: str, cache: Path, progress: Progress) -> None:
    """Remove a wrong jar, also from Ivy's cache if it is wrong there too."""
    if jar.exists():
        progress(f"{jar.name} has a wrong checksum: removed, to be resolved again")
        jar.unlink()
    for cached in cache.rglob(jar.name):
        if sha256(cached) != digest:
            cached.unlink()


def _remove_strangers(expected: Checksums, jars: Path) -> None:
    """Remove jars of earlier versions, which would be second copies on the class path."""
    for configuration in CONFIGURATIONS:
        for path in (jars / configuration).glob("*.jar"):
            if f"{configuration}/{path.name}" not in expected:
                path.unlink()


def _of(expected: Checksums, jars: Path, configuration: str) -> tuple[Path, ...]:
    return tuple(jars / name for name in sorted(expected) if name.startswith(configuration + "/"))


def _check_space(jars: Path) -> None:
    jars.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(jars).free
    if free < FREE_SPACE_MIN:
        raise NotReady(
            f"The disk has only {free >> 20} MB left; {FREE_SPACE_MIN >> 20} MB are needed.",
            str(jars),
            "Free some space, or let COORD_HOME name a folder on another disk.",
        )


def _stamp(path: Path, digest: str) -> list[int | str] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return [stat.st_size, stat.st_mtime_ns, digest]


def _read_stamps(path: Path) -> dict[str, list[int | str]]:
    try:
        stamps: dict[str, list[int | str]] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # never written, or cut short: hash again
        return {}
    return stamps


def main(arguments: list[str]) -> int:
    """Entry point of `python -m coordlib.local.jars`; returns the exit code."""
    try:
        if "--write-checksums" in arguments:
            print(write_checksums())
            return 0
        jars = ensure_jars()
    except CoordError as error:
        print(error, file=sys.stderr)
        return 1
    class_archive.make_in_background(jars.spark)
    if "--print-spark" in arguments:
        print(",".join(str(jar) for jar in jars.spark))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
