"""matplotlib's drawings as parts of a page: text stays text, colours come from the page's style, readers get a title.

matplotlib writes a `style` into every mark, which a strict Content-Security-Policy blocks. `Sheet`
collects them as classes for the page's own style sheet, which also lets them change for dark screens and for paper.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast
from xml.etree import ElementTree

from markupsafe import Markup

from pytest_gpulab.reports.terminal.text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, FAINT, PAPER = "#111111", "#999999", "#fefefe"
# Okabe and Ito: distinguishable for the colour-blind
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
VARIABLES = {INK: "--ink", FAINT: "--faint", PAPER: "--paper"} | {
    colour: f"--series-{number}" for number, colour in enumerate(SERIES, 1)
}
SETTINGS: Any = {  # Any: matplotlib spells out every key as a type
    "text.parse_math": False,  # a dollar in a name is a dollar
    "svg.fonttype": "none",
    "svg.hashsalt": "gpulab",
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "none",
}
Drawer = TypeVar("Drawer", bound=Callable[..., Any])
_SVG = "http://www.w3.org/2000/svg"
_HREF = "{http://www.w3.org/1999/xlink}href"
_IDS = re.compile(r"#([\w.-]+)")
_FONT = re.compile(r"font: (?:(bold) )?([\d.]+)px [^;]*")


@dataclass
class Sheet:
    """The styles of a page's drawings, each of them once: class names by declarations, in order of first use."""

    classes: dict[str, str] = field(default_factory=dict)

    def class_of(self, declarations: str) -> str:
        """Return the class with these declarations; the page's variables replace known colours."""
        text = _FONT.sub(lambda match: f"font-weight: {match[1] or 'normal'}; font-size: {match[2]}px", declarations)
        for colour, variable in VARIABLES.items():
            text = text.replace(colour, f"var({variable})")
        return self.classes.setdefault(text, f"p{len(self.classes)}")

    @property
    def text(self) -> str:
        """The rules, ready for a page's style sheet."""
        return "".join(f".{name}{{{rule}}}\n" for rule, name in self.classes.items())


@dataclass(frozen=True)
class Drawing:
    """A figure with its text alternative, a unique key of letters, and tooltips for the marks of each group, by gid."""

    figure: Figure
    key: str
    title: str
    description: str
    tips: Mapping[str, Sequence[str]] = field(default_factory=dict)


def in_page_style(draw: Drawer) -> Drawer:
    """Decorate a function that draws in the pages' style; matplotlib's global settings stay unchanged."""

    @wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        import matplotlib

        with matplotlib.rc_context(SETTINGS):
            return draw(*args, **kwargs)

    return cast(Drawer, drawn)


@in_page_style
def inline(drawing: Drawing, sheet: Sheet) -> Any:
    """Return the drawing as an `svg` element for an HTML page (`Markup`); its styles go to the sheet."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():  # browsers have fonts for all languages, matplotlib has not
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        drawing.figure.savefig(buffer, format="svg", bbox_inches="tight", pad_inches=0.05, metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    _strip(root)
    _name_marks(root, drawing.tips)
    _rename(root, f"{drawing.key}-", sheet)
    _describe(root, drawing)
    text: str = ElementTree.tostring(root, encoding="unicode", default_namespace=None)
    return Markup(text.replace("ns0:", "").replace("xmlns:ns0=", "xmlns="))


def _strip(root: ElementTree.Element) -> None:
    """Remove elements that a page must not have (a style element) or does not need."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)


def _name_marks(root: ElementTree.Element, tips: Mapping[str, Sequence[str]]) -> None:
    for group in root.iter(f"{{{_SVG}}}g"):
        texts = tips.get(group.get("id", ""))
        for mark, text in zip(group.iter(f"{{{_SVG}}}use"), texts, strict=True) if texts else ():
            ElementTree.SubElement(mark, f"{{{_SVG}}}title").text = visible(text)


def _rename(root: ElementTree.Element, prefix: str, sheet: Sheet) -> None:
    """Make ids unique on the page, drop unreferenced ones, and turn styles into classes."""
    pointed = {name for element in root.iter() for value in element.attrib.values() for name in _IDS.findall(value)}
    for element in root.iter():
        style = element.attrib.pop("style", None)
        if style is not None:
            element.set("class", sheet.class_of(style))
        name = element.attrib.pop("id", None)
        if name is not None and name in pointed:
            element.set("id", prefix + name)
        if _HREF in element.attrib:
            element.set("href", element.attrib.pop(_HREF))
        for key, value in element.attrib.items():
            if "#" in value:
                element.set(key, _IDS.sub(rf"#{prefix}\1", value))


def _describe(root: ElementTree.Element, drawing: Drawing) -> None:
    """Add a title and a description as first children, as SVG requires."""
    for position, (tag, text) in enumerate((("title", drawing.title), ("desc", drawing.description))):
        element = ElementTree.Element(f"{{{_SVG}}}{tag}", {"id": f"{drawing.key}-{tag}"})
        element.text = visible(text)
        root.insert(position, element)
    root.set("role", "img")
    root.set("aria-labelledby", f"{drawing.key}-title {drawing.key}-desc")
