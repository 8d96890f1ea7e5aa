"""Mechanisms, tallies and estimators: pure functions of integers and arrays; no clock, no I/O, no global randomness.

The names in `__all__` are the public interface for research (docs/library.md); they stay, and additions are announced
in the changelog. Each is loaded from its home when it is first used: `import estimators` itself loads nothing, so that
a device needs numpy alone. All other names below this package may move.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from estimators.channels.chain import LadderError as LadderError
    from estimators.channels.sampled import migrate as migrate
    from estimators.estimates import Estimates as Estimates
    from estimators.estimation.estimator import Estimator as Estimator
    from estimators.estimation.registry import estimator_of as estimator_of
    from estimators.exact.randomness import SecureBits as SecureBits
    from estimators.exact.randomness import SeededBits as SeededBits
    from estimators.inference.views import simplex_projection as simplex_projection
    from estimators.mechanism import Drawn as Drawn
    from estimators.mechanism import Guarantee as Guarantee
    from estimators.mechanism import ParameterError as ParameterError
    from estimators.mechanism import Quantity as Quantity
    from estimators.mechanism import Specification as Specification
    from estimators.mechanisms.perturbation import perturb as perturb
    from estimators.mechanisms.registry import build as build
    from estimators.mechanisms.registry import names as mechanism_names
    from estimators.planning.accounting import add_up as add_up
    from estimators.planning.accounting import chain_cost as chain_cost
    from estimators.planning.coverage import Coverage as Coverage
    from estimators.planning.coverage import coverage as coverage
    from estimators.planning.errors import standard_errors as standard_errors
    from estimators.planning.odds import highest_suspicion as highest_suspicion
    from estimators.simulation.simulator import Simulator as Simulator
    from estimators.simulation.simulator import simulator_of as simulator_of
    from estimators.simulation.tallies import tally_of as tally_of
    from estimators.tally import Tally as Tally

__all__ = [
    "Coverage",
    "Drawn",
    "Estimates",
    "Estimator",
    "Guarantee",
    "LadderError",
    "ParameterError",
    "Quantity",
    "SecureBits",
    "SeededBits",
    "Simulator",
    "Specification",
    "Tally",
    "add_up",
    "build",
    "chain_cost",
    "coverage",
    "estimator_of",
    "highest_suspicion",
    "mechanism_names",
    "migrate",
    "perturb",
    "simplex_projection",
    "simulator_of",
    "standard_errors",
    "tally_of",
]

_HOMES = {
    "Coverage": "planning.coverage",
    "Drawn": "mechanism",
    "Estimates": "estimates",
    "Estimator": "estimation.estimator",
    "Guarantee": "mechanism",
    "LadderError": "channels.chain",
    "ParameterError": "mechanism",
    "Quantity": "mechanism",
    "SecureBits": "exact.randomness",
    "SeededBits": "exact.randomness",
    "Simulator": "simulation.simulator",
    "Specification": "mechanism",
    "Tally": "tally",
    "add_up": "planning.accounting",
    "build": "mechanisms.registry",
    "chain_cost": "planning.accounting",
    "coverage": "planning.coverage",
    "estimator_of": "estimation.registry",
    "highest_suspicion": "planning.odds",
    "mechanism_names": "mechanisms.registry:names",
    "migrate": "channels.sampled",
    "perturb": "mechanisms.perturbation",
    "simplex_projection": "inference.views",
    "simulator_of": "simulation.simulator",
    "standard_errors": "planning.errors",
    "tally_of": "simulation.tallies",
}
"""Public name -> module, and the name in it after a colon where it has another one there."""

if not TYPE_CHECKING:  # A type checker would take any name for an attribute.

    def __getattr__(name: str) -> Any:
        """Load a public name from its home (PEP 562)."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; public names: {', '.join(__all__)}")
        module, _, other = _HOMES[name].partition(":")
        try:
            home = import_module(f"{__name__}.{module}")
        except ModuleNotFoundError as error:
            message = f"estimators.{name} needs the package {error.name}; run: pip install 'thaw[library]'"
            raise ModuleNotFoundError(message, name=error.name) from error
        globals()[name] = found = getattr(home, other or name)
        return found

    def __dir__() -> list[str]:
        """Return the public names, for completion."""
        return sorted({*globals(), *__all__})
