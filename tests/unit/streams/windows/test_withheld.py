"""A window of too few devices, or one that is not settled where only totals are published, has no numbers anywhere."""

import io

import msgspec
import numpy as np
import pytest
from rich.console import Console

from estimators.tally import Tally
from producers.survey.survey import Survey, SurveyError, parse_survey
from streams.cli.terminal.estimates import survey_view
from streams.exporter.windows import window_of
from streams.windows.proof import survey_hash
from streams.windows.record import EstimateRecord, decode_estimate
from streams.windows.settled import settles_ms
from streams.windows.window_record import estimate_record
from tests.support.clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.surveys import TEXT, WEEK, survey
from tests.unit.streams.windows.test_recompute import Known, Outbox, fill, recomputing

CROWD = survey(lifetime="lifetime = 100\n[publish]\nleast_devices = 500")
TOTALS = survey(lifetime="lifetime = 100\n[publish]\nleast_devices = 500\ntotals_only = true")
ENDED_MS = WEEK + 61_000


def stored(store: MemoryStore, known: Survey) -> EstimateRecord:
    return decode_estimate(store.estimates.read(known.id, WEEK) or b"")


def no_numbers(record: EstimateRecord) -> bool:
    """Tell whether no number of any value, and nothing that follows from one, is in a record."""
    values = [number for row in record.values for number in msgspec.structs.astuple(row)[1:]]
    return values == [None] * len(values) and not record.alerts and record.homogeneity_p is None


def test_a_window_says_how_many_devices_it_waits_for_until_they_are_there() -> None:
    clock = ManualClock(WEEK + 100_000)
    store, outbox = MemoryStore(clock), Outbox()
    recomputer = recomputing(store, Known(CROWD), outbox, clock)
    fill(store, CROWD, clock, 499, WEEK)
    assert recomputer.tick() == 1
    record = stored(store, CROWD)
    assert no_numbers(record)
    assert (record.users, record.notes) == (499, ["waiting for 500 devices: 499 so far; no estimate is published"])
    assert record.encode() == outbox.messages[-1].value
    assert store.estimates.history(CROWD.id, WEEK) == []
    assert store.queue.entries() == [], "it is looked at again when a report comes"
    served = window_of(record, None, "settled", 0)
    assert served.withheld is not None
    assert (served.withheld.reason, served.withheld.devices, served.withheld.least_devices) == ("crowd", 499, 500)
    fill(store, CROWD, clock, 1, WEEK, seed=2)
    assert recomputer.tick() == 1
    record = stored(store, CROWD)
    assert record.withheld is None
    assert None not in [row.estimate for row in record.values]
    assert len(store.estimates.history(CROWD.id, WEEK)) == 1


def test_of_a_survey_of_totals_a_window_has_one_estimate_when_it_is_settled_and_never_another() -> None:
    clock = ManualClock(ENDED_MS)
    store, outbox = MemoryStore(clock), Outbox()
    recomputer = recomputing(store, Known(TOTALS), outbox, clock)
    clock.advance(settles_ms(TOTALS, WEEK) - clock() - 1)
    fill(store, TOTALS, clock, 900, WEEK)
    assert recomputer.tick() == 1
    assert no_numbers(stored(store, TOTALS)), "large enough, but not settled"
    assert stored(store, TOTALS).withheld is not None
    assert len(outbox.messages) == 1
    assert recomputer.tick() == 1, "it stays queued: no report may come when it settles"
    assert len(outbox.messages) == 1, "nothing new is to be said"
    clock.advance(1)
    assert recomputer.tick() == 1
    total = stored(store, TOTALS)
    assert total.withheld is None
    assert total.users == 900
    assert len(outbox.messages) == 2
    assert store.queue.entries() == []
    clock.advance(60_000)
    fill(store, TOTALS, clock, 50, WEEK, seed=2)
    assert recomputer.tick() == 1
    assert stored(store, TOTALS) == total, "a second total would reveal the 50 late devices by themselves"
    assert {message.value for message in outbox.messages[2:]} <= {total.encode()}
    assert len(store.estimates.history(TOTALS.id, WEEK)) == 1


def test_a_clock_that_is_a_day_ahead_publishes_no_total_before_its_window_is_settled() -> None:
    there = ManualClock(settles_ms(TOTALS, WEEK) - 1)
    here = ManualClock(there() + 86_400_000)
    store, outbox = MemoryStore(there), Outbox()
    recomputer = recomputing(store, Known(TOTALS), outbox, here)
    fill(store, TOTALS, there, 900, WEEK)
    assert recomputer.tick() == 1
    assert stored(store, TOTALS).withheld is not None
    for clock in (here, there):
        clock.advance(1)
    fill(store, TOTALS, there, 100, WEEK, seed=2)
    assert recomputer.tick() == 1
    assert stored(store, TOTALS).users == 1_000


def test_a_total_that_was_stored_but_not_published_is_published_as_it_was_stored() -> None:
    clock = ManualClock(settles_ms(TOTALS, WEEK))
    store, outbox = MemoryStore(clock), Outbox()
    fill(store, TOTALS, clock, 900, WEEK)
    recomputer = recomputing(store, Known(TOTALS), outbox, clock)
    outbox.away = True
    with pytest.raises(Exception, match="away"):
        recomputer.tick()
    total = stored(store, TOTALS)
    fill(store, TOTALS, clock, 50, WEEK, seed=2)
    outbox.away = False
    clock.advance(20_000)
    assert recomputer.tick() == 1
    assert [message.value for message in outbox.messages] == [total.encode()]


def test_a_settled_window_of_totals_waits_for_its_crowd() -> None:
    clock = ManualClock(settles_ms(TOTALS, WEEK))
    store, outbox = MemoryStore(clock), Outbox()
    recomputer = recomputing(store, Known(TOTALS), outbox, clock)
    fill(store, TOTALS, clock, 300, WEEK)
    recomputer.tick()
    record = stored(store, TOTALS)
    assert record.withheld is not None
    assert record.withheld.reason == "crowd"
    assert store.queue.entries() == []
    fill(store, TOTALS, clock, 200, WEEK, seed=2)
    recomputer.tick()
    assert stored(store, TOTALS).users == 500
    assert stored(store, TOTALS).withheld is None


CROWD_TEXT = (
    TEXT.replace("[0.5, 1.0, 2.0]", "[0.7]")
    .replace('["0s", "10s", "30s"]', '["0s"]')
    .replace("shards = 16", 'shards = 16\naccept_risk = "Single copies are never kept anywhere."')
    .replace('name = "grr"', 'name = "k_randomization"\nleast_records = 100\ncopies = 4')
)


def test_devices_of_k_randomization_are_counted_not_their_copies() -> None:
    known = parse_survey(CROWD_TEXT)
    assert known.publication.least_devices == 100, "what the mechanism was planned for is the default"

    def record(copies: int) -> EstimateRecord:
        return estimate_record(known, WEEK, Tally(np.full((1, 1, 3), copies // 3), np.array([[copies]])))

    waiting = record(399).withheld
    assert waiting is not None
    assert waiting.devices == 99
    assert record(400).withheld is None


def test_fewer_devices_than_the_mechanism_was_planned_for_are_refused() -> None:
    with pytest.raises(SurveyError, match=r"publish\.least_devices.*at least 100 devices.*got 99"):
        parse_survey(CROWD_TEXT + "[publish]\nleast_devices = 99\n")
    with pytest.raises(SurveyError, match=r"publish\.least_devices: must be 0 to"):
        parse_survey(TEXT + "[publish]\nleast_devices = -1\n")
    assert parse_survey(CROWD_TEXT + "[publish]\nleast_devices = 101\n").publication.least_devices == 101


def test_the_terminal_says_what_a_window_waits_for() -> None:
    record = estimate_record(CROWD, WEEK, Tally(np.full((3, 1, 3), 10), np.full((3, 1), 30)))
    shown = Console(width=120, record=True, file=io.StringIO())
    shown.print(survey_view(CROWD, [msgspec.structs.replace(record, read_ms=2**42)], 2**42))
    text = shown.export_text()
    assert "waiting for 500 devices: 90 so far" in text
    assert "red" not in text


def test_publication_is_part_of_what_outsiders_check_and_not_of_the_id() -> None:
    plain = survey()
    assert plain.id == CROWD.id == TOTALS.id
    assert len({survey_hash(plain), survey_hash(CROWD), survey_hash(TOTALS)}) == 3
