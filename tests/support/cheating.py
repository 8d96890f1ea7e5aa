"""Devices that flip less than their survey declares, under the id of that survey."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from estimators.mechanisms.grr import GRR
from producers.survey.survey import Survey


class _CheatingGRR(GRR):
    """Draws with one ladder and declares another."""

    def __init__(self, declared: GRR, ladder: Sequence[float]) -> None:
        super().__init__(declared.labels, ladder)
        self._declared = declared

    def canonical(self) -> dict[str, Any]:
        """Return what the honest mechanism declares."""
        return self._declared.canonical()


def cheating(survey: Survey, ladder: Sequence[float]) -> Survey:
    """Return the survey as a broken device knows it: the same id and the same frames, other levels."""
    assert isinstance(survey.mechanism, GRR)
    assert len(ladder) == survey.mechanism.rungs
    broken = replace(survey, mechanism=_CheatingGRR(survey.mechanism, ladder))
    assert broken.id == survey.id
    return broken
