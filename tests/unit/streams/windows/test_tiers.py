"""Estimates for tiers: each on a topic of its own, which holds up no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from producers.survey.tiers import Tier
from streams.kafka.messages import Outgoing, PublishError
from streams.kafka.topics import wanted
from streams.settings import Settings, SettingsError
from streams.windows.record import decode_estimate
from tests.support.clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.surveys import WEEK, survey
from tests.unit.streams.windows.test_recompute import Known, fill, recomputing


def test_a_tier_has_its_own_estimate_on_its_own_topic_and_holds_up_no_other() -> None:
    clock = ManualClock(WEEK + 100_000)
    store = MemoryStore(clock)
    whole = replace(survey(), tiers=(Tier("partners", 1), Tier("owner", 2)))
    (tier,) = whole.tier_surveys
    fill(store, whole, clock, 300, WEEK)
    told: list[Outgoing] = []
    missing = {"estimates.partners"}

    def publish(messages: Sequence[Outgoing]) -> None:
        if {message.topic for message in messages} & missing:
            raise PublishError("no such topic")
        told.extend(messages)

    recomputer = recomputing(store, Known(whole, tier), publish, clock)
    with pytest.raises(PublishError, match="no such topic"):
        recomputer.tick()
    assert [message.topic for message in told] == ["estimates"]
    assert [queued.survey_id for queued in store.queue.entries()] == [tier.id], "the tier's window waits for its topic"
    missing.clear()
    recomputer.tick()
    assert store.queue.entries() == []
    records = {message.topic: decode_estimate(message.value or b"") for message in told}
    assert records["estimates.partners"].survey == tier.id
    whole_users, tier_users = (records[topic].users_per_rung for topic in ("estimates", "estimates.partners"))
    assert whole_users[2] > 0
    assert tier_users == [*whole_users[:2], 0], "devices that released rung 2 alone have told this tier nothing"


def test_every_tier_below_the_top_has_a_topic_whichever_survey_it_is_of() -> None:
    tiered = replace(survey(), tiers=(Tier("public", 0), Tier("owner", 2)))
    other = replace(survey(name='name = "other"'), tiers=(Tier("public", 1), Tier("press", 0)))
    names = [spec.name for spec in wanted(Settings(prefix="p."), iter([tiered, other, survey()]))]
    estimates = [name for name in names if "estimates" in name]
    assert estimates == ["p.thaw.estimates.v1", "p.thaw.estimates.v1.press", "p.thaw.estimates.v1.public"]
    with pytest.raises(SettingsError, match="must be a topic of reports"):
        Settings(reports="thaw.estimates.v1.public")
