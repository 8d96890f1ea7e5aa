"""All experiments, in the order in which they are listed and run."""

from __future__ import annotations

from estimators.reproduction import cards, crowds, pan_closed, pan_simulated
from estimators.reproduction.laboratory import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for module in (pan_closed, pan_simulated, crowds, cards)
    for experiment in module.EXPERIMENTS
}
