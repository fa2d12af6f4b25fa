"""`python -m kdbtool.root` is `kdbtool root`, for a clean clone where nothing is installed yet."""

import sys

from kdbtool.cli import main

sys.exit(main(["root", *sys.argv[1:]], names=("root",)))
