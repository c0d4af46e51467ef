"""`python -m sardonyx.cli`, the same as the console script."""

import sys

from sardonyx.cli import main

sys.exit(main())
