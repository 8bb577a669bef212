"""The annotated listing of a whole program: its source with the figures of all its launches."""

from collections import defaultdict
from pathlib import Path

from pytest_gpulab.devices.programs.outcome import Figures, Outcome

from .annotate import listed_lines
from .listing import ListedFile, ListedHazard, Listing
from .program_findings import Sources


def program_listing(outcome: Outcome, source: Path, sources: Sources, device: str) -> Listing:
    """Return the listing of a run with all launches counted: the source, and lines of other files with figures."""
    by_file: dict[str, dict[int, Figures]] = defaultdict(dict)
    for where, figures in outcome.line_figures().items():
        by_file[where.file][where.line] = {name: value for name, value in figures.items() if value}
    own = listed_lines(source, by_file.pop(str(source.resolve()), {}), also_idle=True)
    files = [ListedFile(sources.shown_path(str(source.resolve())), own)]
    for file, found in sorted(by_file.items()):
        files.append(ListedFile(sources.shown_path(file), listed_lines(Path(file), found, also_idle=False)))
    hazards = tuple(
        ListedHazard(
            sources.shown_path(hazard.where.file), hazard.where.line, sources.plain(hazard.what), hazard.harmless
        )
        for _, hazard in outcome.hazards.values()
        if hazard.where is not None
    )
    times = [group.estimated_ms for group in outcome.launches.values() if group.estimated_ms is not None]
    count = outcome.launch_count
    size = f"of {count:,} launch{'es' if count != 1 else ''}"
    return Listing(size, "", device, sum(times) if times else None, tuple(files), hazards)
