"""The commands of the page about clusters, as they stand there."""

import re

from tests.architecture.test_tidy import ROOT

PAGE = ROOT / "docs/how-to/deploy.md"


def blocks() -> list[str]:
    """The page's shell blocks: the cluster, then the job."""
    found: list[str] = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return found


def commands(block: str) -> list[str]:
    """One a line, without breaks."""
    return re.sub(r"\s*\\\n\s*", " ", block).splitlines()
