"""What tiers are told: exactly the answers up to their rung, in report logs of their own."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations

import pytest

from estimators.channels.chain import Chain
from producers.survey.survey import Survey
from producers.survey.tiers import Tier
from streams.store.shape import Key, Shape
from streams.worker.applier import Applier
from streams.worker.fold import check
from streams.worker.table import Table, unpack
from streams.worker.tiers import add_tiers
from tests.support.checks import fractions_of, joint_law, max_ratio
from tests.support.clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.reports import Report, SurveyDict, batch_of, frame_of, token_in, withdrawal
from tests.support.surveys import WEEK, survey

TIERED = replace(survey(), tiers=(Tier("public", 0), Tier("partners", 1), Tier("owner", 2)))
AUDIENCES = {"owner": TIERED} | {tier.tier.name: tier for tier in TIERED.tier_surveys if tier.tier is not None}
LATER_MS = WEEK + 120_000
"""All rungs are open."""


class Counted:
    """One applier on a store in memory; each call of `take` is a fetch batch."""

    def __init__(self, asked: Survey) -> None:
        self.asked, self.clock = asked, ManualClock(LATER_MS)
        self.store = MemoryStore(self.clock)
        self._applier = Applier(self.store, SurveyDict(asked), lambda _: None, partitions=1, clock=self.clock)
        self._applier.assigned("thaw.reports.v1", {0: 0})
        self._at = 0

    def take(self, *reports: Report) -> int:
        frames = b"".join(frame_of(self.asked, [report], window_ms=WEEK) for report in reports)
        applied = self._applier.process([batch_of(frames, start=self._at, timestamp_ms=LATER_MS)])
        self._at += 1
        return applied.reports

    def told(self, audience: Survey) -> list[tuple[int, bytes]]:
        """Return rung and answer of every entry in the log of an audience."""
        keys = [Key(audience.id, WEEK, shard) for shard in range(audience.shards)]
        found = []
        for loaded in self.store.log.load(keys, Shape.of(audience), Table.of_log, whole=True).values():
            entries = unpack(loaded.entries, Shape.of(audience))
            found += [(int(r), a.tobytes()) for r, a in zip(entries.rungs, entries.answers, strict=True)]
        return found

    def tally_users(self, audience: Survey) -> list[int]:
        tally = self.store.estimates.tally(audience.id, WEEK, audience.shards, Shape.of(audience))
        return [int(users) for users in tally.users.sum(axis=1)]


def test_every_tier_counts_the_sharpest_answer_that_it_may_know() -> None:
    counted = Counted(TIERED)
    token, other = token_in(3, 1, TIERED), token_in(5, 2, TIERED)
    reports = [Report(token, rung, bytes([rung])) for rung in (2, 0, 1, 0)] + [Report(other, 1, b"\2")]
    assert counted.take(*reports) == 5, "a report that three audiences know is one report"
    assert counted.tally_users(TIERED) == [0, 1, 1]
    assert counted.tally_users(AUDIENCES["partners"]) == [0, 2, 0]
    assert counted.tally_users(AUDIENCES["public"]) == [1, 0, 0], "one of them released no answer that it may know"
    assert {window for window, *_ in counted.store.queue.entries()} == {one.id for one in AUDIENCES.values()}


def test_a_withdrawal_takes_the_answers_back_from_every_tier() -> None:
    asked = replace(TIERED, withdrawable=True)
    counted = Counted(asked)
    token = token_in(3, 1, asked, WEEK)
    counted.take(Report(token, 0, b"\1"), Report(token, 2, b"\2"))
    counted.take(withdrawal(asked, token))
    for audience in (asked, *asked.tier_surveys):
        assert counted.tally_users(audience) == [0, 0, 0, 1]


def test_a_survey_without_tiers_is_counted_once() -> None:
    asked = survey()
    frame = frame_of(asked, [Report(token_in(3, 1, asked), 0, b"\1")], window_ms=WEEK)
    checked = check([batch_of(frame, timestamp_ms=LATER_MS)], SurveyDict(asked), 1, LATER_MS)
    before = dict(checked.reports)
    add_tiers(checked)
    assert checked.reports == before


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_coalition_of_tiers_learns_what_its_highest_does(order: tuple[int, ...]) -> None:
    """All that the members are ever told, after every report, as the store holds it: enumerated over rationals."""
    chain = TIERED.mechanism.chain  # type: ignore[attr-defined]  # grr has one
    assert isinstance(chain, Chain)
    top, kernels = fractions_of(chain.top), [fractions_of(kernel) for kernel in chain.kernels]
    views: dict[str, dict[tuple[int, ...], tuple[object, ...]]] = {name: {} for name in AUDIENCES}
    laws: dict[tuple[int, ...], list[Fraction]] = {}
    for answers, law in joint_law(top, kernels):
        counted = Counted(TIERED)
        seen: dict[str, list[object]] = {name: [] for name in AUDIENCES}
        for rung in order:
            counted.take(Report(token_in(3, 1, TIERED), rung, bytes([answers[rung]])))
            for name, audience in AUDIENCES.items():
                seen[name].append(counted.told(audience))
        laws[answers] = law
        for name, told in seen.items():
            views[name][answers] = tuple(map(repr, told))
    ceilings = {tier.name: tier.rung for tier in TIERED.tiers}
    for size in (1, 2, 3):
        for coalition in combinations(AUDIENCES, size):
            joint: dict[object, list[Fraction]] = defaultdict(lambda: [Fraction(0)] * len(top))
            for answers, law in laws.items():
                view = tuple(views[name][answers] for name in coalition)
                joint[view] = [a + b for a, b in zip(joint[view], law, strict=True)]
            rows = tuple(zip(*joint.values(), strict=True))
            highest = max(ceilings[name] for name in coalition)
            assert max_ratio(rows) == max_ratio(fractions_of(chain.channels[highest])), coalition
