"""Specifications and randomizers by the name that survey files use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from estimators.mechanism import ParameterError, Randomizer, Specification
from estimators.mechanisms import (
    christofides,
    grr,
    improved_christofides,
    k_randomization,
    key_value,
    mean,
    noisy_samples,
    pum,
    rappor,
    simmons,
    symbols,
    three_element,
    uldp,
    unary,
    warner,
)

_MECHANISMS: dict[str, tuple[type[Specification], type[Randomizer[Any]]]] = {
    "grr": (grr.GRR, symbols.SymbolRandomizer),
    "warner": (warner.Warner, symbols.SymbolRandomizer),
    "simmons": (simmons.Simmons, symbols.SymbolRandomizer),
    "christofides": (christofides.Christofides, symbols.SymbolRandomizer),
    "improved_christofides": (
        improved_christofides.ImprovedChristofides,
        improved_christofides.ImprovedChristofidesRandomizer,
    ),
    "ewrr": (three_element.EWRR, symbols.SymbolRandomizer),
    "rr3_dagger": (three_element.Dagger, symbols.SymbolRandomizer),
    "rr3_ddagger": (three_element.DoubleDagger, symbols.SymbolRandomizer),
    "rr3_club": (three_element.Club, symbols.SymbolRandomizer),
    "lpp": (key_value.LPP, key_value.LPPRandomizer),
    "pckv_ue": (key_value.PCKVUE, key_value.PCKVUERandomizer),
    "sue": (unary.SUE, unary.UnaryRandomizer),
    "oue": (unary.OUE, unary.UnaryRandomizer),
    "rappor": (rappor.RAPPOR, rappor.RAPPORRandomizer),
    "mean": (mean.Mean, mean.MeanRandomizer),
    "urr": (uldp.URR, uldp.UtilityOptimizedRandomizer),
    "urap": (uldp.URAP, uldp.UtilityOptimizedRandomizer),
    "mangat": (uldp.Mangat, uldp.UtilityOptimizedRandomizer),
    "pum": (pum.PUM, pum.PUMRandomizer),
    "k_randomization": (k_randomization.KRandomization, k_randomization.KRandomizer),
}


_SAMPLED: dict[str, type[Specification]] = {"warner": noisy_samples.SampledWarner}
"""Mechanisms that can send the noisy samples themselves, the baseline of gradual release."""


def names() -> tuple[str, ...]:
    """Return the names that survey files may use."""
    return tuple(_MECHANISMS)


def specification_class(name: str) -> type[Specification]:
    """Return the specification with this name; KeyError for an unknown one."""
    return _MECHANISMS[name][0]


def build(name: str, values: Sequence[str], ladder: float | Sequence[float], /, **parameters: Any) -> Specification:
    """Build the mechanism `name` for these values at one privacy level, or at the increasing levels of a ladder.

    values are the labels of all possible answers (for `mean` the name of the number, for `lpp` and `pckv_ue` the keys);
    parameters are those that docs/mechanisms.md lists. `epsilons` of the result is the exact cost, from the integers
    that devices draw with, rounded up.

    >>> build("grr", ["a", "b", "c"], [0.5, 1.0]).epsilons
    (0.5, 1.0)

    Raises:
        ParameterError: name, values or a parameter is wrong: field, value, remedy.
        LadderError: a level is negative or too high, levels fall, or the mechanism cannot have this ladder.
    """
    if name not in _MECHANISMS:
        raise ParameterError("name", name, f"must be one of {', '.join(_MECHANISMS)}")
    labels = list(values)
    for label in labels:
        if not isinstance(label, str):
            raise ParameterError("values", label, "labels are texts; convert the others, and the column, with str")
    if len(set(labels)) < len(labels):
        raise ParameterError("values", labels, "every value occurs once; remove the second one")
    levels = [float(ladder)] if isinstance(ladder, int | float) else [float(level) for level in ladder]
    return _MECHANISMS[name][0].build(labels, levels, parameters)


def sampling_levels(
    name: str, values: Sequence[str], permanent: float, sample: float, rounds: int, /, **parameters: Any
) -> list[float]:
    """Return the levels that 1, 2, ..., `rounds` noisy samples of one permanent answer of a mechanism reach.

    `permanent` and `sample` are levels of a whole answer, as in a ladder.

    >>> [round(level, 3) for level in sampling_levels("rappor", ["a"], 4.0, 2.0, 3, hashes=2)]
    [0.909, 1.735, 2.419]

    Raises:
        ParameterError: as `build`, or the mechanism has no noisy samples.
    """
    once, noisy = (build(name, values, level, **parameters) for level in (permanent, sample))
    return [once.sampling_epsilon(noisy, samples) for samples in range(1, rounds + 1)]


def build_sampled(
    name: str,
    values: Sequence[str],
    ladder: Sequence[float],
    /,
    *,
    permanent: float,
    sample: float,
    samples: int,
    **parameters: Any,
) -> Specification:
    """Build the form of a mechanism that sends `samples` noisy samples of a permanent answer, then sharper answers.

    The ladder begins with the levels of `sampling_levels`.

    Raises:
        ParameterError: the mechanism has no such form, or a value is wrong.
        LadderError: a later level costs less than the samples.
    """
    if name not in _SAMPLED:
        known = ", ".join(_SAMPLED)
        remedy = (
            f"{name} cannot send the samples themselves, only {known} can; remove it: sharper answers cost the same"
        )
        raise ParameterError("release.relax", False, remedy)
    own = {**parameters, "permanent": permanent, "sample": sample, "samples": samples}
    return _SAMPLED[name].build(list(values), list(ladder), own)


@lru_cache(maxsize=256)
def randomizer_of(specification: Specification) -> Randomizer[Any]:
    """Return the device side of a mechanism; KeyError for an unknown one. One object per specification."""
    return _MECHANISMS[specification.name][1](specification)
