"""`gpulab include`: print the folder of `gpulab.cuh`."""

import argparse
import sys
from pathlib import Path

INCLUDE = Path(__file__).resolve().parents[1] / "include"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments: none."""
    parser.epilog = 'A file that includes gpulab.cuh compiles with: nvcc -I "$(gpulab include)" file.cu'


def run(arguments: argparse.Namespace) -> int:
    """Print the folder."""
    sys.stdout.write(f"{INCLUDE}\n")
    return 0
