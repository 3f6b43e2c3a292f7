"""Pin what set-up installs: `python -m tests.tools.lock EXTRAS` writes conf/requirements.lock.

pip resolves coordlib with these extras as if nothing were installed, and each package that it would
install is a line: what is required directly, and whatever that requires. Set-up gives pip the file
as constraints. It holds for one Python and one platform, which all tests are run on; elsewhere
other packages may be needed beside, and these are not pinned.

Only the standard library is imported: a lock can be made where nothing is installed yet.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
LOCK: Final = ROOT / "conf" / "requirements.lock"
PYTHON: Final = (3, 11)  # the oldest that the project supports
PLATFORM: Final = "linux"

_HEADER: Final = """\
# What coordlib[{extras}] brings, exactly, on Python {python} on {platform}. Written by `make lock`.
# `make setup` gives it to pip as constraints.
"""


def normalised(name: str) -> str:
    """A package's name as the lock has it; pip takes several spellings for one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(installed: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The version of each package of pip's installation report, by normalised name, in order.

    The project itself is no package of an index, and is left out.
    """
    packages = [each["metadata"] for each in installed]
    found = {normalised(each["name"]): str(each["version"]) for each in packages}
    return {name: found[name] for name in sorted(found) if name != "coordlib"}


def read(text: str) -> dict[str, str]:
    """The pins of a lock's text."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    pairs = (line.partition("==") for line in lines if line)
    return {name: version for name, _, version in pairs}


def write(extras: str, versions: Mapping[str, str]) -> str:
    """The text of a lock."""
    python = ".".join(map(str, PYTHON))
    header = _HEADER.format(extras=extras, python=python, platform=PLATFORM.capitalize())
    return header + "".join(f"{name}=={version}\n" for name, version in versions.items())


def resolve(extras: str) -> dict[str, str]:
    """Ask pip what it would install into an empty environment.

    Raises:
        CalledProcessError: pip found no such set of packages, or could not reach its index.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--report", str(report), f"{ROOT}[{extras}]"]
        subprocess.run(command, check=True)
        return pins(json.loads(report.read_text())["install"])


def main(arguments: list[str]) -> int:
    """Write the lock; returns the exit code."""
    if len(arguments) != 1:
        print("Usage: python -m tests.tools.lock EXTRA[,EXTRA…]", file=sys.stderr)
        return 2
    if (sys.version_info[:2], sys.platform) != (PYTHON, PLATFORM):
        wanted = ".".join(map(str, PYTHON))
        print(f"The lock is made with Python {wanted} on {PLATFORM}: not written", file=sys.stderr)
        return 2
    (extras,) = arguments
    try:
        versions = resolve(extras)
    except subprocess.CalledProcessError as problem:
        print("pip found no set of packages: nothing was written", file=sys.stderr)
        return problem.returncode
    LOCK.write_text(write(extras, versions))
    print(f"{LOCK.relative_to(ROOT)}: {len(versions)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
