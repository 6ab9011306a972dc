"""Owns `Tape`: the file that a recording grows in, a line for each thing that was found out.

A killed recorder loses at most the line that it was writing; the next one goes on behind it.
"""

import json
from pathlib import Path
from typing import Any

from evokernel.errors import ConfigError
from evokernel.study.recording import Point, Recording, Subject, Times


class Tape:
    """What is known so far of the points of one subject."""

    def __init__(self, path: Path, subject: Subject) -> None:
        self.path = path
        self.subject = subject
        self.points: dict[str, Point] = {}
        self.facts: dict[str, str] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = _whole_lines(path)
        if not lines:
            self._append({"subject": subject.model_dump(mode="json")})
            return
        for line in lines:
            self._take_in(json.loads(line))

    def judged(self, point: Point) -> None:
        """Keep what became of a plan."""
        self.points[point.plan.line] = point
        self._append({"point": point.model_dump(mode="json")})

    def timed(self, line: str, times: Times) -> None:
        """Keep what one process of a plan's kernel took."""
        self._append({"line": line, "times": times.model_dump(mode="json")})
        self._add(line, times)

    def about(self, facts: dict[str, str]) -> None:
        """Keep on what all of it was measured; another device ends the recording.

        Raises:
            ConfigError: what is there was measured on another device.
        """
        if self.facts and self.facts["device"] != facts["device"]:
            raise ConfigError(
                f"`{self.path}` was begun on {self.facts['device']}, this is {facts['device']}: "
                "times of two devices do not mix; record into another folder"
            )
        if self.facts != facts:
            self.facts = facts
            self._append({"facts": facts})

    def recording(self) -> Recording:
        """What there is, packed."""
        return Recording(subject=self.subject, points=tuple(self.points.values()), **self.facts)

    def _take_in(self, entry: dict[str, Any]) -> None:
        if "subject" in entry:
            known = Subject.model_validate(entry["subject"])
            if known.key != self.subject.key:
                raise ConfigError(
                    f"`{self.path}` holds another space or other sizes of `{known.name}`; "
                    "record into another folder, or move the file away"
                )
        elif "point" in entry:
            point = Point.model_validate(entry["point"])
            self.points[point.plan.line] = point
        elif "times" in entry:
            self._add(entry["line"], Times.model_validate(entry["times"]))
        else:
            self.facts = entry["facts"]

    def _add(self, line: str, times: Times) -> None:
        point = self.points[line]
        known = {name: getattr(point, name) for name in Point.model_fields}
        # Not a copy, which would keep what was computed from the times before.
        self.points[line] = Point(**known | {"times": (*point.times, times)})

    def _append(self, entry: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def _whole_lines(path: Path) -> list[str]:
    """The lines of a file; one that a kill has torn is cut off."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        path.write_bytes(whole)
    return whole.decode().splitlines()
