"""Estimators by the name that survey files use."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from estimators.estimation import (
    improved_christofides,
    k_randomization,
    key_value,
    mean,
    pum,
    rappor,
    symbols,
    uldp,
    unary,
)
from estimators.estimation.estimator import Estimator
from estimators.mechanism import Specification

_ESTIMATORS: dict[str, type[Estimator[Any]]] = {
    "grr": symbols.RetentionEstimator,
    "warner": symbols.WarnerEstimator,
    "simmons": symbols.DenseEstimator,
    "christofides": symbols.DenseEstimator,
    "improved_christofides": improved_christofides.ImprovedChristofidesEstimator,
    "ewrr": symbols.RetentionEstimator,
    "rr3_dagger": symbols.DenseEstimator,
    "rr3_ddagger": symbols.DenseEstimator,
    "rr3_club": symbols.DenseEstimator,
    "lpp": key_value.LPPEstimator,
    "pckv_ue": key_value.PCKVUEEstimator,
    "sue": unary.UnaryEstimator,
    "oue": unary.UnaryEstimator,
    "rappor": rappor.RAPPOREstimator,
    "mean": mean.MeanEstimator,
    "urr": uldp.UtilityOptimizedEstimator,
    "urap": uldp.UtilityOptimizedEstimator,
    "mangat": uldp.UtilityOptimizedEstimator,
    "pum": pum.PUMEstimator,
    "k_randomization": k_randomization.KRandomizationEstimator,
}


@lru_cache(maxsize=256)
def estimator_of(specification: Specification) -> Estimator[Any]:
    """Return the server side of a mechanism; KeyError for an unknown one. One object per specification."""
    return _ESTIMATORS[specification.name](specification)
