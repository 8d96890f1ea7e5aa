"""All experiments, in the order in which they are listed and run."""

from __future__ import annotations

from estimators.reproduction import (
    beyond,
    cards,
    crowds,
    pan_closed,
    pan_simulated,
    personal_sets,
    sensitive_sets,
    three_elements,
)
from estimators.reproduction.laboratory import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for module in (pan_closed, pan_simulated, crowds, cards, three_elements, sensitive_sets, personal_sets, beyond)
    for experiment in module.EXPERIMENTS
}
