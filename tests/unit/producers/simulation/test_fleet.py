"""Simulated fleets: replayable to the byte, honest about their truth, and blind to values when they choose rungs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from estimators.mechanisms.grr import GRR
from estimators.mechanisms.k_randomization import KRandomization
from estimators.simulation.simulator import simulator_of
from producers.simulation.fleet import BlockWindow, Plan
from producers.simulation.run import FleetRun, Progress
from producers.simulation.scenarios import SCENARIOS, falling_shares, pick, scenario_named
from producers.survey.survey import Survey, load_survey
from producers.survey.windows import Windows
from producers.wire import frames as wire
from producers.wire.shards import shards_of
from tests.support.continuing import LONGER, LONGEST, SHORT
from tests.support.paths import ROOT

WINDOW_MS = 10_000


def survey() -> Survey:
    return Survey(
        name="colour",
        question="Which colour?",
        mechanism=GRR(("red", "green", "blue"), (0.5, 1.0, 2.0)),
        opens_ms=(0, 1_000, 2_000),
        jitter_ms=300,
        windows=Windows(WINDOW_MS, WINDOW_MS),
        retention_ms=60_000,
        skew_ms=1_000,
        lifetime_epsilon=100.0,
        shards=16,
        method="stratified",
        alpha=0.05,
        population="fleet",
        accept_risk="",
    )


def plan(scenario: str = "city", devices: int = 2_000, seed: int = 7) -> Plan:
    return Plan(survey(), devices, scenario_named(scenario), seed, falling_shares(3), 0)


@dataclass
class Taken:
    """A pending message of the in-memory publisher: the broker has it at once."""

    is_done: bool = True

    def get(self, timeout: float | None = None) -> object:
        return timeout


@dataclass
class Shelf:
    """A publisher that keeps what it is sent."""

    partitions: int = 4
    messages: list[tuple[int, bytes]] = field(default_factory=list)

    def send(self, partition: int, message: bytes) -> Taken:
        self.messages.append((partition, message))
        return Taken()


def run(shelf: Shelf, fleet: Plan, *, journal: Path | None = None, stop_after: int | None = None) -> Progress:
    def stopping() -> bool:
        return stop_after is not None and len(shelf.messages) >= stop_after

    return FleetRun(
        [fleet], shelf, now_ms=lambda: 10**9, live=False, windows=2, journal=journal, stopping=stopping
    ).run()


def reports_in(shelf: Shelf) -> list[tuple[int, bytes, int, bytes]]:
    """Every report as (window, token, rung, answer)."""
    layout = survey().layout
    rows = []
    for partition, message in shelf.messages:
        for header in wire.headers(message):
            assert isinstance(header, wire.Header)
            assert header.shard % shelf.partitions == partition
            columns = wire.columns(message, header, layout)
            assert (shards_of(columns.tokens, 16) == header.shard).all()
            rows += [
                (header.window_ms, columns.tokens[i].tobytes(), int(columns.rungs[i]), columns.answers[i].tobytes())
                for i in range(len(columns))
            ]
    return rows


def test_a_block_is_a_function_of_seed_survey_window_and_number() -> None:
    first, second = BlockWindow(plan(), WINDOW_MS, 0), BlockWindow(plan(), WINDOW_MS, 0)
    assert np.array_equal(first.tokens, second.tokens)
    assert np.array_equal(first.answers, second.answers)
    assert np.array_equal(first.due_ms, second.due_ms)
    other = BlockWindow(plan(seed=8), WINDOW_MS, 0)
    assert not np.array_equal(first.tokens[:100], other.tokens[:100])


def test_a_fleet_that_is_started_again_sends_the_same_bytes() -> None:
    whole, first, again = Shelf(), Shelf(), Shelf()
    run(whole, plan())
    run(first, plan(), stop_after=40)
    run(again, plan())
    assert again.messages == whole.messages
    assert first.messages == whole.messages[: len(first.messages)]


def test_a_fleet_with_a_journal_does_not_repeat_what_was_settled(tmp_path: Path) -> None:
    first, again = Shelf(), Shelf()
    run(first, plan(), journal=tmp_path)
    assert len(list(tmp_path.glob("*.settled.npz"))) == 2
    progress = run(again, plan(), journal=tmp_path)
    assert again.messages == []
    assert progress.reports == 0


def test_every_device_sends_each_rung_up_to_its_own_and_always_the_same_answer() -> None:
    shelf = Shelf()
    run(shelf, plan("city"))
    answers: dict[tuple[int, bytes], dict[int, set[bytes]]] = {}
    for window, token, rung, answer in reports_in(shelf):
        answers.setdefault((window, token), {}).setdefault(rung, set()).add(answer)
    assert len(answers) > 2_000
    for rungs in answers.values():
        assert sorted(rungs) == list(range(len(rungs)))
        assert all(len(distinct) == 1 for distinct in rungs.values())
    tops = {max(rungs) for rungs in answers.values()}
    assert tops == {0, 1, 2}


def test_later_rungs_leave_after_the_window_whatever_the_value() -> None:
    block = BlockWindow(plan("stoppers"), WINDOW_MS, 0)
    late = block.rung > 0
    assert (block.due_ms[late] >= 2 * WINDOW_MS + 1_000).all()
    assert (block.due_ms[~late] < 2 * WINDOW_MS + 300).all()


def test_every_rung_of_a_device_has_its_own_jitter() -> None:
    fleet = plan("steady")
    fleet = replace(fleet, survey=replace(fleet.survey, jitter_ms=5_000))
    calm = replace(fleet, survey=replace(fleet.survey, jitter_ms=0))
    delays = np.zeros((2, 3, 2_000), dtype=np.int64)
    for place, block in enumerate((BlockWindow(fleet, 0, 0), BlockWindow(calm, 0, 0))):
        delays[place, block.rung, block.row] = block.due_ms
    jitters = delays[0] - delays[1]
    assert jitters.min() >= 0
    assert jitters.max() < 5_000
    # Uniform on 5 s: the mean of 2,000 is 2.5 s with a deviation of 32 ms; correlations have one of .022.
    assert np.abs(jitters.mean(axis=1) - 2_500).max() < 200
    assert np.abs(np.corrcoef(jitters)[np.triu_indices(3, 1)]).max() < 0.13


def test_the_rung_at_which_a_user_stops_does_not_depend_on_the_window_or_the_value() -> None:
    steady = plan("stoppers")
    first, second = BlockWindow(steady, 0, 0), BlockWindow(steady, WINDOW_MS, 0)

    def tops(block: BlockWindow) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        top = np.zeros(block.size, dtype=np.int64)
        np.maximum.at(top, block.row, block.rung)
        return top

    assert np.array_equal(tops(first), tops(second))


def test_truth_counts_exactly_the_devices_that_were_delivered() -> None:
    block = BlockWindow(plan("steady"), 0, 0)
    assert block.truth()[1].tolist() == [0.0, 0.0, 0.0]
    block.acknowledge(block.take(WINDOW_MS // 2))
    numerators, denominators = block.truth()
    delivered = np.flatnonzero(block.acked >= 0)
    assert denominators.tolist() == [len(delivered)] * 3
    names = [block.values[i] for i in delivered.tolist()]
    assert numerators.tolist() == pytest.approx([names.count(label) for label in ("red", "green", "blue")])


def test_the_journal_knows_the_highest_rung_that_the_broker_has(tmp_path: Path) -> None:
    shelf = Shelf()
    run(shelf, plan("duplicates"), journal=tmp_path)
    highest: dict[tuple[int, bytes], int] = {}
    for window, token, rung, _ in reports_in(shelf):
        highest[window, token] = max(rung, highest.get((window, token), -1))
    noted = {}
    for path in tmp_path.glob("*.settled.npz"):
        with np.load(path) as entry:
            for token, rung in zip(entry["tokens"], entry["acked"], strict=True):
                noted[int(entry["window_ms"]), token.tobytes()] = int(rung)
    assert noted == highest


def test_copies_have_tokens_of_their_own_and_never_share_a_frame() -> None:
    copied = KRandomization(("x", "y"), 0.7, least_records=500, copies=3)
    fleet = replace(plan("steady", devices=600), survey=replace(survey(), mechanism=copied, opens_ms=(0,)))
    fleet = replace(fleet, base_shares=falling_shares(simulator_of(copied).kinds))
    block = BlockWindow(fleet, 0, 0)
    assert block.rows == 1_800
    owner = {token.tobytes(): row // 3 for row, token in enumerate(block.tokens)}
    assert len(owner) == 1_800
    shelf = Shelf()
    FleetRun([fleet], shelf, now_ms=lambda: 0, live=False, windows=1, tick_ms=60_000).run()
    seen = 0
    for _, message in shelf.messages:
        for header in wire.headers(message):
            assert isinstance(header, wire.Header)
            tokens = wire.columns(message, header, fleet.survey.layout).tokens
            owners = [owner[token.tobytes()] for token in tokens]
            assert len(set(owners)) == len(owners)
            seen += len(owners)
    assert seen == 1_800


def test_two_processes_send_what_one_would_have_sent() -> None:
    big = replace(plan("steady"), devices=70_000)
    one = BlockWindow(big, 0, 1)
    assert one.size == 70_000 - 65_536
    shelves = []
    for process in range(2):
        shelf = Shelf()
        FleetRun([big], shelf, now_ms=lambda: 0, live=False, windows=1, process=process, processes=2).run()
        shelves.append(reports_in(shelf))
    whole = Shelf()
    FleetRun([big], whole, now_ms=lambda: 0, live=False, windows=1).run()
    assert sorted(shelves[0] + shelves[1]) == sorted(reports_in(whole))


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_shares_of_every_scenario_are_shares(name: str) -> None:
    phases = np.linspace(0, 1, 5, endpoint=False)
    for window in range(10):
        shares = SCENARIOS[name].shares(falling_shares(4), window, 0, phases)
        assert shares.min() >= 0
        assert shares.sum(axis=-1) == pytest.approx(np.ones(shares.shape[:-1]))


def test_a_jump_gives_the_value_its_share_from_that_window_on() -> None:
    scenario = scenario_named("steady", jump=(3, 1, 0.9))
    phases = np.zeros(1)
    assert scenario.shares(falling_shares(3), 102, 100, phases)[1] == pytest.approx(falling_shares(3)[1])
    assert scenario.shares(falling_shares(3), 103, 100, phases)[1] == pytest.approx(0.9)


def test_pick_covers_the_ends_of_the_unit_interval() -> None:
    words = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert pick(np.array([0.25, 0.75]), words).tolist() == [0, 1]
    assert pick(np.array([[0.25, 0.75], [0.25, 0.75]]), words).tolist() == [0, 1]


def test_an_unknown_scenario_is_refused_with_the_choice() -> None:
    with pytest.raises(ValueError, match="scenario must be one of steady"):
        scenario_named("stormy")


def test_a_fleet_starts_no_window_after_the_end_of_its_survey() -> None:
    shelf, ended = Shelf(), plan()
    run(shelf, replace(ended, survey=replace(ended.survey, end_ms=WINDOW_MS)))
    assert {window_ms for window_ms, *_ in reports_in(shelf)} == {0}


def test_fleets_of_a_survey_and_of_one_that_continues_it_are_the_same_devices() -> None:
    plans = [Plan(asked, 500, scenario_named("steady"), 7, falling_shares(3), 0) for asked in (SHORT, LONGER, LONGEST)]
    short, longer, longest = (BlockWindow(one, 0, 0) for one in plans)
    assert (short.tokens == longest.tokens).all()
    assert (short.answers == longest.answers[:2]).all()
    assert (longer.answers == longest.answers[:3]).all()
    assert longest.answers.shape == (5, 500)
    change = (longest.answers[1:] != longest.answers[:-1]).mean(axis=1)
    assert (change < 0.6).all(), "sharper answers follow from those before"


def test_devices_hold_strings_that_are_no_candidates_and_the_truth_counts_them() -> None:
    asked = load_survey(ROOT / "deploy" / "surveys" / "rappor.toml")
    shares = falling_shares(simulator_of(asked.mechanism).kinds)
    block = BlockWindow(Plan(asked, 2_000, scenario_named("steady"), 3, shares, 0), 0, 0)
    outside = [value for value in block.values if value not in asked.mechanism.labels]
    # One in 16: none, or 300, once in 10^50 fleets.
    assert 0 < len(outside) < 300
    block.acknowledge(block.take(1 << 60))
    numerators, denominators = block.truth()
    assert 1 - (numerators / denominators).sum() == pytest.approx(len(outside) / len(block.values))
