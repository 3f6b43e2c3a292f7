"""Files with secrets: readable by their owner alone from the moment at which they are made."""

import os
from pathlib import Path
from typing import Final

PRIVATE_FILE: Final = 0o600


def write_private(path: Path, text: str) -> None:
    """Write a file of this user alone, in place of an older one; never half of it."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    fresh.replace(path)
