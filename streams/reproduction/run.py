"""Choose experiments by name and perform them one after the other."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Iterator, Sequence

from estimators.reproduction.laboratory import Experiment, Laboratory
from estimators.reproduction.registry import EXPERIMENTS
from streams.reproduction.report import Finding


class UnknownExperimentError(ValueError):
    """A name that no experiment has."""


def chosen(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments with these names or patterns (`pan-*`), in the order of the list; `all` is every one.

    Raises:
        UnknownExperimentError: a name or pattern fits none.
    """
    found = set()
    for name in names:
        fits = set(EXPERIMENTS) if name == "all" else set(fnmatch.filter(EXPERIMENTS, name))
        if not fits:
            raise UnknownExperimentError(f"no experiment is called {name!r}; `thaw reproduce list` names them all")
        found |= fits
    return [experiment for name, experiment in EXPERIMENTS.items() if name in found]


def perform(
    experiments: Sequence[Experiment], laboratory: Laboratory, *, tell: Callable[[str], None] = lambda _: None
) -> Iterator[Finding]:
    """Perform experiments, each when it is asked for; `tell` is told the name of the one that begins."""
    for experiment in experiments:
        tell(experiment.name)
        started = time.monotonic()
        result = experiment.perform(laboratory)
        yield Finding(experiment, result, time.monotonic() - started)
