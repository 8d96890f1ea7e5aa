"""A coarser answer drawn from a sharper one: two channels and the kernel between them, in floats."""

from __future__ import annotations

from dataclasses import dataclass

from estimators.estimates import Floats

ROUNDING = 1e-12
"""Closed forms that are 0 in exact arithmetic come out as a few units in the last place."""


@dataclass(frozen=True, eq=False)
class Degradation:
    """Two channels and the kernel K[upper answer, lower answer] with upper @ kernel = lower."""

    lower: Floats
    upper: Floats
    kernel: Floats

    @property
    def possible(self) -> bool:
        """Whether the kernel is one: no negative entry."""
        return bool((self.kernel >= -ROUNDING).all())

    def forward(self) -> list[list[list[float] | None]]:
        """Return Pr(upper answer | lower answer, value) as [value][lower][upper].

        None where the value never gives the lower answer. Rows of an impossible degradation leave [0, 1].
        """
        joint = self.upper[:, None, :] * self.kernel.T[None, :, :]
        return [
            [(joint[x, y] / given).tolist() if given > 0 else None for y, given in enumerate(row)]
            for x, row in enumerate(self.lower)
        ]
