"""`gpulab device`: print a GPU's properties."""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pytest_gpulab.devices.errors import DeviceAbsent, DeviceUnavailable
from pytest_gpulab.devices.hardware.properties import DeviceProperties
from pytest_gpulab.devices.simulated.gpus import DEFAULT_GPU, modelled_gpu, sources
from pytest_gpulab.reports.terminal.text import wrapped

from . import CommandError

INDENT = 26


@dataclass(frozen=True)
class Query:
    """A GPU, where its properties come from, in words, and for `--verbose` further texts by label."""

    properties: DeviceProperties
    origin: str
    details: Mapping[str, str] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommand's arguments."""
    parser.add_argument("--gpu", metavar="NAME", help="a modelled GPU, such as h100, in place of the machine's")
    parser.add_argument("-v", "--verbose", action="store_true", help="the present state of a GPU; sources of a model")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the properties of the machine's GPUs, or of a modelled GPU."""
    try:
        queries = _queries(arguments.gpu)
    except DeviceUnavailable as missing:
        raise CommandError(str(missing)) from None
    if arguments.json:
        facts = [{**asdict(query.properties), "origin": query.origin} for query in queries]
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
        return 0
    for query in queries:
        shown = query.properties.rows() | (dict(query.details) if arguments.verbose else {})
        rows = {"origin": query.origin, **shown}
        lines = [query.properties.name]
        for label, text in rows.items():
            lines += wrapped(text, f"  {label:{INDENT}} ", " " * (INDENT + 3))
        sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _queries(modelled: str | None) -> list[Query]:
    if modelled:
        return [_model(modelled, "modelled")]
    from pytest_gpulab.devices.cuda.report import query_gpus

    try:
        found = query_gpus()
    except DeviceAbsent as missing:
        return [_model(DEFAULT_GPU, f"modelled, because there is no CUDA device: {missing}")]
    return [Query(properties, f"CUDA device {number}", rows) for number, (properties, rows) in enumerate(found)]


def _model(name: str, origin: str) -> Query:
    return Query(
        modelled_gpu(name).properties, origin, {f"source of {key}": text for key, text in sources(name).items()}
    )
