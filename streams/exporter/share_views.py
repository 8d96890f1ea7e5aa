"""The views of a window as the API gives them."""

from __future__ import annotations

import msgspec

from estimators.estimates import ViewName
from streams.exporter.api_views import ShareView, ViewState
from streams.windows.likelihood import Likelihood
from streams.windows.record import EstimateRecord
from streams.windows.shown_views import WORDING, distance_text, is_closer


def share_views(record: EstimateRecord) -> list[ShareView]:
    """Return the stored views of an estimate."""
    return [
        msgspec.structs.replace(
            _view(view.name, "ready", view.shares, distance_text(view)),
            kept=view.kept,
            distance=view.distance,
            unbiased_distance=view.unbiased_distance,
            closer=is_closer(view),
        )
        for view in record.views
    ]


def likelihood_view(found: Likelihood | None) -> ShareView:
    """Return the likelihood of a window's reports, or how far it is."""
    if found is None:
        return _view("likelihood", "not asked", None)
    if found.state == "done":
        view = found.view
        assert view is not None
        note = " ".join(filter(None, [f"From {found.users:,} reports.", distance_text(view)]))
        return msgspec.structs.replace(
            _view("likelihood", "ready", found.shares, note),
            distance=found.distance,
            unbiased_distance=found.unbiased_distance,
            closer=is_closer(view),
        )
    progress = found.progress if found.state == "computing" else None
    return msgspec.structs.replace(_view("likelihood", found.state, None, found.reason), progress=progress)


def _view(name: ViewName, state: ViewState, shares: list[float] | None, note: str = "") -> ShareView:
    title, about = WORDING[name]
    return ShareView(name, title, about, state, shares, note=note)
