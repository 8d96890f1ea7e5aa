"""What an admin client must not be asked: librdkafka 2.16 aborts the process when a coordinator's connection breaks."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

TO_A_COORDINATOR = re.compile(
    r"\.(describe_cluster|(describe|delete)_consumer_groups|(list|alter|delete)_consumer_group_offsets)\("
)
COMMANDS_ONLY = {"streams/kafka/migration.py"}
"""Asked by a command that somebody waits for, and not by a process that runs on."""


def test_no_process_that_runs_on_asks_a_coordinator_through_an_admin_client() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "streams").rglob("*.py")
        if TO_A_COORDINATOR.search(path.read_text())
    }
    assert found <= COMMANDS_ONLY
