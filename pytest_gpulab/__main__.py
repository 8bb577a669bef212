"""`python -m pytest_gpulab`: the console command."""

import sys

from pytest_gpulab.command.main import main

if __name__ == "__main__":
    sys.exit(main())
