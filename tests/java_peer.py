"""Kafka's own Java classes beside coordlib: a source file is compiled against the broker's jars."""

import shutil
import subprocess
from pathlib import Path

import pytest

#: The broker's jars without its logging, which would write between the answers.
JARS = ("kafka-clients-", "jackson-", "slf4j-api-", "lz4-java-")


def skip_without_compiler() -> None:
    """A Java runtime, which is all that the local stack needs, cannot build a peer."""
    if shutil.which("javac") is None:
        pytest.skip("no javac: a Java runtime alone cannot build the peer")


def command_of(source: Path, folder: Path) -> list[str]:
    """Compile a class into a folder; the command that runs it."""
    from coordlib.local.jars import ensure_jars

    jars = [str(jar) for jar in ensure_jars().broker if jar.name.startswith(JARS)]
    classes = ":".join([str(folder), *jars])
    subprocess.run(["javac", "-cp", classes, "-d", str(folder), str(source)], check=True)
    return ["java", "-Xmx512m", "-cp", classes, source.stem]
