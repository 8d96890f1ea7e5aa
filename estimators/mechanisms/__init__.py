"""Every mechanism by the word that survey files use."""

from __future__ import annotations

import importlib

from estimators.mechanism import Mechanism

_MODULES = {
    "grr": "grr:GRR",
    "warner": "warner:Warner",
    "simmons": "simmons:Simmons",
    "christofides": "christofides:Christofides",
    "improved_christofides": "improved_christofides:ImprovedChristofides",
    "ewrr": "three_element:EWRR",
    "rr3_dagger": "three_element:Dagger",
    "rr3_ddagger": "three_element:DoubleDagger",
    "rr3_club": "three_element:Club",
    "lpp": "key_value:LPP",
    "pckv_ue": "key_value:PCKVUE",
    "sue": "unary:SUE",
    "oue": "unary:OUE",
    "rappor": "rappor:RAPPOR",
    "mean": "mean:Mean",
    "urr": "uldp:URR",
    "urap": "uldp:URAP",
    "mangat": "uldp:Mangat",
    "pum": "pum:PUM",
    "k_randomization": "k_randomization:KRandomization",
}


def names() -> tuple[str, ...]:
    """Return the words that survey files may use."""
    return tuple(_MODULES)


def mechanism_class(name: str) -> type[Mechanism]:
    """Return the class behind a word; KeyError for an unknown one. Loaded on demand: a device imports only its own."""
    module, attribute = _MODULES[name].split(":")
    found: type[Mechanism] = getattr(importlib.import_module(f"estimators.mechanisms.{module}"), attribute)
    assert issubclass(found, Mechanism)
    return found
