"""The surveys of a chaos run: short windows, so that many of them live and die under it; all kinds of answers."""

from __future__ import annotations

from tests.support.surveys import survey_text

_SHORT = {"jitter": 'jitter = "500ms"', "retention": 'retention = "1d"', "lifetime": "lifetime = 1000000"}

FLEET = survey_text(
    name='name = "chaos-colour"',
    values='values = ["red", "green", "blue", "black", "white"]',
    opens='opens = ["0s", "1s", "3s"]',
    size='size = "4s"',
    **_SHORT,
)

BITS = """
name = "chaos-site"
question = "Which site?"
values = ["a", "b", "c", "d", "e", "f", "g", "h"]
shards = 8
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

AGENTS = survey_text(
    name='name = "chaos-agents"',
    values='values = ["walk", "bike", "bus", "train", "car"]',
    shards="shards = 32",
    opens='opens = ["0s", "1s", "2s"]',
    size='size = "10s"',
    **_SHORT,
)
