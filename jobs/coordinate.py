"""The coordination job as a script: the same as `coord submit coordinate`."""

import sys

from coordlib.job.main.coordinate import main

if __name__ == "__main__":
    sys.exit(main())
