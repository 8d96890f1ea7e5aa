"""Published numbers: one TOML file per paper beside this module, with the edition and what is known of its pages."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Annotated, Any

import msgspec

from estimators.reproduction.results import Published


class _Number(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    place: str
    what: str
    kind: str
    value: Any
    tolerance: float
    relative_tolerance: float = 0.0
    erratum: str | None = None
    right: Any = None
    right_tolerance: float = 0.0
    page: str = ""
    """Its page in the edition, where that is known."""

    def published(self) -> Published:
        """Return it as experiments use it, with the page in its place."""
        fields = msgspec.structs.asdict(self)
        page = fields.pop("page")
        return Published(**fields | {"place": f"{self.place}, p. {page}" if page else self.place})


_Text = Annotated[str, msgspec.Meta(min_length=1)]


class Paper(msgspec.Struct, forbid_unknown_fields=True):
    """A data file."""

    paper: _Text
    edition: _Text
    """Where the paper stands."""
    page: _Text
    """Pages of the numbers in that edition, or that they are unknown and why."""
    numbers: list[_Number]


def load_papers() -> Iterator[Paper]:
    """Yield all data files."""
    for path in sorted((files(__package__) / "published").iterdir(), key=lambda path: path.name):
        yield msgspec.toml.decode(path.read_bytes(), type=Paper)


def load_published() -> dict[str, Published]:
    """Return all numbers by id."""
    found: dict[str, Published] = {}
    for paper in load_papers():
        for number in paper.numbers:
            assert number.id not in found, f"{paper.paper}: the id {number.id} stands twice"
            found[number.id] = number.published()
    return found
