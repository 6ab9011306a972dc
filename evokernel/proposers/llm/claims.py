"""Owns what a reply says about its candidate, outside of the code: analysis, plan, gain, ids."""

import re
from collections.abc import Iterator

from evokernel.frozen import Frozen
from evokernel.proposers.llm.thoughts import spoken

GREATEST_GAIN = 1e4
"""A predicted speedup beyond this is a slip of the pen (ours)."""


class Claims(Frozen):
    """What a reply says about its candidate."""

    analysis: str = ""
    plan: str = ""
    predicted: float | None = None
    """How many times as fast it is to be as what it was made from; None where it does not say."""
    techniques: tuple[str, ...] = ()
    """As written, in lower case, hyphens for spaces; the catalogue decides which of them exist."""
    used: tuple[str, ...] = ()
    """Ids of experiences."""


def read_claims(text: str) -> Claims:
    """What stands behind the labels outside of code, in any order; the first of each counts.

    They are `Analysis:`, `Plan:`, `Predicted speedup:`, `Techniques:` and `Used:`. Analysis and
    plan may go on over lines, up to the next label, heading or block of code; of the others the
    rest of the line counts, or the list below an empty one.
    """
    found: dict[str, list[str]] = {}
    open_label: list[str] | None = None
    for line in _prose(spoken(text)):
        if match := _LABEL.match(line):
            label = _plain_label(match["name"])
            fresh = [match["text"]]
            open_label = found.setdefault(label, fresh)
            open_label = open_label if open_label is fresh else None
        elif line is _BREAK or line.lstrip().startswith("#"):
            open_label = None
        elif open_label is not None:
            open_label.append(line)
    return Claims(
        analysis=_joined(found.get("analysis", [])),
        plan=_joined(found.get("plan", [])),
        predicted=_gain(" ".join(found.get("predicted", [])[:2])),
        techniques=tuple(dict.fromkeys(_names(_listed(found.get("techniques", []))))),
        used=tuple(dict.fromkeys(_names(_listed(found.get("used", []))))),
    )


_BREAK = "\0"
"""In place of a block of code."""
_LABEL = re.compile(
    r"^[\s>*_#`\d.)-]*(?P<name>analysis|plan|techniques?|(?:experiences? )?(?:ids? )?used"
    r"|(?:predicted|expected|estimated)(?: (?:speed-?up|gain))?)[*_`]*\s*[:：][*_`]*"
    r"\s*(?P<text>.*)$",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*(%|x|×|times)?", re.IGNORECASE)


def _plain_label(name: str) -> str:
    name = name.lower()
    for plain in ("analysis", "plan", "technique", "used"):
        if plain in name:
            return "techniques" if plain == "technique" else plain
    return "predicted"


def _prose(text: str) -> Iterator[str]:
    """The lines outside of blocks of code, each of which leaves one `_BREAK`."""
    from markdown_it import MarkdownIt

    fences = [t.map for t in MarkdownIt("commonmark").parse(text) if t.type == "fence" and t.map]
    inside = {line for begin, end in fences for line in range(begin, end)}
    begins = {begin for begin, _ in fences}
    for index, line in enumerate(text.split("\n")):
        if index in begins:
            yield _BREAK
        elif index not in inside:
            yield line


def _joined(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split()).strip(" *_`.")


def _listed(lines: list[str]) -> str:
    """What stands in the label's own line, or the list that follows it."""
    if lines and lines[0].strip(" *_`."):
        return lines[0]
    bullets = (line.strip() for line in lines[1:])
    return ",".join(line.lstrip("-*+ ").split(":")[0] for line in bullets if line[:1] in {*"-*+"})


def _gain(text: str) -> float | None:
    """`1.4x`, `about 1.2-1.5x` (their middle), `+30%`, `30 % faster`."""
    found = _NUMBER.findall(text.replace(",", ".").replace("–", "-"))
    marked = [(float(n), unit) for n, unit in found if unit] or [(float(n), "") for n, _ in found]
    if not marked:
        return None
    if marked[0][1] == "%":
        gain = 1 + marked[0][0] / 100
    elif (
        pair := re.search(r"(\d+(?:\.\d+)?)\s*[x×]?\s*(?:-|to)\s*(\d+(?:\.\d+)?)", text)
    ) is not None:
        gain = (float(pair[1]) + float(pair[2])) / 2
    else:
        gain = marked[0][0]
    return gain if 0 < gain <= GREATEST_GAIN else None


def _names(listed: str) -> Iterator[str]:
    for name in re.split(r"[,;]", listed):
        plain = re.sub(r"[\s_]+", "-", name.strip(" `*[]().").lower())
        if plain and plain not in {"none", "n/a"}:
            yield plain
