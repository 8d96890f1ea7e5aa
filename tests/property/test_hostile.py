"""Whatever bytes come: no crash, no memory beyond a bound, every bad frame a dead letter, every good one counted."""

from __future__ import annotations

import struct
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.survey.survey import Survey, SurveyError, load_survey, parse_survey
from streams.repair.dead_letters import StoredDeadLetter, judge, look
from streams.store.counters import REASONS
from streams.store.shape import Shape
from streams.worker.applier import Applied, Applier
from streams.worker.fold import DeadLetter, check
from tests.support.clock import ManualClock
from tests.support.hostile import corpus, good_frames, hostile_frames, hostile_messages, valid_answer, verdicts
from tests.support.memory_store import MemoryStore
from tests.support.reports import (
    CATEGORICAL,
    NOW_MS,
    SURVEYS,
    TOPIC,
    WINDOW,
    Report,
    SurveyDict,
    batch_of,
    frame_of,
    oracle,
    token_in,
)
from tests.support.surveys import TEXT

PARTITIONS = 2
ALL = SurveyDict(*SURVEYS)


class Bench:
    """A worker's applier on a store in memory; keeps the dead letters."""

    def __init__(self) -> None:
        clock = ManualClock(NOW_MS)
        self.store, self.letters = MemoryStore(clock), list[DeadLetter]()
        self.applier = Applier(self.store, ALL, self.letters.extend, partitions=PARTITIONS, clock=clock)
        self.applier._shards = 4
        self.applier.assigned(TOPIC, {0: 0, 1: 0})

    def process(self, *messages: bytes | None, partition: int = 0) -> Applied:
        return self.applier.process([batch_of(*messages, partition=partition)])

    def users(self, survey: Survey) -> int:
        return self.store.estimates.tally(survey.id, WINDOW, survey.shards, Shape.of(survey)).total_users


def expected_letters(messages: Sequence[bytes], partition: int) -> Counter[tuple[int, str, bytes]]:
    return Counter(
        (offset, reason, frame)
        for offset, message in enumerate(messages)
        for reason, frame in verdicts(message, SURVEYS, partition, PARTITIONS)
        if reason not in ("", "expired")
    )


@settings(max_examples=150)
@given(st.lists(hostile_messages, max_size=4), st.integers(0, 1))
def test_every_bad_frame_is_a_dead_letter_with_its_reason_and_every_good_one_counts(
    messages: list[bytes], partition: int
) -> None:
    bench = Bench()
    honest = [Report(token_in(partition, user, CATEGORICAL), 3, b"\1") for user in range(100, 103)]
    done = bench.process(*messages, frame_of(CATEGORICAL, honest), partition=partition)
    found = Counter((letter.offset, letter.reason, letter.frame) for letter in bench.letters)
    assert found == expected_letters(messages, partition)
    good = sum(
        int.from_bytes(frame[34:38], "little")
        for message in messages
        for reason, frame in verdicts(message, SURVEYS, partition, PARTITIONS)
        if not reason
    )
    assert done.reports == good + len(honest)
    assert bench.users(CATEGORICAL) >= len(honest)
    bench.letters.clear()
    again = bench.process(*messages, frame_of(CATEGORICAL, honest), partition=partition)
    assert again.counters.applied == 0, "what was counted once is never counted again"


@pytest.mark.parametrize("path", corpus("frames"), ids=lambda path: path.stem)
def test_the_corpus_of_frames_is_judged_as_before(path: Path) -> None:
    """The name of a file is its verdict: the reasons of its frames in order, joined by `+`, or `good`."""
    message = path.read_bytes()
    told = [reason or "good" for reason, _ in verdicts(message, SURVEYS, 0, PARTITIONS)]
    assert path.stem.split("--")[0] == "+".join(told)
    bench = Bench()
    bench.process(message)
    assert Counter(letter.reason for letter in bench.letters) == Counter(
        reason for reason in told if reason not in ("good", "expired")
    )


def test_the_corpus_has_every_reason() -> None:
    seen = {reason for path in corpus("frames") for reason in path.stem.split("--")[0].split("+")}
    assert seen >= {*REASONS[1:], "good", "expired"}


def test_claims_of_a_header_allocate_nothing() -> None:
    """Frames that claim 65,536 reports and four gigabytes take no more memory than their own bytes need."""
    good = frame_of(CATEGORICAL, [Report(token_in(0, 1, CATEGORICAL), 0, b"\1")])
    false = []
    for length, count in ((0xFFFF_FFF8, 65_536), (len(good), 65_536), (len(good), 0xFFFF_FFFF), (40, 65_536)):
        raw = bytearray(good)
        struct.pack_into("<I", raw, 4, length)
        struct.pack_into("<I", raw, 34, count)
        false.append(bytes(raw))
    messages = false * 500
    check([batch_of(*messages)], ALL, PARTITIONS, NOW_MS)
    tracemalloc.start()
    checked = check([batch_of(*messages)], ALL, PARTITIONS, NOW_MS)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(checked.dead_letters) >= len(messages)
    # A dead letter is its bytes, a tuple and its place among the others: under 600 bytes for a frame of 72.
    assert peak_bytes < 20 * sum(map(len, messages))


def test_a_flood_of_bad_frames_does_not_keep_good_ones_from_being_counted() -> None:
    bench = Bench()
    honest = [Report(token_in(0, user, CATEGORICAL), 1, b"\2") for user in range(50)]
    bad = frame_of(CATEGORICAL, [Report(token_in(0, 1, CATEGORICAL), 200, b"\1")])
    noise = b"THW\1" + struct.pack("<I", 40) + bytes(32)
    flood = [(bad + noise) * 300 for _ in range(10)]
    frames = [frame_of(CATEGORICAL, honest[start : start + 10]) for start in range(0, 50, 10)]
    messages = [part + frame + part for part, frame in zip(flood, frames * 2, strict=True)]
    done = bench.process(*messages)
    assert bench.store.estimates.tally(CATEGORICAL.id, WINDOW, 4, Shape.of(CATEGORICAL)) == oracle(CATEGORICAL, honest)
    assert (done.counters.applied, done.counters.duplicate) == (50, 50)
    assert Counter(letter.reason for letter in bench.letters) == {"rung": 6_000, "count": 6_000}


@given(st.lists(hostile_messages, min_size=1, max_size=3))
def test_letters_can_be_looked_at_and_judged_whatever_is_in_them(messages: list[bytes]) -> None:
    for message in messages:
        letter = StoredDeadLetter(0, NOW_MS, "any", "", message)
        views = look(message)
        alive, dead = judge(letter, ALL, PARTITIONS, NOW_MS)
        assert len(alive) + len(dead) == len(views)
        for frame in alive:
            # What is sent again is taken where it arrives.
            checked = check([batch_of(frame.value, partition=frame.partition)], ALL, PARTITIONS, NOW_MS)
            assert not checked.dead_letters
            assert checked.reports


@given(st.lists(good_frames() | hostile_frames(), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_frames_changes_nothing(frames: list[bytes], random: st.DataObject) -> None:
    first, second = Bench(), Bench()
    # Noise behind a frame would swallow its neighbours: each is a message of its own.
    first.process(*frames)
    shuffled = list(frames)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # an instance of random.Random
    second.process(*shuffled)
    for survey in SURVEYS:
        shape = Shape.of(survey)
        assert first.store.estimates.tally(survey.id, WINDOW, survey.shards, shape) == second.store.estimates.tally(
            survey.id, WINDOW, survey.shards, shape
        )


def test_one_token_counts_once_whatever_it_sends() -> None:
    for survey in SURVEYS:
        bench = Bench()
        token = token_in(0, 1, survey)
        for rung in range(survey.mechanism.rungs):
            for number in range(0, 50, 7):
                bench.process(frame_of(survey, [Report(token, rung, valid_answer(survey, number))]))
        assert bench.users(survey) == 1


_LINES = TEXT.strip().splitlines()
_WORDS = st.sampled_from(
    ['""', "-1", "0", "1e309", "nan", "[]", "[[]]", "{}", "true", '"9999999999d"', "999999999999999"]
)
_WORDS |= st.text(max_size=12)


@st.composite
def survey_files(draw: st.DrawFn) -> str:
    """Return a survey file with lines changed, doubled, exchanged or taken away."""
    lines = list(_LINES)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(["value", "drop", "double", "swap", "raw"]))
        if kind == "value" and "=" in lines[at]:
            lines[at] = lines[at].split("=")[0] + "= " + draw(_WORDS)
        elif kind == "drop" and len(lines) > 1:
            del lines[at]
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "swap":
            other = draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == "raw":
            lines[at] = draw(_WORDS)
    return "\n".join(lines)


@settings(max_examples=150)
@given(survey_files())
def test_a_survey_file_is_understood_or_refused_with_a_remedy(text: str) -> None:
    refused = None
    try:
        parse_survey(text, "fuzz.toml")
    except SurveyError as error:
        refused = error
    assert refused is None or (refused.remedy and str(refused).startswith("fuzz.toml"))


@pytest.mark.parametrize("path", corpus("surveys"), ids=lambda path: path.stem)
def test_the_corpus_of_survey_files_is_refused_with_a_remedy(path: Path) -> None:
    with pytest.raises(SurveyError) as refused:
        load_survey(path)
    assert refused.value.remedy
