"""`python -m pykernel.cli`, for an environment whose scripts are not on the path."""

import sys

from pykernel.cli import main

sys.exit(main())
