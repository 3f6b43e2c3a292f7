"""The archive in an application of its own, as a script: the same as `coord submit archive`."""

import sys

from coordlib.job.main.archive import main

if __name__ == "__main__":
    sys.exit(main())
