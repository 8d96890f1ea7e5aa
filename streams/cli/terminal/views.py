"""Views of estimates for `thaw estimates --view`: which surveys have them, and waiting for a likelihood."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import click
import msgspec

from estimators.estimates import ViewName
from producers.clock import Clock, system_clock
from producers.survey.survey import Survey
from streams.windows.likelihood import ABANDONED_MS, Likelihood, Likelihoods, views_offered
from streams.windows.record import EstimateRecord
from streams.windows.settled import window_state

POLL_SECONDS: Final = 0.2
Found = list[tuple[Survey, list[EstimateRecord]]]


def with_view(
    found: Found,
    view: ViewName,
    likelihoods: Likelihoods,
    *,
    named: bool,
    whole: bool,
    counted_ms: int | None = None,
) -> Found:
    """Return what was found, each record with the view that is asked for if it can have it.

    Args:
        found: surveys and their records, newest window first.
        view: the view.
        likelihoods: where a likelihood is asked for.
        named: one survey was named, so that it is an error if it cannot have the view.
        whole: all records are printed; otherwise only the newest settled one is.
        counted_ms: the time before which all reports are counted.
    """
    offered = [view in views_offered(survey) for survey, _ in found]
    if named and not any(offered):
        survey = found[0][0]
        why = (
            "its answers are no one-hot vectors, whose counts alone say less than whole reports"
            if view == "likelihood"
            else "a device may have none or several of its values, so their shares are no distribution"
        )
        raise click.ClickException(f"{survey.id} ({survey.mechanism.name}) has no view {view}: {why}")
    if view != "likelihood":
        return found
    return [
        (survey, _with_likelihoods(survey, records, likelihoods, counted_ms, whole=whole) if can else records)
        for (survey, records), can in zip(found, offered, strict=True)
    ]


def _with_likelihoods(
    survey: Survey,
    records: Sequence[EstimateRecord],
    likelihoods: Likelihoods,
    counted_ms: int | None,
    *,
    whole: bool,
) -> list[EstimateRecord]:
    now_ms, done = system_clock(), []
    shown = [one for one in records if one.withheld is None]
    if not whole:
        shown = [one for one in shown if window_state(survey, one, now_ms, counted_ms) == "settled"][:1]
    for record in records:
        view = None
        if record in shown:
            view = wait_for(survey, record, likelihoods, tell=lambda text: click.echo(text, err=True)).view
        done.append(record if view is None else msgspec.structs.replace(record, views=[*record.views, view]))
    return done


def wait_for(
    survey: Survey,
    record: EstimateRecord,
    likelihoods: Likelihoods,
    *,
    tell: Callable[[str], None],
    clock: Clock = system_clock,
) -> Likelihood:
    """Ask for the likelihood of a window and wait until a worker has computed it, telling how far it is."""
    now = likelihoods.ask(survey, record.window_start_ms, record.users, clock())
    moved_ms, before = clock(), now
    while now.state in ("asked", "computing"):
        if clock() - moved_ms > ABANDONED_MS:
            raise click.ClickException(
                f"no worker has computed the likelihood of {survey.id}, window {record.window_start_ms}, for "
                f"{ABANDONED_MS // 1_000} s; is one running, and does it know this survey?"
            )
        time.sleep(POLL_SECONDS)
        now = likelihoods.read(survey, record.window_start_ms) or now
        if now != before:
            moved_ms, before = clock(), now
            if now.state == "computing":
                tell(f"{survey.id}, window {record.window_start_ms}: likelihood {now.progress:.0%}")
    if now.state == "failed":
        raise click.ClickException(f"{survey.id}, window {record.window_start_ms}: no likelihood: {now.reason}")
    return now
