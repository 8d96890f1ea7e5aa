"""Tokens of tiers: each sees its tier and those below it, and nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from producers.survey.survey import Survey
from producers.survey.tiers import Tier
from streams.exporter.audiences import NamelessHeartbeats, TierSurveys, tier_tokens
from streams.exporter.reader import Reader
from streams.exporter.views import Views
from streams.settings import Settings, SettingsError
from streams.store.heartbeats import Heartbeat
from tests.support.clock import ManualClock
from tests.support.exporter import NOW_MS, Client, FixedHeartbeats, Known, converse, record_of, save
from tests.support.memory_store import MemoryStore
from tests.support.surveys import WEEK, survey

TIERED = replace(survey(), tiers=(Tier("public", 0), Tier("partners", 1), Tier("owner", 2)))
PUBLIC, PARTNERS = TIERED.tier_surveys
PLAIN = survey(name='name = "secret"')
LISTED = (TIERED, PARTNERS, PUBLIC, PLAIN)
BEAT = Heartbeat("machine-17", NOW_MS, 0, None, None, None, metrics_port=9731)
OWNER = "the-owner"


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


TOKENS = {digest(f"of-{name}"): name for name in ("public", "partners", "owner", "nobody")}


async def asked(client: Client, path: str, token: str) -> tuple[int, str]:
    answer = await client.get(path, headers={"Authorization": f"Bearer {token}"})
    return answer.status, await answer.text()


def talk(conversation: Any) -> Any:
    clock = ManualClock(NOW_MS)
    store = MemoryStore(clock)
    for number, known in enumerate(LISTED):
        save(store, record_of(known, WEEK - 60_000, [0.1 + 0.1 * number, 0.3, 0.3]))
    unnamed = NamelessHeartbeats(FixedHeartbeats(BEAT))
    tiers = {
        name: Views(Reader(store, TierSurveys(Known(*LISTED), name), heartbeats=unnamed, clock=clock), clock=clock)
        for name in TOKENS.values()
    }
    options: dict[str, Any] = {"token": OWNER, "tiers": tiers, "tokens": TOKENS, "heartbeats": FixedHeartbeats(BEAT)}
    return converse(store, LISTED, conversation, **options)


@pytest.mark.parametrize(
    ("token", "visible"),
    [
        (OWNER, LISTED),
        ("of-owner", (TIERED, PARTNERS, PUBLIC)),
        ("of-partners", (PARTNERS, PUBLIC)),
        ("of-public", (PUBLIC,)),
        ("of-nobody", ()),
    ],
)
def test_a_token_sees_its_tier_and_those_below(token: str, visible: tuple[Survey, ...]) -> None:
    ids = {one.id for one in visible}

    async def conversation(client: Client) -> None:
        _, listed = await asked(client, "/api/v1/surveys", token)
        _, metrics = await asked(client, "/metrics", token)
        _, health = await asked(client, "/api/v1/health", token)
        _, alerts = await asked(client, "/api/v1/alerts", token)
        for one in LISTED:
            for text in (listed, metrics, health):
                assert (one.id in text) == (one.id in ids), f"{one.id} in {text[:2_000]}"
            assert one.id in ids or one.id not in alerts
            for path in ("", "/windows", f"/windows/{WEEK - 60_000}", f"/windows/{WEEK - 60_000}/history"):
                status, body = await asked(client, f"/api/v1/surveys/{one.id}{path}", token)
                assert status == (200 if one.id in ids else 404), path
                assert one.id in ids or "0.3" not in body
        assert ("machine-17" in health) == (token == OWNER)

    talk(conversation)


def test_events_are_those_of_the_tier() -> None:
    async def conversation(client: Client) -> bytes:
        answer = await client.get("/api/v1/events", headers={"Authorization": "Bearer of-public"})
        found = b""
        while b"event: health" not in found or not found.endswith(b"\n\n"):
            found += await answer.content.readany()
        answer.close()
        return found

    told = talk(conversation)
    assert PUBLIC.id.encode() in told
    assert PARTNERS.id.encode() not in told
    assert TIERED.id.encode() not in told


def test_a_wrong_token_sees_nothing() -> None:
    async def conversation(client: Client) -> list[int]:
        tries = ["of-press", "", hashlib.sha256(b"of-public").hexdigest()]
        return [(await asked(client, "/api/v1/surveys", token))[0] for token in tries]

    assert talk(conversation) == [401, 401, 401]


def test_reports_are_counted_once_over_a_survey_and_its_tiers() -> None:
    async def conversation(client: Client) -> tuple[str, str]:
        return (await asked(client, "/metrics", OWNER))[1], (await asked(client, "/metrics", "of-public"))[1]

    owner, public = talk(conversation)
    assert f'thaw_reports_applied_total{{survey="{TIERED.id}"}}' in owner
    assert f'thaw_reports_applied_total{{survey="{PUBLIC.id}"}}' not in owner
    assert f'thaw_limit_stale_seconds{{survey="{PUBLIC.id}"}}' not in owner, "one alert is enough"
    assert f'survey="{PUBLIC.id}",value="red",window="1"' in public


def settings_with(path: Path, text: str, **more: Any) -> Settings:
    path.write_text(text)
    return Settings(tier_tokens=str(path), **more)


def test_the_file_names_tiers_by_digests_of_tokens(tmp_path: Path) -> None:
    text = "".join(f'[[token]]\ntier = "{name}"\ntoken_sha256 = "{sha.hex()}"\n' for sha, name in TOKENS.items())
    assert tier_tokens(settings_with(tmp_path / "tokens.toml", text, token=OWNER)) == TOKENS
    assert tier_tokens(Settings()) == {}


@pytest.mark.parametrize(
    ("text", "token", "remedy"),
    [
        ("", OWNER, "missing required field `token`"),
        ('[[token]]\ntier = "a"\ntoken_sha256 = "12"\n', OWNER, "64 hexadecimal digits"),
        ('[[token]]\ntier = "a"\ntoken = "x"\n', OWNER, "unknown field|missing required field"),
        (2 * f'[[token]]\ntier = "a"\ntoken_sha256 = "{"0" * 64}"\n', OWNER, "twice"),
        (f'[[token]]\ntier = "a"\ntoken_sha256 = "{"0" * 64}"\n', "", "needs THAW_TOKEN"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, token: str, remedy: str) -> None:
    with pytest.raises(SettingsError, match=remedy):
        tier_tokens(settings_with(tmp_path / "tokens.toml", text, token=token))


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(SettingsError, match="THAW_TIER_TOKENS must be a file that can be read"):
        tier_tokens(Settings(tier_tokens="/nowhere.toml", token=OWNER))
