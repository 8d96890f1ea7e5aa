"""The judges of `make chaos` notice what they are there for: losses, double counts, stale estimates, redrawn rungs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from producers.device.agent import Device
from producers.device.ledger import Ledger
from streams.windows.counted import ReportsTopic
from streams.windows.recompute import Recomputer
from streams.worker.applier import Applier
from streams.worker.table import Table
from tests.chaos import aof, ledgers, oracle
from tests.chaos.run import Outcome, plan
from tests.chaos.told import Told
from tests.chaos.transactions import Hanging, Place
from tests.cluster.gaps import CALM_CHANGES, GAP_SECONDS, Watch, told
from tests.support.clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.reports import TOPIC, SurveyDict, batch_of
from tests.support.surveys import WEEK, WINDOW_MS, survey
from tests.support.transports import MemoryTransport

ASKED = survey()
CLOCK = ManualClock(WEEK + WINDOW_MS + 40_000)


def messages_of_devices(folder: Path, devices: int = 12) -> list[bytes]:
    """Let devices answer and climb; every second report comes twice."""
    transport = MemoryTransport(partitions=1)
    for number in range(devices):
        with Device(folder / f"{number}.ledger", [ASKED], transport) as device:
            device.observe(ASKED, ASKED.mechanism.labels[number % 3], WEEK)
            device.tick(WEEK)
            if number % 2:
                device.tick(WEEK + WINDOW_MS + 30_000)
    sent = [message.value for message in transport.messages]
    return sent + sent[::2]


def counted(messages: list[bytes], *, estimated: bool = True) -> MemoryStore:
    store = MemoryStore(CLOCK)
    letters: list[Any] = []
    applier = Applier(store, SurveyDict(ASKED), letters.append, partitions=1, clock=CLOCK)
    applier.assigned(TOPIC, {0: 0})
    if messages:
        applier.process([batch_of(*messages, timestamp_ms=CLOCK())])
    if estimated:
        reports = ReportsTopic(TOPIC, 1)
        Recomputer(
            store, SurveyDict(ASKED), lambda _: None, "estimates", reports, fold=Table.of_log, clock=CLOCK
        ).tick()
    assert not letters
    return store


def judged(store: MemoryStore, messages: list[bytes], journals: Path) -> oracle.Verdict:
    windows, seen = oracle.fold(messages, [ASKED])
    assert seen == len(messages)
    return oracle.judge(store, [ASKED], windows, journals)


def write_journal(folder: Path, token: bytes, rung: int) -> None:
    np.savez(
        folder / "noted.settled.npz",
        survey=np.array(ASKED.id),
        window_ms=np.array(WEEK),
        tokens=np.frombuffer(token, np.uint8).reshape(1, 16),
        acked=np.array([rung], np.int8),
        numerators=np.zeros(3),
        denominators=np.zeros(3),
        settled=np.array(True),
    )


def test_all_is_well_when_all_is_well(tmp_path: Path) -> None:
    messages = messages_of_devices(tmp_path)
    windows, _ = oracle.fold(messages, [ASKED])
    token, (rung, _) = next(iter(windows[ASKED.id, WEEK].items()))
    write_journal(tmp_path, token, rung)
    verdict = judged(counted(messages), messages, tmp_path)
    assert (verdict.windows, verdict.tokens, verdict.lost, verdict.double) == (1, 12, 0, 0)
    assert not verdict.unequal
    assert not verdict.stale


def test_a_report_that_was_not_counted_is_lost(tmp_path: Path) -> None:
    messages = messages_of_devices(tmp_path)
    sharpest = messages[17]
    verdict = judged(counted([message for message in messages if message != sharpest]), messages, tmp_path)
    assert verdict.lost == 1
    assert len(verdict.unequal) == 1


def test_a_user_who_is_counted_twice_is_double(tmp_path: Path) -> None:
    messages = messages_of_devices(tmp_path)
    # One more user than the broker knows: counted under a second token.
    (tmp_path / "again").mkdir()
    store = counted([*messages, *messages_of_devices(tmp_path / "again", devices=1)])
    verdict = judged(store, messages, tmp_path)
    assert (verdict.lost, verdict.double) == (0, 1)
    assert len(verdict.unequal) == 1


def test_an_estimate_of_fewer_users_is_stale(tmp_path: Path) -> None:
    messages = messages_of_devices(tmp_path)
    assert len(judged(counted(messages, estimated=False), messages, tmp_path).stale) == 1


@pytest.mark.parametrize(("token", "rung"), [(bytes(16), 0), (None, 2)])
def test_what_the_broker_acknowledged_and_does_not_have_is_lost(tmp_path: Path, token: bytes | None, rung: int) -> None:
    messages = messages_of_devices(tmp_path)
    windows, _ = oracle.fold(messages, [ASKED])
    lowest = min(windows[ASKED.id, WEEK].items(), key=lambda entry: entry[1])[0]
    write_journal(tmp_path, token or lowest, rung)
    assert judged(counted(messages), messages, tmp_path).lost == 1


def test_what_waits_behind_a_transaction_is_backlog_and_no_loss(tmp_path: Path) -> None:
    messages = messages_of_devices(tmp_path)
    windows, _ = oracle.fold(messages[:5], [ASKED])
    waiting, _ = oracle.fold(messages[5:], [ASKED])
    token, (rung, _) = next(
        entry for entry in waiting[ASKED.id, WEEK].items() if entry[0] not in windows[ASKED.id, WEEK]
    )
    store = counted(messages[:5])
    write_journal(tmp_path, token, rung)
    verdict = oracle.judge(store, [ASKED], windows, tmp_path, waiting)
    assert (verdict.lost, verdict.backlog) == (0, 1)
    outcome = Outcome(1, 1, {}, verdict, ledgers.LedgerAudit(), {})
    verdict.reports = 5
    assert not outcome.good
    assert "backlog: 1 tokens wait behind a transaction that nobody ended" in outcome.lines()
    write_journal(tmp_path, token, rung + 1)
    verdict = oracle.judge(store, [ASKED], windows, tmp_path, waiting)
    assert (verdict.lost, verdict.backlog) == (1, 0), "a rung that is nowhere is lost"


def test_a_transaction_hangs_when_the_broker_does_not_end_it() -> None:
    now = [0.0]
    hanging = Hanging(clock=lambda: now[0])

    def look(seconds: float, *places: tuple[int, int]) -> dict[int, int]:
        now[0] += seconds
        hanging.look({partition: Place(*place) for partition, place in enumerate(places)})
        return hanging.partitions

    look(0, (5, 9), (7, 7))
    assert look(80, (5, 20), (7, 7)) == {}, "it may still time out"
    assert look(80, (6, 20), (7, 30)) == {}, "other transactions"
    assert look(100, (6, 30), (30, 30)) == {0: 6}
    assert look(1, (40, 40), (30, 50)) == {}, "someone ended it"


def test_ledgers_that_fit_the_topic_are_good(tmp_path: Path) -> None:
    messages = messages_of_devices(tmp_path)
    audit = ledgers.audit(tmp_path, ASKED, ledgers.emitted(messages, ASKED, []))
    assert (audit.devices, audit.chains, audit.rungs, audit.faults) == (12, 12, 18, [])


def test_a_redrawn_lost_unpaid_or_unknown_rung_is_told(tmp_path: Path) -> None:
    messages = messages_of_devices(tmp_path)
    sent = ledgers.emitted(messages, ASKED, [])
    first, second = list(sent)[:2]
    sent[first][0] = {answer + 1 for answer in sent[first][0]}
    del sent[second][min(sent[second])]
    sent[bytes(16)] = {0: {0}}
    ledger = Ledger(tmp_path / "11.ledger")
    ledger.connection.execute("UPDATE device SET spent_units = spent_units + 1")
    ledger.close()
    faults = " ".join(ledgers.audit(tmp_path, ASKED, sent).faults)
    for words in ("was sent as", "released", "odometer", "1 tokens in the topic stand in no ledger"):
        assert words in faults


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


SCRIPT = [
    command(b"MULTI"),
    command(b"RPUSH", b"log", b"\r\n*$"),
    command(b"SET", b"offset", b"1"),
    command(b"EXEC"),
]
FILE = command(b"SELECT", b"0") + b"".join(SCRIPT) + command(b"MULTI") + command(b"ZADD", b"x") + command(b"EXEC")


def test_a_file_is_read_command_by_command_and_a_torn_end_left_out() -> None:
    names = [b"SELECT", b"MULTI", b"RPUSH", b"SET", b"EXEC", b"MULTI", b"ZADD", b"EXEC"]
    assert [found.name for found in aof.commands(FILE)] == names
    assert [found.name for found in aof.commands(FILE[:-1])] == names[:-1]
    assert [[found.name for found in script] for script in aof.scripts(FILE)] == [[b"MULTI", b"RPUSH", b"SET", b"EXEC"]]


def test_cuts_take_the_end_and_those_inside_a_script_end_inside_it(tmp_path: Path) -> None:
    path = tmp_path / "appendonly.aof"
    start, end = FILE.index(SCRIPT[1]), FILE.index(SCRIPT[3]) + len(SCRIPT[3])
    sizes = set()
    for seed in range(50):
        path.write_bytes(FILE)
        gone = aof.cut_inside_a_script(tmp_path, random.Random(seed))
        assert path.read_bytes() == FILE[: len(FILE) - gone]
        assert start <= len(FILE) - gone < end
        sizes.add(gone)
        path.write_bytes(FILE)
        assert aof.cut_anywhere(tmp_path, random.Random(seed)) == len(FILE) - path.stat().st_size > 0
    path.write_bytes(b"")  # right after a rewrite
    assert aof.cut_anywhere(tmp_path, random.Random(1)) == 0
    assert len(sizes) > 5


def test_every_kind_comes_before_one_comes_again() -> None:
    kinds = ["worker", "redis", "power"]
    assert sorted(plan(3, kinds, random.Random(1))) == sorted(kinds)
    assert len(plan(2, kinds, random.Random(1))) == 2
    assert len(plan(50, kinds, random.Random(1))) == 50


def test_a_fault_is_judged_by_the_time_that_workers_had_to_name_it(tmp_path: Path) -> None:
    now, runs, log = [0.0], [True], tmp_path / "worker-0.log"
    told = Told(tmp_path, lambda: runs[0], clock=lambda: now[0])
    log.write_text("Redis is down: of an earlier fault\n")

    def later(seconds: float, *, running: bool) -> None:
        runs[0] = running
        now[0] += seconds
        told.look()

    later(1.0, running=True)
    with log.open("a") as file:
        file.write("Redis is up again\nRedis restarted and may have lost queued windows\n")
    told.expect("redis")
    later(3.0, running=True)
    later(30.0, running=False)
    with log.open("a") as file:
        file.write("Redis is down: ...\n")
    later(1.0, running=True)
    told.expect("hang-redis")  # the log calls Redis down already
    told.expect("hang-kafka")
    later(12.0, running=True)
    told.expect("worker")
    later(50.0, running=True)
    told.finish()
    assert (told.seconds, told.unnamed) == (
        {"redis": [4.0], "hang-redis": [0.0]},
        {"hang-kafka": [12.0]},
    )


def test_no_time_counts_after_the_end_of_a_fault_that_leaves_no_trace(tmp_path: Path) -> None:
    now = [0.0]
    told = Told(tmp_path, lambda: True, clock=lambda: now[0])
    told.expect("full-redis")
    earlier = told.number
    now[0] += 3.0
    told.over(earlier)
    now[0] += 20.0
    told.expect("full-redis")
    told.over(earlier)  # a restart in the background that ended late
    now[0] += 11.0
    told.finish()
    assert told.unnamed == {"full-redis": [3.0, 11.0]}


@pytest.mark.parametrize(("told", "unnamed"), [({"redis": [11.0]}, {}), ({}, {"redis": [11.0]})])
def test_a_fault_that_is_named_late_or_never_is_a_failure(
    told: dict[str, list[float]], unnamed: dict[str, list[float]]
) -> None:
    audit, verdict = ledgers.LedgerAudit(), oracle.Verdict(reports=1)
    outcome = Outcome(1, 1, {}, verdict, audit, {}, told | {"corrupt-log": [90.0]}, unnamed, told_within=10.0)
    assert len(outcome.told_late) == 1
    assert not outcome.good
    outcome.told_within = 12.0
    assert outcome.good


def test_a_survey_whose_estimates_rest_is_told_beside_one_whose_estimates_go_on() -> None:
    """The other one must not hide it."""
    window_seconds = 4.0
    watches = {name: Watch(name, window_seconds, 0.0) for name in ("going", "resting")}
    for second in range(CALM_CHANGES):
        assert not watches["going"].is_calm
        for watch in watches.values():
            watch.look(b"before %d" % second, float(second))
    assert all(watch.is_calm for watch in watches.values())
    begun, ended = 10, 40
    for watch in watches.values():
        watch.calm_ends(float(begun))
    for second in range(begun, ended):
        watches["going"].look(b"after %d" % second, float(second))
        watches["resting"].look(b"at rest", float(second))
    gaps = {name: watch.gap(float(ended)) for name, watch in watches.items()}
    assert gaps["going"].seconds == 1.0
    assert gaps["resting"].seconds == ended - begun > gaps["resting"].most == GAP_SECONDS + window_seconds + 3 * 1.0
    verdict = oracle.Verdict(reports=1)
    outcome = Outcome(1, 1, {}, verdict, ledgers.LedgerAudit(), {}, notes=told(list(gaps.values())))
    *_, closing = lines = list(outcome.lines())
    assert "largest gap while workers were restarted one by one: no estimate of resting changed for 30.0 s" in lines[2]
    assert closing.startswith("kills 1, ")
