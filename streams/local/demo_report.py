"""The result of a demo run: every settled window with its truth, and what was lost or counted twice.

`lost` are tokens whose stored rung, read back from the log, is below the highest rung that the broker acknowledged.
`backlog` are such tokens in shards whose stored offset is below the end of their partition: their reports wait in Kafka
and are not lost. `double` are users in the tallies beyond the distinct tokens that the broker acknowledged. None is a
difference of counters: counters can be wrong in the same way as what they count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from producers.survey.survey import Survey
from producers.wire.layout import TOKEN_BYTES, TOKEN_NAME_BYTES
from producers.wire.shards import shards_of
from streams.local.token_places import token_places
from streams.store.contract import Store
from streams.store.counters import Counters
from streams.store.shape import Key, Shape
from streams.windows.record import EstimateRecord, decode_estimate
from streams.windows.settled import released_ms
from streams.worker.table import Table, unpack


@dataclass
class WindowJournal:
    """What the broker acknowledged for one survey and window: tokens, their highest rungs, and the truth."""

    survey_id: str
    window_ms: int
    tokens: list[NDArray[np.uint8]] = field(default_factory=list)
    acked: list[NDArray[np.int8]] = field(default_factory=list)
    numerators: NDArray[np.float64] | float = 0.0
    denominators: NDArray[np.float64] | float = 0.0
    settled: bool = True

    def truth(self) -> list[float | None]:
        """Return the true quantities over the delivered devices."""
        pairs = zip(np.atleast_1d(self.numerators), np.atleast_1d(self.denominators), strict=True)
        return [float(n / d) if d > 0 else None for n, d in pairs]

    def users_per_rung(self, rungs: int) -> list[int]:
        """Return how many tokens the broker has on each rung, counting the highest rung of each."""
        acked = np.concatenate([np.zeros(0, dtype=np.int8), *self.acked])
        return [int(users) for users in np.bincount(acked[acked >= 0], minlength=rungs)[:rungs]]

    def withdrawn(self, rungs: int) -> int:
        """Return how many tokens of a mechanism with so many rungs the broker has a withdrawal of."""
        return sum(int((acked == rungs).sum()) for acked in self.acked)


def read_journals(folder: Path) -> list[WindowJournal]:
    """Read what the fleets noted, one entry per survey and window, oldest first."""
    windows: dict[tuple[str, int], WindowJournal] = {}
    for path in sorted(folder.rglob("*.npz")):
        if path.name.endswith(".draft.npz"):
            continue
        with np.load(path) as entry:
            place = str(entry["survey"]), int(entry["window_ms"])
            window = windows.setdefault(place, WindowJournal(*place))
            window.tokens.append(entry["tokens"])
            window.acked.append(entry["acked"])
            window.numerators = window.numerators + entry["numerators"]
            window.denominators = window.denominators + entry["denominators"]
            window.settled &= bool(entry["settled"])
    return [windows[place] for place in sorted(windows)]


@dataclass(frozen=True)
class Audit:
    """How the store compares with what the broker acknowledged."""

    backlog: int
    lost: int
    double: int

    def __add__(self, other: Audit) -> Audit:
        return Audit(self.backlog + other.backlog, self.lost + other.lost, self.double + other.double)


def audit_window(store: Store, survey: Survey, journal: WindowJournal, behind: Collection[int] = frozenset()) -> Audit:
    """Compare the stored log and tally of a window with the acknowledged reports.

    Args:
        store: where the logs and the tally are.
        survey: the survey.
        journal: what the broker acknowledged.
        behind: shards with unapplied reports in Kafka, read before this call: one that has caught up since then may
            be listed, one that is behind must be.
    """
    shape = Shape.of(survey)
    keys = [Key(survey.id, journal.window_ms, shard) for shard in range(survey.shards)]
    loaded = store.log.load(keys, shape, Table.of_log, whole=True)
    logs = [(key.shard, unpack(log.entries, shape)) for key, log in loaded.items()]
    stored = [token_places(log.tokens, np.full(len(log.tokens), shard)) for shard, log in logs]
    rungs = [log.rungs for _, log in logs]
    tokens, acked = np.concatenate(journal.tokens), np.concatenate(journal.acked)
    tokens, acked = tokens[acked >= 0], acked[acked >= 0]
    acknowledged = token_places(tokens[:, :TOKEN_NAME_BYTES], shards_of(tokens, survey.shards))
    places, index = np.unique(np.concatenate([acknowledged, *stored]), return_inverse=True)
    wanted, found = np.full(len(places), -1), np.full(len(places), -1)
    np.maximum.at(wanted, index[: len(acked)], acked)
    np.maximum.at(found, index[len(acked) :], np.concatenate(rungs) if rungs else np.zeros(0, dtype=np.int64))
    users = store.estimates.tally(survey.id, journal.window_ms, survey.shards, shape).total_users
    missing = places[found < wanted].view(np.uint8).reshape(-1, TOKEN_BYTES)
    shards = missing[:, TOKEN_NAME_BYTES] | missing[:, TOKEN_NAME_BYTES + 1].astype(np.int64) << 8
    backlog = int(np.isin(shards, list(behind)).sum())
    return Audit(backlog, len(missing) - backlog, max(users - int((wanted >= 0).sum()), 0))


def window_entry(record: EstimateRecord, truth: Sequence[float | None]) -> dict[str, Any]:
    """Return one window as the demo's JSON shows it."""
    estimates = []
    for row, true in zip(record.values, truth, strict=True):
        known = row.lower is not None and row.upper is not None and true is not None
        estimates.append(
            {
                "value": row.value,
                "estimate": row.estimate,
                "variance": row.variance,
                "lower": row.lower,
                "upper": row.upper,
                "truth": true,
                "inside": bool(known and row.lower <= true <= row.upper),  # type: ignore[operator]  # known says so
            }
        )
    return {
        "start_ms": record.window_start_ms,
        "users": record.users,
        "rungs": list(record.users_per_rung),
        "withdrawn": record.withdrawn,
        "estimates": estimates,
    }


def survey_entry(
    store: Store, survey: Survey, journals: Sequence[WindowJournal], behind: Collection[int], now_ms: int
) -> tuple[dict[str, Any], Audit]:
    """Return a survey as the demo's JSON shows it (settled windows only), and the audit of all its windows.

    Settled is what `streams.windows.settled` says, but for the time of arrival: the demo knows what was acknowledged,
    and compares the users of every rung instead of waiting.
    """
    windows, total = [], Audit(0, 0, 0)
    for journal in journals:
        total += audit_window(store, survey, journal, behind)
        payload = store.estimates.read(survey.id, journal.window_ms)
        if journal.settled and payload is not None and released_ms(survey, journal.window_ms) <= now_ms:
            record = decode_estimate(payload)
            rungs = survey.mechanism.rungs
            same = record.users_per_rung == journal.users_per_rung(rungs)
            if record.withheld is None and same and (record.withdrawn or 0) == journal.withdrawn(rungs):
                windows.append(window_entry(record, journal.truth()))
    return {"id": survey.id, "mechanism": survey.mechanism.name, "windows": windows}, total


def tier_entries(surveys: Sequence[Survey], entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what each tier of the surveys was told, from their entries in `surveys` of the demo's JSON."""
    found = []
    for survey, entry in zip(surveys, entries, strict=True):
        top = [tier for tier in survey.tiers if survey.tier is None and tier.rung == survey.highest_rung]
        tier = survey.tier or next(iter(top), None)
        if tier is None:
            continue
        rows = [row for window in entry["windows"] for row in window["estimates"]]
        widths = [row["upper"] - row["lower"] for row in rows if row["lower"] is not None and row["upper"] is not None]
        found.append(
            {
                "tier": tier.name,
                "survey": survey.id,
                "rung": tier.rung,
                "epsilon": survey.mechanism.epsilons[tier.rung],
                "windows": len(entry["windows"]),
                "truths": len(rows),
                "inside": sum(row["inside"] for row in rows),
                "band": sum(widths) / len(widths) if widths else None,
            }
        )
    return sorted(found, key=lambda entry: entry["rung"])


def report_counts(store: Store, surveys: Iterable[Survey], sent: int) -> dict[str, int]:
    """Return what became of the reports, over all surveys."""
    counters = sum((store.log.counters(survey.id) for survey in surveys), Counters())
    return {"sent": sent} | counters.as_data() | {"rejected": counters.rejected_total}
