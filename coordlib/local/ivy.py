"""Run the Ivy that ships inside pyspark, and turn its errors into one sentence.

Ivy keeps every finished download in its cache, so an interrupted run goes on where it stopped and
nothing is downloaded twice. Behind a company mirror, name an Ivy settings file in
COORD_IVY_SETTINGS.
"""

import os
import re
import subprocess
from pathlib import Path

from coordlib.errors import NotReady, SetupError
from coordlib.installation import conf_file, how_to_install
from coordlib.local.home import pyspark_home
from coordlib.local.java import find_java

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
