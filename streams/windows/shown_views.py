"""What is said about the views of an estimate: their names for people, and how far from the truth they are."""

from __future__ import annotations

from typing import Final, NamedTuple

from estimators.estimates import ViewName
from streams.windows.record import ShareView

CLOSER: Final = 0.9
"""A view is called closer below this part of the estimate's own distance: the distances are simulated."""


class Wording(NamedTuple):
    """The title of a view and a sentence about it."""

    title: str
    about: str


WORDING: Final[dict[ViewName, Wording]] = {
    "threshold": Wording(
        "significant values only",
        "Shares that cannot be noise keep their estimate, and all others share what is left equally (emp+thr).",
    ),
    "simplex": Wording(
        "nearest distribution", "The shares nearest to the estimates that are not negative and sum to one."
    ),
    "likelihood": Wording(
        "most likely distribution", "The shares under which all reports together, not only their counts, are likeliest."
    ),
}
BIASED: Final = "A view, not the estimate: it is biased and has no band."


def is_closer(view: ShareView) -> bool:
    """Tell whether a view is measurably closer to the truth than the estimate itself, as a whole."""
    return view.distance is not None and (view.unbiased_distance or 0.0) * CLOSER > view.distance


def distance_text(view: ShareView) -> str:
    """Say how far from the truth view and estimate are; empty if that is not known."""
    if view.distance is None or view.unbiased_distance is None:
        return ""
    off, own = 100 * view.distance, 100 * view.unbiased_distance
    verdict = "closer to the truth as a whole" if is_closer(view) else "not closer to the truth as a whole"
    return (
        f"In windows simulated like this one it is {verdict}: {off:.1f} points away in total variation, the unbiased "
        f"estimate {own:.1f}."
    )
