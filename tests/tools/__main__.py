"""`python -m tests.tools sim|check|bench`."""

import sys

from tests.tools.commands import main

sys.exit(main())
