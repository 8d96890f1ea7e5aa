"""The surveys of a chaos run: short windows, so that many of them live and die under it; two kinds of answers."""

from __future__ import annotations

FLEET = """
name = "chaos-colour"
question = "Which colour?"
values = ["red", "green", "blue", "black", "white"]
shards = 16
[mechanism]
name = "grr"
[release]
kind = "listed"
ladder = [0.5, 1.0, 2.0]
opens = ["0s", "1s", "3s"]
jitter = "500ms"
[window]
size = "4s"
retention = "1d"
[budget]
lifetime = 1000000
"""

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

AGENTS = """
name = "chaos-agents"
question = "How do you travel?"
values = ["walk", "bike", "bus", "train", "car"]
shards = 32
[mechanism]
name = "grr"
[release]
kind = "listed"
ladder = [0.5, 1.0, 2.0]
opens = ["0s", "1s", "2s"]
jitter = "500ms"
[window]
size = "10s"
retention = "1d"
[budget]
lifetime = 1000000
"""
