"""The types of the public API for views of a window; the rules are those of `streams.exporter.api`."""

from __future__ import annotations

from typing import Literal

import msgspec

from estimators.estimates import ViewName

ViewState = Literal["ready", "not asked", "asked", "computing", "failed"]


class ShareView(msgspec.Struct, frozen=True):
    """The shares of a window seen as a distribution: a view beside the unbiased estimate, never the estimate itself."""

    name: ViewName
    title: str
    about: str
    """What is done to the estimates, in a sentence."""
    state: ViewState
    """The likelihood needs every report and is computed by a worker when it is asked for."""
    shares: list[float] | None
    """In the order of the survey's values; null before it is ready."""
    kept: list[bool] | None = None
    """Of threshold: which values are significant."""
    distance: float | None = None
    """Simulated mean distance from the truth in total variation, for shares and errors like these."""
    unbiased_distance: float | None = None
    """The same of the unbiased estimate."""
    closer: bool = False
    """The view is measurably closer to the truth, as a whole, than the estimate."""
    note: str = ""
    """How far from the truth it is, or why it failed, in a sentence."""
    progress: float | None = None
    """Of a likelihood that is being computed: 0 to 1."""


class ShareViews(msgspec.Struct, frozen=True):
    """The views of one window; none where shares need not sum to one, or nothing is published."""

    survey: str
    window_start_ms: int
    computed_ms: int
    """When the estimate that they belong to was computed."""
    views: list[ShareView]
