"""Levels that bulletins open: no other, never twice, not by an older or a foreign bulletin."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import msgspec
import pytest

from estimators.channels.chain import Chain
from producers.device.agent import Device
from producers.survey.bulletin import Bulletin, BulletinError, bulletin_of, opened_bulletin, sealed_bulletin
from producers.survey.check import explain
from producers.survey.signing import verifier
from producers.survey.survey import Survey, SurveyError
from tests.support.checks import fractions_of, joint_law
from tests.support.signing import signer_in, while_wide
from tests.support.surveys import INDEPENDENT, WEEK, WINDOW_MS, survey
from tests.support.transports import MemoryTransport, rungs

END = WEEK + WINDOW_MS


def test_a_level_opens_at_its_time_and_not_without_a_bulletin(ledger: Path, tmp_path: Path) -> None:
    signer = signer_in(tmp_path)
    asked, transport = while_wide(signer), MemoryTransport()
    with Device(ledger, [asked], transport, verifier=verifier) as device:
        device.observe(asked, "green", WEEK)
        device.tick(WEEK)
        device.tick(END + 60_000)
        assert rungs(transport, asked) == [0], "its time has come, and nothing has opened it"
        assert device.next_ms() is None
        raw = sealed_bulletin(bulletin_of(asked, 7, END, {WEEK: 1}), signer.sign)
        assert device.bulletins.take(asked, raw).rung(WEEK) == 1
        device.tick(END + 61_000)
        assert rungs(transport, asked) == [0, 1]
        assert device.odometer.epsilon == asked.mechanism.epsilons[1], "the level that never opened costs nothing"
    with Device(ledger, [asked], transport, verifier=verifier) as device:
        device.bulletins.take(asked, raw)  # the same once more changes nothing
        device.bulletins.take(asked, sealed_bulletin(bulletin_of(asked, 8, END, {WEEK: 2, END: 1}), signer.sign))
        device.observe(asked, "red", END)
        device.tick(END + 62_000)
        assert rungs(transport, asked) == [0, 1, 0, 2] or rungs(transport, asked) == [0, 1, 2, 0]
        assert device.next_ms() == asked.opening_ms(END, 1), "opened, and not before its time"


def test_what_is_opened_early_waits_for_its_time(ledger: Path, tmp_path: Path) -> None:
    signer = signer_in(tmp_path)
    asked, transport = while_wide(signer), MemoryTransport()
    with Device(ledger, [asked], transport, verifier=verifier) as device:
        device.observe(asked, "green", WEEK)
        device.bulletins.take(asked, sealed_bulletin(bulletin_of(asked, 1, WEEK, {WEEK: 2}), signer.sign))
        device.tick(END + 9_999)
        assert rungs(transport, asked) == [0]
        device.tick(END + 10_000)
        assert rungs(transport, asked) == [0, 1]


Bad = Callable[[Survey, Path], bytes]


def _forged(asked: Survey, folder: Path) -> bytes:
    return sealed_bulletin(bulletin_of(asked, 9, END, {WEEK: 2}), signer_in(folder, "other.pem").sign)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_forged, "is not signed by the key in the file of"),
        (lambda *_: b"{}", "this is no bulletin"),
        (lambda *_: b'{"payload": "e30=", "signature": "%%"}', "this is no bulletin"),
    ],
)
def test_what_was_not_signed_by_the_collector_changes_nothing(
    make: Bad, reason: str, ledger: Path, tmp_path: Path
) -> None:
    asked, transport = while_wide(signer_in(tmp_path)), MemoryTransport()
    with Device(ledger, [asked], transport, verifier=verifier) as device:
        device.observe(asked, "green", WEEK)
        with pytest.raises(BulletinError, match=reason):
            device.bulletins.take(asked, make(asked, tmp_path))
        device.tick(END + 60_000)
        assert rungs(transport, asked) == [0]


def test_an_older_bulletin_and_those_of_others_change_nothing(ledger: Path, tmp_path: Path) -> None:
    signer = signer_in(tmp_path)
    asked, transport = while_wide(signer), MemoryTransport()
    other, plain = replace(asked, name="other"), replace(survey(), name="plain")

    def made(number: int, opened: dict[int, int], of: Survey = asked) -> bytes:
        return sealed_bulletin(bulletin_of(of, number, END, opened), signer.sign)

    with Device(ledger, [asked, plain], transport, verifier=verifier) as device:
        device.observe(asked, "green", WEEK)
        device.bulletins.take(asked, made(5, {}))
        with pytest.raises(BulletinError, match="bulletin 4 came after bulletin 5; it changes nothing"):
            device.bulletins.take(asked, made(4, {WEEK: 2}))
        with pytest.raises(BulletinError, match="bulletin 5 came after bulletin 5"):
            device.bulletins.take(asked, made(5, {WEEK: 2}))
        with pytest.raises(BulletinError, match=f"is of {other.id}, not of {asked.id}"):
            device.bulletins.take(asked, made(9, {WEEK: 2}, other))
        with pytest.raises(BulletinError, match="opens what"):
            device.bulletins.take(asked, made(9, {WEEK: 3}))
        with pytest.raises(BulletinError, match="its levels are not opened by bulletins"):
            device.bulletins.take(plain, made(9, {WEEK: 1}))
        device.tick(END + 60_000)
        assert rungs(transport, asked) == [0]
    with Device(ledger, [asked], transport) as device, pytest.raises(BulletinError, match="cannot check signatures"):
        device.bulletins.take(asked, made(6, {WEEK: 1}))
    with pytest.raises(BulletinError, match="is not signed by the key"):
        opened_bulletin(made(6, {}), asked, verifier(signer_in(tmp_path, "third.pem").public_text))


def test_the_bulletin_that_is_known_is_taken_again_and_forgets_no_window(ledger: Path, tmp_path: Path) -> None:
    signer = signer_in(tmp_path)
    asked = while_wide(signer)
    first = sealed_bulletin(bulletin_of(asked, 1, END, {WEEK: 2}), signer.sign)
    second = sealed_bulletin(bulletin_of(asked, 2, END + WINDOW_MS, {END: 1}), signer.sign)
    with Device(ledger, [asked], MemoryTransport(), verifier=verifier) as device:
        for raw in (first, second, second):
            device.bulletins.take(asked, raw)
        assert (device.bulletins.rung(asked.id, WEEK), device.bulletins.rung(asked.id, END)) == (2, 1)


def test_what_is_remembered_does_not_grow_and_what_may_be_released_is_not_forgotten(
    ledger: Path, tmp_path: Path
) -> None:
    signer = signer_in(tmp_path)
    asked, transport, windows = while_wide(signer), MemoryTransport(), 200
    with Device(ledger, [asked], transport, verifier=verifier) as device:
        device.observe(asked, "green", WEEK)
        for number in range(windows):
            start = WEEK + number * WINDOW_MS
            opened = {start - back * WINDOW_MS: 2 for back in range(3)}
            device.bulletins.take(asked, sealed_bulletin(bulletin_of(asked, number, start, opened), signer.sign))
        (row,) = device._ledger.connection.execute("SELECT open FROM bulletins").fetchall()
        remembered = sorted(map(int, msgspec.json.decode(row[0])))
        alive = [
            WEEK + number * WINDOW_MS
            for number in range(windows)
            if start <= asked.expiry_ms(WEEK + number * WINDOW_MS)
        ]
        assert remembered == [WEEK, *alive], "this device holds answers for the first window, however late it is"
        device.tick(END + 60_000)
        assert sorted(rungs(transport, asked)) == [0, 2], "by its own clock the first window counts"
        device.tick(asked.expiry_ms(WEEK) + 1)
        again = sealed_bulletin(bulletin_of(asked, windows, start, opened), signer.sign)
        device.bulletins.take(asked, again)
        assert device.bulletins.rung(asked.id, WEEK) == 0


@pytest.mark.parametrize("start", ["--5", "\u00b2", "5.0", "", "9" * 40])
def test_windows_that_are_no_moments_are_refused(start: str, tmp_path: Path) -> None:
    signer = signer_in(tmp_path)
    asked = while_wide(signer)
    raw = sealed_bulletin(Bulletin(asked.id, 1, END, {start: 1}), signer.sign)
    with pytest.raises(BulletinError, match="opens what"):
        opened_bulletin(raw, asked, verifier(signer.public_text))


def test_whatever_the_rule_says_a_device_reveals_the_level_that_was_opened_to_it() -> None:
    """Exact, over rationals: two people, two levels, two values, and every rule on what is counted first.

    The second level opens for both or for none, by any function of the two first answers: of each transcript the
    probability changes with the value of one person by at most the level of the highest rung in it, and by exactly
    that in some.
    """
    chain = Chain.retention([0.5, 2.0], 2)
    law = list(joint_law(fractions_of(chain.top), [fractions_of(kernel) for kernel in chain.kernels]))
    levels = survey(ladder="ladder = [0.5, 2.0]", opens='opens = ["0s", "10s"]', values='values = ["a", "b"]')
    charged = levels.mechanism.epsilons
    for rule in product((False, True), repeat=3):  # by how many of the two said the second value
        worst = [Fraction(1), Fraction(1)]
        for other in range(2):
            seen: dict[tuple[int, tuple[object, ...]], list[Fraction]] = defaultdict(lambda: [Fraction(0)] * 2)
            for (mine, chances), (theirs, their_chances) in product(law, law):
                opened = int(rule[mine[0] + theirs[0]])
                transcript = (mine, theirs) if opened else (mine[0], theirs[0])
                seen[opened, transcript] = [
                    total + chances[value] * their_chances[other]
                    for value, total in enumerate(seen[opened, transcript])
                ]
            for (opened, _), chances in seen.items():
                worst[opened] = max(worst[opened], max(chances) / min(chances))
        for rung, ratio in enumerate(worst):
            if ratio > 1:
                assert math.log(ratio) <= charged[rung] <= math.log(ratio) + 1e-12


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"lifetime": INDEPENDENT}, "release.kind", "stopping would save nothing"),
        ({"lifetime": "lifetime = 9\n[publish]\ntotals_only = true"}, "publish.totals_only", "a rule on bands tells"),
        ({"ladder": "ladder = [1.0]", "opens": 'opens = ["0s"]'}, "release.ladder", "one level leaves nothing to open"),
        ({"values": 'values = ["a"]'}, "values", "at least"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(
    changes: dict[str, str], field: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(SurveyError, match=reason) as refused:
        while_wide(signer_in(tmp_path), 0.2, **changes)
    assert refused.value.field == field


def test_a_wrong_width_or_key_is_refused_and_the_check_explains_the_rule(tmp_path: Path) -> None:
    signer = signer_in(tmp_path)
    for width in (0, -1, math.inf):
        with pytest.raises(SurveyError, match="must be above 0"):
            while_wide(signer, width)
    with pytest.raises(SurveyError, match="must be 32 bytes in base64"):
        survey(kind='kind = "while_wide"\nwidth = 0.1\nkey = "abc"')
    told = explain(while_wide(signer))
    assert any("only while the always-valid band of some value is wider than 0.2" in one for one in told.sentences)
    assert any("always-valid ones hold" in warning for warning in told.warnings)
    assert while_wide(signer).id == survey().id, "a rule of release decodes nothing"
