"""`coord demo --act classic` with fewer records; all else is as people run it."""

import sys
from dataclasses import replace

from coordlib.cli.main.main import main
from coordlib.demo import acts

acts.ACTS["classic"] = replace(acts.ACTS["classic"], records=3_000, holds=(2_500,))

if __name__ == "__main__":
    sys.exit(main(["demo", "--act", "classic"]))
