"""Figures of warps as SVG: active lanes per executed line, and the banks or sectors of an access."""

from html import escape

from pytest_gpulab.grading.explanation.warps import BANKS, WARP, LineRun, WarpAccess

SIZE, LEFT = 14, 46

STYLE = """
.warps { font: 11px ui-monospace, monospace; --ink: #1b1b1b; --on: #33608f; --off: #e4e4e4; --bad: #c0182c; }
.warps text { fill: var(--ink); }
.warps .on { fill: var(--on); }
.warps .off { fill: var(--off); }
.warps .over { fill: var(--bad); }
"""


def lanes_svg(runs: tuple[LineRun, ...], warp: int) -> str:
    """Return the executed lines of a warp, a row per line, with its active lanes filled."""
    parts = []
    for number, run in enumerate(runs):
        y = 4 + number * (SIZE + 2)
        parts.append(f'<g class="run" data-line="{run.line}"><text x="2" y="{y + 11}">{run.line}</text>')
        parts.append(f"<title>line {run.line}: {len(run.lanes)} of {WARP} lanes active</title>")
        parts += [
            f'<rect class="{"on" if lane in run.lanes else "off"}" x="{LEFT + lane * SIZE}" y="{y}" '
            f'width="{SIZE - 2}" height="{SIZE}"/>'
            for lane in range(WARP)
        ]
        parts.append("</g>")
    return _svg(f"Active lanes of warp {warp} per executed line", parts, len(runs))


def access_svg(access: WarpAccess) -> str:
    """Return the banks or sectors that the lanes of a warp access; more than one word per bank is marked."""
    count = BANKS if access.space == "shared" else max(access.places) + 1
    shown = list(range(min(count, BANKS)))
    parts = []
    for place in shown:
        lanes = access.places.get(place, ())
        kind = "off" if not lanes else "over" if access.cost > access.best and len(lanes) > 1 else "on"
        name = "bank" if access.space == "shared" else "sector"
        who = f"lanes {', '.join(map(str, lanes))}" if lanes else "no lane"
        parts.append(f"<g><title>{escape(f'{name} {place}: {who}')}</title>")
        parts.append(f'<rect class="{kind}" x="{LEFT + place * SIZE}" y="4" width="{SIZE - 2}" height="{SIZE}"/></g>')
    return _svg(f"{'Banks' if access.space == 'shared' else 'Sectors'} of line {access.line}", parts, 1)


def _svg(title: str, parts: list[str], rows: int) -> str:
    width, height = LEFT + WARP * SIZE + 4, 8 + rows * (SIZE + 2)
    head = f'<svg class="warps" role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>"])
