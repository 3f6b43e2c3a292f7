"""The claims query in an application of its own, as a script: the same as `coord submit claims`."""

import sys

from coordlib.job.main.claims import main

if __name__ == "__main__":
    sys.exit(main())
