"""Owns plots inside of a page: a matplotlib figure as SVG that follows the page's colours.

The page's policy forbids style attributes, so that they become plain attributes; colours that
`evokernel.report.canvas` names become classes of the style sheet, which has them light and dark.
Texts stay texts: they can be searched, and read aloud.
"""

import io
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from evokernel.report import canvas
from evokernel.wording import plain

if TYPE_CHECKING:
    from markupsafe import Markup

ROLES = {
    "#000000": "ink",
    "#ffffff": "paper",
    "#dddddd": "rule",
    canvas.INK: "ink",
    canvas.FAINT: "faint",
    canvas.BEST: "best",
    canvas.PASSED: "passed",
    canvas.FAILED: "failed",
    canvas.SPOILED: "spoiled",
}
"""Colours of the canvas, and the class that stands for each in the style sheet."""

_POINT = 96 / 72
"""Pixels of a point."""
_URL = re.compile(r"url\(#([^)]+)\)")
_DROPPED = ("metadata", "style")


class Mark(NamedTuple):
    """What a part of a plot says when it is pointed at, and where it leads."""

    said: str
    link: str = ""
    """Place in the page, e.g. `#attempt-3`."""


def inline(
    figure: Any, name: str, description: str, marks: dict[str, Mark] | None = None
) -> "Markup":
    """A figure as an `svg` element.

    Args:
        figure: The figure; its background is left out.
        name: Unique in the page; ids begin with it.
        description: What is to be seen, for those who cannot see it.
        marks: By the gid of an artist.
    """
    from markupsafe import Markup

    root = ElementTree.fromstring(_svg(figure, name))
    _strip(root)
    for parent in list(root.iter()):
        for child in list(parent):
            if mark := (marks or {}).get(child.get("id", "")):
                _point_out(parent, child, mark)
    _rename(root, name)
    width = float(root.attrib.pop("width").removesuffix("pt")) * _POINT
    root.attrib.pop("height")
    root.attrib |= {"width": f"{width:.0f}", "role": "img", "aria-label": plain(description)}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _svg(figure: Any, name: str) -> str:
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(text, format="svg", facecolor="none", metadata={"Date": None})
    return text.getvalue()


def _strip(element: ElementTree.Element) -> None:
    """Names without namespaces, styles as attributes, colours as classes; nothing foreign."""
    element.tag = element.tag.rpartition("}")[2]
    styles = element.attrib.pop("style", "")
    for key in list(element.attrib):
        element.attrib[key.rpartition("}")[2]] = element.attrib.pop(key)
    pairs = (part.partition(":") for part in styles.split(";") if part.strip())
    _style(element, {key.strip(): value.strip() for key, _, value in pairs})
    element.text = (element.text or "").strip()
    element.tail = ""
    if path := element.get("d"):
        element.set("d", " ".join(path.split()))
    for child in list(element):
        _strip(child)
        if child.tag in _DROPPED:
            element.remove(child)


def _style(element: ElementTree.Element, styles: dict[str, str]) -> None:
    styles.pop("font-family", None)
    if "font" in styles:
        element.set("font-size", re.findall(r"[\d.]+px", styles.pop("font"))[0])
    classes = []
    for kind in ("fill", "stroke"):
        role = ROLES.get(styles.get(kind, "").lower())
        if role:
            classes.append(f"{kind}-{role}")
            styles.pop(kind)
    if classes:
        element.set("class", " ".join(classes))
    for key, value in styles.items():
        element.set(key, value)


def _point_out(parent: ElementTree.Element, child: ElementTree.Element, mark: Mark) -> None:
    title = ElementTree.Element("title")
    title.text = plain(mark.said)
    child.insert(0, title)
    child.set("data-tip", "")
    if mark.link:
        link = ElementTree.Element("a", {"href": mark.link})
        parent[list(parent).index(child)] = link
        link.append(child)


def _rename(root: ElementTree.Element, name: str) -> None:
    """Ids that are referred to begin with the figure's name; the others go."""
    used = {text for e in root.iter() for v in e.attrib.values() for text in _URL.findall(v)}
    used |= {e.get("href", "")[1:] for e in root.iter("use")}
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            element.set(key, _URL.sub(rf"url(#{name}-\1)", value))
        if element.tag == "use":
            element.set("href", f"#{name}-{element.get('href', '')[1:]}")
        own = element.attrib.pop("id", "")
        if own in used:
            element.set("id", f"{name}-{own}")
