"""What an audit checks without chance, on frames and ledgers of real devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from estimators.auditing.views import declared_law
from producers.survey.survey import Survey
from streams.audit.frames import Owner, Problems, chains, read_frames, recorded_devices, through_broker
from streams.audit.plan import PROCESSES, SLOTS, FleetPlan, pressed
from streams.audit.report import as_json, chart, closing_line
from streams.audit.run import Audit, Options, folder, judge, plan_of, record
from tests.support.surveys import survey

OPTIONS = Options(users=96, crashes=2)


@pytest.fixture(scope="module")
def asked() -> Survey:
    return survey()


@pytest.fixture(scope="module")
def plan(asked: Survey) -> Iterator[FleetPlan]:
    with folder() as place:
        made = plan_of(asked, declared_law(asked.mechanism), OPTIONS, place)
        record([made], lambda _: None)
        yield made


def test_all_that_devices_sent_is_attacked(asked: Survey, plan: FleetPlan) -> None:
    problems = Problems()
    recorded = chains(plan, recorded_devices(plan, problems), problems)
    assert problems.sentences() == []
    assert len(recorded) == 96 == PROCESSES * SLOTS * plan.moments
    assert recorded.rungs == asked.mechanism.rungs
    pairs = recorded.slots // 2
    for window in range(plan.moments):
        for pair in range(SLOTS // 2):
            held = recorded.truths[(recorded.windows == window) & (pairs == pair)]
            assert len(held) == 2 * PROCESSES
            assert len(set(held.tolist())) == 1, "devices of a pair hold the same values"


def test_an_audit_is_a_table_a_picture_and_a_line(asked: Survey, plan: FleetPlan) -> None:
    done = judge(asked, declared_law(asked.mechanism), plan, OPTIONS)
    assert done.contradictions() == []
    assert closing_line(done) == "chains 96, reports 288, crashes 2, contradictions 0"
    found = as_json(done)
    assert [row["levels"] for row in found["levels"]] == [[0], [1], [2], [0, 1], [0, 1, 2]]
    assert [row["charged"] for row in found["levels"]] == [row["declared"] for row in found["levels"]]
    assert [attack["attack"] for attack in found["attacks"]] == ["LO", "MLE", "HF", "WHF", "Bayes", "product"]
    assert {check["family"] for check in found["checks"]} == {"levels", "sharpening", "processes", "linkage"}
    assert all(check["passed"] for check in found["checks"])
    assert [mark.label for mark in chart(done).marks][:2] == ["declared", "exact, from the integers"]  # type: ignore[union-attr]


def test_the_schedule_is_pressed_and_the_id_stays(asked: Survey) -> None:
    copy = pressed(asked)
    assert copy.id == asked.id
    assert copy.opens_ms == (0, 1, 2)
    assert copy.jitter_ms == 0


@pytest.mark.parametrize(("size_ms", "step_ms"), [(60_000, 60_000), (60_000, 20_000), (50_000, 20_000)])
def test_every_window_belongs_to_the_value_that_was_taken_in_it(asked: Survey, size_ms: int, step_ms: int) -> None:
    windows = replace(asked.windows, size_ms=size_ms, step_ms=step_ms)
    law = declared_law(asked.mechanism)
    made = FleetPlan.of(
        replace(asked, windows=windows), law, Path("unused"), users=1_000, crashes=0, seed=1, defect=None
    )
    for number in range(5):
        for start in windows.starts(made.moment_ms(number)):
            assert made.number_of(start) == number
        last = max(windows.end(start) for start in windows.starts(made.moment_ms(number)))
        assert last + asked.mechanism.rungs <= made.moment_ms(number + 1)
    assert len(set(made.windows_ms())) == len(made.windows_ms())


def test_what_no_chance_explains_is_named(asked: Survey, plan: FleetPlan) -> None:
    devices = recorded_devices(plan, Problems())
    owner = Owner(0, 0)
    token, reports = next(iter(devices[owner].items()))
    other = bytes([reports[0].answer[0] ^ 1])

    def said(changed: dict[bytes, list[object]]) -> str:
        problems = Problems()
        chains(plan, {**devices, owner: {**devices[owner], **changed}}, problems)  # type: ignore[dict-item]
        return " ".join(problems.sentences())

    assert "two answers for one level" in said({token: [*reports, reports[0]._replace(answer=other)]})
    assert "one token links several windows" in said({token: [*reports, reports[0]._replace(window_ms=0)]})
    assert "a level never arrived" in said({token: list(reports[:-1])})
    assert "two devices share a token" in said({next(iter(devices[Owner(1, 0)])): list(reports)})
    problems = Problems()
    read_frames(asked, b"not a frame" * 8, problems)
    assert "a frame cannot be read" in problems.sentences()[0]


def test_a_topic_that_lost_or_gained_something_is_named(plan: FleetPlan) -> None:
    devices = recorded_devices(plan, Problems())
    raw = [plan.wire(process, slot).read_bytes() for process in range(PROCESSES) for slot in range(SLOTS)]
    problems = Problems()
    assert through_broker(plan, devices, raw, problems) == devices
    assert problems.sentences() == []
    through_broker(plan, devices, raw[1:], problems)
    assert "the topic differs from what devices sent: 6 tokens of one device" in problems.sentences()
    problems = Problems()
    through_broker(plan, {owner: seen for owner, seen in devices.items() if owner != (0, 0)}, raw, problems)
    assert "the topic holds a report that no device sent" in problems.sentences()[0]


def test_ledgers_and_crashes_are_read(asked: Survey, plan: FleetPlan) -> None:
    law = declared_law(asked.mechanism)
    greedy = replace(law, families=law.families, levels=law.levels)
    # As if the integers cost twice as much: everything was paid for too little.
    object.__setattr__(greedy, "losses", tuple(2 * loss for loss in law.losses))
    done: Audit = judge(asked, greedy, plan, OPTIONS)
    sentences = " ".join(done.contradictions())
    assert "a crash released more than was paid" in sentences
    assert "the ledger charges 2, the integers give 4" in sentences
    assert np.isfinite([row.exact for row in done.examination.rows]).all()
