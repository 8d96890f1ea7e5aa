"""`make secure-test` runs every command that talks to services; a new one is noticed when it is left out."""

from __future__ import annotations

from tests.secure.allowed import left_out


def test_a_command_that_talks_to_services_and_was_not_run_is_named() -> None:
    every = left_out([])
    assert {"worker", "exporter", "bulletin", "market", "topics", "gateway"} <= every
    assert not every & {"plan", "survey", "reproduce"}
    some = sorted(every - {"bulletin"})
    assert left_out([f"thaw {name} something" for name in some] + ["Prometheus"]) == {"bulletin"}
