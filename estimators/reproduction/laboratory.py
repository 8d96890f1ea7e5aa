"""What an experiment works with: published numbers, data sets, seeded generators, and how much time it may take."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from estimators.reproduction.charts import Chart
from estimators.reproduction.results import (
    Correction,
    Line,
    Published,
    Result,
    Scalar,
    Verdict,
    flatten,
    judge,
)

Made = TypeVar("Made")


@dataclass(frozen=True)
class Sample:
    """A real data set, or the sentence that says why it is not at hand."""

    source: str
    """Package and table, and what the data stand in for."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    missing: str | None = None


class Datasets(Protocol):
    """Real data sets by name."""

    def load(self, name: str) -> Sample:
        """Return a data set; `missing` is set where its package is not installed."""


class Laboratory:
    """The surroundings of all experiments of one run."""

    def __init__(
        self, published: Mapping[str, Published], datasets: Datasets, *, seed: int = 1, quick: bool = False
    ) -> None:
        self.published, self.datasets, self.seed, self.quick = published, datasets, seed, quick
        self._made: dict[str, Any] = {}

    def generator(self, name: str) -> np.random.Generator:
        """Return the generator of an experiment: it depends on the seed and the name, not on what ran before."""
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def runs(self, full: int, quick: int) -> int:
        """Return how often to repeat."""
        return quick if self.quick else full

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """Return what `make` makes; several experiments share one simulation."""
        if name not in self._made:
            self._made[name] = make()
        found: Made = self._made[name]
        return found

    def notebook(self) -> Notebook:
        """Return an empty notebook."""
        return Notebook(self)


class Notebook:
    """Collects the lines, charts and notes of one experiment."""

    def __init__(self, laboratory: Laboratory) -> None:
        self.laboratory = laboratory
        self._lines: list[Line] = []
        self._charts: list[Chart] = []
        self._notes: list[str] = []

    def hold(
        self, key: str, ours: Any, *, labels: Sequence[str] | None = None, error: float | Sequence[float] = 0.0
    ) -> None:
        """Hold numbers against those of a data file, one line each; shapes must agree."""
        entry = self.laboratory.published[key]
        numbers, targets = flatten(_plain(ours)), flatten(entry.value)
        rights = flatten(entry.right) if entry.right is not None else [None] * len(targets)
        errors = flatten(_plain(error)) if not isinstance(error, float) else [error] * len(targets)
        names = [""] * len(targets) if labels is None else list(labels)
        for name, mine, theirs, right, noise in zip(names, numbers, targets, rights, errors, strict=True):
            correction = None if right is None else Correction(right, entry.right_tolerance)
            printed = entry.kind != "recomputed"
            verdict = judge(mine, theirs, entry.slack(theirs), error=float(noise), right=correction, printed=printed)
            self._lines.append(
                Line(
                    what=f"{entry.what}, {name}" if name else entry.what,
                    ours=mine,
                    error=float(noise),
                    against=entry.kind,
                    published=theirs,
                    verdict=verdict,
                    place=entry.place,
                    erratum=entry.erratum if verdict is Verdict.EXPLAINED else None,
                )
            )

    def beside(self, key: str, ours: Sequence[float], labels: Sequence[str]) -> None:
        """Show numbers for a stand-in beside the numbers that were published for other data; nothing is judged."""
        entry = self.laboratory.published[key]
        for name, mine, theirs in zip(labels, ours, flatten(entry.value), strict=True):
            what = f"{entry.what}, {name}"
            self._lines.append(Line(what, mine, 0.0, entry.kind, theirs, Verdict.OTHER_DATA, entry.place))

    def theory(self, what: str, ours: float, expected: float, *, error: float, tolerance: float = 0.0) -> None:
        """Hold a simulated number against the corrected closed form."""
        verdict = judge(ours, expected, tolerance, error=error, printed=False)
        self._lines.append(Line(what, float(ours), float(error), "theory", float(expected), verdict))

    def alone(self, what: str, ours: Scalar, *, error: float = 0.0) -> None:
        """Write down a number to which no published one is at hand."""
        mine = bool(ours) if isinstance(ours, bool | np.bool_) else float(ours)
        self._lines.append(Line(what, mine, float(error), "", None, Verdict.UNPUBLISHED))

    def chart(self, chart: Chart) -> None:
        """Add a panel to the picture."""
        self._charts.append(chart)

    def note(self, text: str) -> None:
        """Add a remark, such as the source of real data."""
        self._notes.append(text)

    def sample(self, name: str) -> Sample | None:
        """Return a data set and note its source; where it is not installed, note that and return None."""
        found = self.laboratory.datasets.load(name)
        if found.missing is not None:
            self.note(f"left out: {found.source}: {found.missing}")
            return None
        self.note(f"real data, a stand-in: {found.source}")
        return found

    def result(self) -> Result:
        """Return what was found."""
        return Result(tuple(self._lines), tuple(self._charts), tuple(self._notes))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


@dataclass(frozen=True)
class Experiment:
    """A named experiment."""

    name: str
    paper: str
    title: str
    run: Callable[[Notebook], None]

    def perform(self, laboratory: Laboratory) -> Result:
        """Run it."""
        notebook = laboratory.notebook()
        self.run(notebook)
        return notebook.result()
