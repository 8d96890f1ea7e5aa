"""The surveys of a chaos run: short windows, so that many of them live and die under it; all kinds of answers."""

from __future__ import annotations

from tests.support.continuing import text_with_rungs, with_rungs
from tests.support.surveys import survey_text

_SHORT = {"jitter": 'jitter = "500ms"', "retention": 'retention = "1d"', "lifetime": "lifetime = 1000000"}

FLEET = survey_text(
    name='name = "chaos-colour"',
    values='values = ["red", "green", "blue", "black", "white"]',
    opens='opens = ["0s", "1s", "3s"]',
    size='size = "4s"',
    shards="shards = 16\ntiers = {public = 0, partners = 1}",
    **_SHORT,
)
"""What two audiences may know of it is judged as surveys are."""

BITS = """
name = "chaos-site"
question = "Which site?"
values = ["a", "b", "c", "d", "e", "f", "g", "h"]
shards = 8
withdrawable = true
[mechanism]
name = "oue"
[release]
kind = "listed"
ladder = [0.5, 1.0]
opens = ["0s", "2s"]
[window]
size = "6s"
retention = "1d"
[budget]
lifetime = 1000000
"""

KEYS = """
name = "chaos-films"
question = "Which films, and how good?"
values = ["a", "b", "c", "d"]
shards = 8
[mechanism]
name = "pckv_ue"
padding = 2
[release]
kind = "listed"
ladder = [1.0, 2.0]
opens = ["0s", "2s"]
[window]
size = "6s"
retention = "1d"
[budget]
lifetime = 1000000
"""

_TRIPS = {"name": 'name = "chaos-trips"', "size": 'size = "6s"', **_SHORT}

LONGER = text_with_rungs(
    3, with_rungs(2, opens='opens = ["0s", "1s"]', **_TRIPS).id, opens='opens = ["0s", "1s", "3s"]', **_TRIPS
)
"""It continues a survey with two levels, so frames of one chain name both, and each token counts once."""

AGENTS = survey_text(
    name='name = "chaos-agents"',
    values='values = ["walk", "bike", "bus", "train", "car"]',
    shards="shards = 32",
    opens='opens = ["0s", "1s", "2s"]',
    size='size = "10s"\nstanding = true',
    **_SHORT,
)
