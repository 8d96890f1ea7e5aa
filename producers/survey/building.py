"""Which form of a mechanism a release table asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from estimators.mechanism import Specification
from estimators.mechanisms.registry import build, build_sampled
from producers.survey.file import NoisySampling, Release


def builder(
    release: Release, name: str, labels: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]
) -> Callable[[], Specification]:
    """Return what builds the mechanism: with sharper answers on every rung, or with noisy samples on the first ones."""
    if not isinstance(release, NoisySampling) or release.relax:
        return partial(build, name, labels, ladder, **parameters)
    return partial(
        build_sampled,
        name,
        labels,
        ladder,
        permanent=release.epsilon_permanent,
        sample=release.epsilon_sample,
        samples=release.rounds,
        **parameters,
    )
