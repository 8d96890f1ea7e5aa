"""What the holder of a tier's token may read: its tier of every survey, and the tiers below it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from producers.survey.lookup import SurveyList
from producers.survey.survey import Survey
from streams.settings import Settings, SettingsError, readable_file
from streams.store.heartbeats import Heartbeat, HeartbeatReader


class _Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tier: str
    token_sha256: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token: list[_Token]


class TierSurveys:
    """Of all surveys, what one tier may know. A survey without this tier is not among them."""

    def __init__(self, surveys: SurveyList, tier: str) -> None:
        self._surveys, self._tier = surveys, tier

    def surveys(self, now_ms: int) -> Sequence[Survey]:
        """Return what this tier and the tiers below it may know, by name and id."""
        found = []
        for survey in self._surveys.surveys(now_ms):
            own = {tier.name: tier.rung for tier in survey.tiers}
            if survey.highest_rung <= own.get(self._tier, -1):
                found.append(survey)
        return found


class NamelessHeartbeats:
    """Heartbeats without names of machines, for those who do not run them."""

    def __init__(self, heartbeats: HeartbeatReader) -> None:
        self._heartbeats = heartbeats

    def read(self) -> list[Heartbeat]:
        """Return the latest heartbeat of every worker, numbered."""
        return [
            msgspec.structs.replace(beat, worker=f"worker-{number}", metrics_port=None)
            for number, beat in enumerate(self._heartbeats.read(), 1)
        ]


def tier_tokens(settings: Settings) -> dict[bytes, str]:
    """Return the tiers by the SHA-256 of their tokens, as the settings name them; none without a file.

    Raises:
        SettingsError: the file is wrong, or anybody may read everything anyway.
    """
    if not settings.tier_tokens:
        return {}
    path = readable_file("THAW_TIER_TOKENS", settings.tier_tokens)
    if not settings.token:
        raise SettingsError(
            "THAW_TIER_TOKENS needs THAW_TOKEN, the token of the owner: without it anyone may read all tiers"
        )
    try:
        found = msgspec.convert(tomllib.loads(Path(path).read_text(encoding="utf-8")), _File).token
    except (OSError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise _wrong(path, str(error)) from None
    by_digest: dict[bytes, str] = {}
    for one in found:
        if not re.fullmatch(r"[0-9a-f]{64}", one.token_sha256):
            raise _wrong(path, f"token_sha256 of a token of {one.tier!r} must be 64 hexadecimal digits in lower case")
        by_digest[bytes.fromhex(one.token_sha256)] = one.tier
    if len(by_digest) != len(found):
        raise _wrong(path, "the same token is there twice")
    return by_digest


def _wrong(path: str, why: str) -> SettingsError:
    return SettingsError(
        f"THAW_TIER_TOKENS must be a TOML file of [[token]] tables with tier and token_sha256; got {path!r}: {why}"
    )
