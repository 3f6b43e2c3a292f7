"""`python -m tests.tools sim|bench`."""

import sys

from tests.tools.commands import main

sys.exit(main())
