"""Every planted defect is caught by an ordinary audit, and the real device passes in the same run."""

from __future__ import annotations

import json

import pytest

from streams.audit.defects import DEFECTS
from streams.audit.selftest import LeftOut, Planted, SelfTest
from streams.cli import audit as command
from tests.unit.streams.cli.test_main import run

EXPECTED = {
    "redraws a level",
    "never flips ones",
    "reuses noise after fork",
    "answers depend on the process",
}
"""What must be planted at least."""


def test_all_planted_defects_are_caught_and_the_real_device_is_not_accused(capfd: pytest.CaptureFixture[str]) -> None:
    """A false alarm on the two surveys of the real device: 2e-6. A miss: below 1e-6."""
    status, out, _ = run(capfd, "audit", "--self-test", "--json")
    found = json.loads(out)
    assert [planted for planted in found["planted"] if not planted["caught"]] == []
    assert {planted["defect"] for planted in found["planted"]} == set(DEFECTS) >= EXPECTED
    assert all(set(planted) == {"defect", "caught"} for planted in found["planted"])
    assert found["control"] == {"contradictions": []}
    assert status == 0
    by = {defect: " ".join(sentences) for defect, sentences in found["caught_by"].items()}
    assert "sharpening" in by["redraws a level"]
    assert "two answers for one level" in by["redraws after a restart"]
    assert "an attack shows at least epsilon" in by["never flips ones"]
    assert "the same value in two processes" in by["reuses noise after fork"]
    assert "process" in by["answers depend on the process"]
    assert "the same value on two devices of a process" in by["noise depends on the process"]
    assert "the same value in two windows of a device" in by["reuses noise in every window"]
    assert "the ledger charges" in by["pays less than it releases"]
    assert "tokens of one device differ" in by["names itself in tokens"]
    assert "the device's own time" in by["tells its own clock"]


def test_a_defect_that_is_not_caught_fails(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    missed = SelfTest((Planted("redraws a level", ()), Planted("never flips ones", ("level 0: ...",))), (), chains=64)
    monkeypatch.setattr(command, "self_test", lambda *_, **__: missed)
    status, out, _ = run(capfd, "audit", "--self-test")
    assert status == 1
    *_, which, remedy, last = out.splitlines()
    assert which == "not caught with 64 chains: redraws a level"
    assert "give more --users" in remedy
    assert last == "planted 2, caught 1"
    accused = SelfTest((), ("level 0: an attack ...",))
    monkeypatch.setattr(command, "self_test", lambda *_, **__: accused)
    assert run(capfd, "audit", "--self-test")[0] == 1


def test_what_is_left_out_is_named_and_fails_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SelfTest(
        (Planted("never flips ones", ("level 0: ...",)),), (), (LeftOut("redraws a level", "a single level"),)
    )
    monkeypatch.setattr(command, "self_test", lambda *_, **__: found)
    status, out, _ = run(capfd, "audit", "--self-test")
    assert status == 0
    assert out.splitlines()[-2:] == ["not planted: redraws a level: a single level", "planted 1, caught 1"]
    left = json.loads(run(capfd, "audit", "--self-test", "--json")[1])["left_out"]
    assert left == [{"defect": "redraws a level", "reason": "a single level"}]
