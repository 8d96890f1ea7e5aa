"""The helpers of the tests themselves."""

from pathlib import Path

import pytest

from streams.local.process import ServiceMissing
from streams.local.redis import Redis
from tests.support.deadline import BUSY, until
from tests.support.services import fresh_name, missing, running


def test_until_returns_what_it_waited_for() -> None:
    answers = iter([None, 0, "", "there"])
    assert until(lambda: next(answers), 30, "an answer", poll_seconds=0) == "there"


def test_until_says_what_was_expected_and_what_it_saw_last() -> None:
    with pytest.raises(AssertionError, match=r"expected a miracle within 0\.01 s; the last look gave 0"):
        until(lambda: 0, 0.01 / BUSY, "a miracle")


def test_until_looks_once_more_after_the_deadline() -> None:
    assert until(lambda: True, 0, "what is true already")


def test_a_missing_part_is_a_failure_in_ci_and_a_skip_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="in CI every service must be there: no broker"):
        missing("no broker")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no broker"):
        missing("no broker")


def test_a_part_that_is_not_installed_is_skipped_with_its_own_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed() -> Redis:
        raise ServiceMissing("install it")

    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="install it"), running(not_installed):
        pytest.fail("the body must not run")


@pytest.mark.real
def test_the_body_of_running_sees_its_own_errors(tmp_path: Path) -> None:
    with pytest.raises(ServiceMissing, match="from the body"), running(lambda: Redis(folder=tmp_path)):
        raise ServiceMissing("from the body")


def test_fresh_names_are_fresh() -> None:
    assert len({fresh_name() for _ in range(1_000)}) == 1_000
