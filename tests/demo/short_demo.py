"""`coord demo` with its first act alone and fewer records; all else is as people run it."""

import sys
from dataclasses import replace

from coordlib.cli.main import main
from coordlib.demo import first_act, scenario

scenario.ACTS = (replace(first_act.ACT, records=3_000, holds=(2_500,)),)

if __name__ == "__main__":
    sys.exit(main(["demo"]))
