"""Whatever happens: the worker, and DuckDB on an export of the topic, count the same, byte for byte."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from streams.repair import engines
from streams.repair.engines import DuckDB, Engine
from tests.simulation.bus import TOPIC, Reading
from tests.simulation.test_simulation import Story, WithdrawnStory
from tests.support.exports import STORIES, busy_bench, compared, export
from tests.support.reports import SURVEYS, SurveyDict

SEEDS = range(3)


class RecountedStory(Story):
    """At its end the topic is exported and counted by another engine."""

    engine: Callable[[], AbstractContextManager[Engine]] = DuckDB

    def finish(self) -> None:
        super().finish()
        with tempfile.TemporaryDirectory() as folder, self.engine() as engine:
            export(Path(folder), Reading(self.world.bus), SurveyDict(self.asked), clock=self.world.clock, topic=TOPIC)
            found = compared(Path(folder), self.world.store, [self.asked], engine, topic=TOPIC)
        wrong = [verdict for _, some in found for verdict in some if verdict.status != "equal"]
        assert not wrong, f"the engine counts otherwise: {wrong}"
        counted = {verdict.window_ms for _, some in found for verdict in some}
        assert counted >= set(self.world.store.estimates.window_starts(self.asked.id))


class RecountedWithdrawals(WithdrawnStory, RecountedStory):
    """The same with answers that can be withdrawn."""


@pytest.mark.parametrize("story", [RecountedStory, RecountedWithdrawals])
def test_duckdb_counts_every_story_like_the_worker(story: type[Story]) -> None:
    run_state_machine_as_test(story, settings=settings(max_examples=12, stateful_step_count=25))


@pytest.mark.parametrize("seed", SEEDS)
def test_duckdb_counts_answers_of_every_shape_like_the_worker(seed: int, tmp_path: Path) -> None:
    bench = busy_bench(seed)
    parts = export(tmp_path, bench.topic, SurveyDict(*SURVEYS))
    assert {"early", "expired", "future"} <= set(parts[-1].refused)
    with DuckDB() as engine:
        found = compared(tmp_path, bench.store, list(SURVEYS), engine)
    verdicts = [(survey.id, verdict) for survey, some in found for verdict in some]
    assert not [one for one in verdicts if one[1].status != "equal"]
    assert {(name, verdict.window_ms) for name, verdict in verdicts} == {(survey.id, at) for survey, at in STORIES}
    assert all(verdict.users > 20 for _, verdict in verdicts)


@pytest.mark.parametrize(
    "order",
    [
        ("answer", "rung", "tie", "group_number", "bits"),
        ("rung", "answer", "bits", "tie", "group_number"),
        ("tie", "rung", "group_number", "answer", "bits"),
    ],
    ids=["answer before rung", "answer before hash", "hash before rung"],
)
def test_another_order_of_reports_is_caught(
    order: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = busy_bench(0)
    export(tmp_path, bench.topic, SurveyDict(*SURVEYS))
    monkeypatch.setattr(engines, "PRECEDENCE", order)
    with DuckDB() as engine:
        found = compared(tmp_path, bench.store, list(SURVEYS), engine)
    different = {survey.id for survey, some in found for verdict in some if verdict.status == "different"}
    assert {survey.id for survey in SURVEYS if survey.mechanism.answer.kind == "index"} <= different
