"""Specifications and randomizers by the name that survey files use."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from estimators.mechanism import Randomizer, Specification
from estimators.mechanisms import (
    christofides,
    grr,
    improved_christofides,
    k_randomization,
    key_value,
    mean,
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


def names() -> tuple[str, ...]:
    """Return the names that survey files may use."""
    return tuple(_MECHANISMS)


def specification_class(name: str) -> type[Specification]:
    """Return the specification with this name; KeyError for an unknown one."""
    return _MECHANISMS[name][0]


@lru_cache(maxsize=256)
def randomizer_of(specification: Specification) -> Randomizer[Any]:
    """Return the device side of a mechanism; KeyError for an unknown one. One object per specification."""
    return _MECHANISMS[specification.name][1](specification)
