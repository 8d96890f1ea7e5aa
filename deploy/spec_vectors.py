"""Write docs/spec/vectors.json: what a client must compute, made by the code of this project.

Every draw says which random words it took, in order; a client that is given the same words must come to the same bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from deploy.spec_stories import COLOURS, STORIES, WINDOW_MS, WITHDRAWABLE, served, survey, told
from estimators.channels.bloom import positions
from estimators.exact.randomness import SecureBits, SeededBits, Words, below
from estimators.mechanisms.registry import randomizer_of
from producers.device.budget import cost_units
from producers.device.encoding import encoded, token_of, withdrawals
from producers.device.ledger import StoredChain
from producers.survey.document import document_of, sealed
from producers.survey.survey import Survey
from producers.survey.windows import Windows
from producers.wire.keys import key_chain
from producers.wire.layout import TOKEN_BYTES
from producers.wire.shards import partition_of, shards_of
from producers.wire.transport import answer_bytes

PATH: Final = Path(__file__).parents[1] / "docs" / "spec" / "vectors.json"
SECRET: Final = bytes(range(32))

SIGNS: Final = 'values = ["none", "plus", "minus"]'

MECHANISMS: Final[dict[str, tuple[str, str, list[Any]]]] = {
    "grr": (COLOURS, 'name = "grr"', ["red", "blue", "grün"]),
    "warner": ('values = ["no", "yes"]', 'name = "warner"', ["no", "yes"]),
    "urr": (COLOURS, 'name = "urr"\nsensitive = ["blue", "red"]', ["green", "red", "blue"]),
    "mangat": (
        'values = ["no", "yes"]\naccept_risk = "Nobody minds to be known to have said no."',
        'name = "mangat"\nsensitive = "yes"',
        ["no", "yes"],
    ),
    "ewrr": (COLOURS, 'name = "ewrr"', ["red", "blue"]),
    **{name: (SIGNS, f'name = "{name}"', ["none", "minus"]) for name in ("rr3_dagger", "rr3_ddagger", "rr3_club")},
    "simmons": ('values = ["no", "yes"]', 'name = "simmons"\ncoin = 0.25', ["no", "yes"]),
    "sue": (COLOURS, 'name = "sue"', ["red", "grün"]),
    "oue": ("values = [" + ", ".join(f'"v{i}"' for i in range(11)) + "]", 'name = "oue"', ["v0", "v9"]),
    "rappor": (
        'values = ["https://example.org"]',
        'name = "rappor"\nbits = 20\nhashes = 3\ncohorts = 5',
        ["https://example.org", "über", "x" * 300],
    ),
    "mean": ('values = ["hours"]', 'name = "mean"\nlow = -1.5\nhigh = 24', [-1.5, 0.1, 23.9, 99]),
    "mean-squares": ('values = ["hours"]', 'name = "mean"\nlow = -2\nhigh = 10\nmoments = 2', [0.5, 9]),
}
"""By name: the values, the mechanism, and true values to draw answers of."""


class Recorded:
    """Words that are given first, then seeded ones; all that were taken are remembered."""

    def __init__(self, name: str, first: Sequence[int] = ()) -> None:
        self._first, self._more = list(first), SeededBits(1, "spec", name)
        self.taken: list[int] = []

    def words(self, count: int) -> Words:
        """Return the next words."""
        given = self._first[:count]
        self._first = self._first[count:]
        made = [*given, *self._more.words(count - len(given)).tolist()]
        self.taken += made
        return np.array(made, dtype=np.uint64)


def _hex(words: Sequence[int]) -> list[str]:
    return [f"{word:016x}" for word in words]


def surveys() -> dict[str, Survey]:
    """Return the surveys that vectors refer to, by name."""
    found = {name: survey(name, values, mechanism) for name, (values, mechanism, _) in MECHANISMS.items()}
    found["taken-back"] = survey("taken-back", COLOURS, 'name = "grr"', jitter="0s", more=WITHDRAWABLE)
    found["coarse"] = survey("coarse", COLOURS, 'name = "grr"', ladder="[0.0001, 0.5]", opens='["0s", "10s"]')
    return found


def _draws(asked: dict[str, Survey]) -> list[dict[str, Any]]:
    plain = [
        _draw(known, value, Recorded(f"{name} {value}"))
        for name, known in asked.items()
        for value in (MECHANISMS[name][2] if name in MECHANISMS else ["red", "green"])
    ]
    chain = asked["grr"].mechanism.canonical()["chain"]["top"]
    keep, base = int(chain["keep"]), int(chain["base"])
    edges = (0, keep - 1, keep, keep + base - 1, keep + base, keep + 5 * base - 1, (1 << 64) - 1)
    block = asked["oue"].mechanism.canonical()["chain"]["top"]["blocks"][0]
    zero, one = int(block["zero"]), int(block["one"])
    bits = ([zero - 1, one - 1, zero, 0, (1 << 64) - 1], [zero, one, zero - 1])
    return [
        *plain,
        *(_draw(asked["grr"], "green", Recorded("edge", [word])) for word in edges),
        *(_draw(asked["oue"], "v1", Recorded("edge", words)) for words in bits),
    ]


def _draw(known: Survey, value: Any, bits: Recorded) -> dict[str, Any]:
    """Draw a chain and its delays as a device does, and say which words that took."""
    randomizer, width = randomizer_of(known.mechanism), known.mechanism.answer.width
    drawn = randomizer.draw(randomizer.encode([value], bits), bits)
    delays = below(known.jitter_ms + 1, known.mechanism.rungs, bits).tolist()
    return {
        "survey": known.name,
        "value": value,
        "words": _hex(bits.taken),
        "answers": [answer_bytes(rung, width).tobytes().hex() for rung in drawn.answers],
        "group": int(drawn.groups[0]),
        "delays_ms": delays,
    }


def _below() -> list[dict[str, Any]]:
    found = []
    for bound, count, first in (
        (1, 2, []),
        (8, 3, []),
        (5, 4, [(1 << 64) - 1, 0, (1 << 64) - 2]),
        (7_001, 3, []),
        ((1 << 63) + 1, 2, [(1 << 63) + 1, (1 << 64) - 1, 1 << 63]),
    ):
        bits = Recorded(f"below {bound}", first)
        drawn = below(bound, count, bits).tolist()
        found.append({"bound": str(bound), "count": count, "words": _hex(bits.taken), "drawn": list(map(str, drawn))})
    return found


def _tokens(known: Survey) -> list[dict[str, Any]]:
    found = []
    for window_ms in (0, WINDOW_MS, (1 << 53) - 1):
        token = token_of(SECRET, known, window_ms, 0)
        shard = int(shards_of(np.frombuffer(token, dtype=np.uint8).reshape(1, TOKEN_BYTES), known.shards)[0])
        found.append(
            {
                "secret": SECRET.hex(),
                "digest": known.digest.hex(),
                "window_ms": window_ms,
                "token": token.hex(),
                "shards": known.shards,
                "shard": shard,
                "partition_of_6": partition_of(shard, 6),
            }
        )
    return found


def _keys(known: Survey) -> list[dict[str, Any]]:
    found = []
    for window_ms in (0, WINDOW_MS):
        secret = token_of(SECRET, known, window_ms, 0)
        token, *keys = key_chain(secret, known.mechanism.rungs, known.digest, window_ms)
        found.append(
            {
                "secret_key": secret.hex(),
                "rungs": known.mechanism.rungs,
                "digest": known.digest.hex(),
                "window_ms": window_ms,
                "token": token.hex(),
                "keys": [key.hex() for key in keys],
            }
        )
    return found


def _frames(asked: dict[str, Survey]) -> list[dict[str, Any]]:
    names = ("grr", "oue", "rappor", "taken-back")
    return [frame for name in names for frame in _frames_of(asked[name], MECHANISMS.get(name, MECHANISMS["grr"])[2][0])]


def _frames_of(known: Survey, value: Any) -> list[dict[str, Any]]:
    """Encode all rungs of a chain, and its withdrawal where there is one."""
    drawn = _draw(known, value, Recorded(f"frame {known.name}"))
    named = token_of(SECRET, known, WINDOW_MS, 0)
    keys = key_chain(named, known.mechanism.rungs, known.digest, WINDOW_MS) if known.withdrawable else [named]
    chain = StoredChain(
        survey_id=known.id,
        window_ms=WINDOW_MS,
        answers=b"".join(map(bytes.fromhex, drawn["answers"])),
        groups=(drawn["group"],),
        epsilons=known.mechanism.epsilons,
        jitters_ms=tuple((delay,) for delay in drawn["delays_ms"]),
        drawn_ms=WINDOW_MS + 5,
        released=(),
        charged_units=0,
        expires_ms=known.expiry_ms(WINDOW_MS),
    )
    found = []
    for rung, answer in enumerate(drawn["answers"]):
        released_ms = WINDOW_MS + 5 if rung == 0 else known.opening_ms(WINDOW_MS, rung) + 3
        [report] = encoded(known, chain, rung, released_ms, [named])
        place = (rung, drawn["group"], answer, released_ms, drawn["delays_ms"][rung], report.ready_ms, report.frame)
        found.append(_frame(known, keys, *place))
    for taken_back in withdrawals(known, chain, [named], SecureBits()) if known.withdrawable else ():
        nothing = bytes(known.layout.width).hex()
        place = (taken_back.rung, 0, nothing, WINDOW_MS + 9, 0, WINDOW_MS + 9, taken_back.frame)
        found.append(_frame(known, keys, *place))
    return found


def _frame(
    known: Survey,
    keys: Sequence[bytes],
    rung: int,
    group: int,
    answer: str,
    released_ms: int,
    delay_ms: int,
    ready_ms: int,
    frame: bytes,
) -> dict[str, Any]:
    return {
        "survey": known.name,
        "window_ms": WINDOW_MS,
        "token": keys[0].hex(),
        "key": keys[rung + 1].hex() if known.withdrawable else None,
        "rung": rung,
        "group": group,
        "answer": answer,
        "released_ms": released_ms,
        "delay_ms": delay_ms,
        "ready_ms": ready_ms,
        "frame": frame.hex(),
    }


def _envelopes(known: Survey) -> list[dict[str, Any]]:
    key = Ed25519PrivateKey.from_private_bytes(SECRET)
    public = key.public_key().public_bytes_raw()
    document = document_of(known, "# the text of the file", WINDOW_MS, WINDOW_MS + 3_600_000)
    good = sealed(document, key.sign, public)
    envelope = msgspec.json.decode(good)
    payload = base64.b64decode(envelope["payload"])
    forged = envelope | {"payload": base64.b64encode(payload.replace(b"grr", b"rrg")).decode()}
    unsigned = envelope | {"signature": None, "key": None}
    known_key = {"key": base64.b64encode(public).decode()}
    return [
        known_key | {"envelope": envelope, "now_ms": WINDOW_MS, "taken": True, "id": known.id},
        known_key | {"envelope": forged, "now_ms": WINDOW_MS, "taken": False},
        known_key | {"envelope": unsigned, "now_ms": WINDOW_MS, "taken": False},
        known_key | {"envelope": envelope, "now_ms": WINDOW_MS + 3_600_000, "taken": False},
        known_key | {"envelope": envelope, "now_ms": WINDOW_MS - 3_600_001, "taken": False},
        {"key": None, "envelope": unsigned, "now_ms": WINDOW_MS, "taken": True, "id": known.id},
    ]


def vectors() -> dict[str, Any]:
    """Return all vectors."""
    asked = surveys()
    bloom = [("thaw", 0, 64, 2), ("über", 4, 20, 3), ("", 65_535, 65_536, 8), ("x" * 300, 1, 7, 5)]
    windows = [(60_000, 60_000, 60_000), (60_000, 20_000, 60_000), (7_000, 2_000, 1_790_000_000_001)]
    costs = [0.5, 1e-13, 0.1, 1.9999999999999998, 19.999999999, 2**-40]
    return {
        "version": 1,
        "surveys": {name: served(known) for name, known in asked.items()},
        "below": _below(),
        "draws": _draws(asked),
        "bloom": [
            {"text": text, "cohort": cohort, "bits": bits, "hashes": hashes, "positions": list(set_)}
            for text, cohort, bits, hashes in bloom
            for set_ in [positions(text, cohort, bits=bits, hashes=hashes)]
        ],
        "costs": [{"epsilon": epsilon, "units": str(cost_units(epsilon))} for epsilon in costs],
        "windows": [_windows(*row) for row in windows],
        "tokens": _tokens(asked["grr"]),
        "keys": _keys(asked["taken-back"]),
        "frames": _frames(asked),
        "envelopes": _envelopes(asked["grr"]),
        "stories": [told(name, *story) for name, story in STORIES.items()],
    }


def _windows(size_ms: int, step_ms: int, now_ms: int) -> dict[str, Any]:
    starts = list(Windows(size_ms, step_ms).starts(now_ms))
    return {"size_ms": size_ms, "step_ms": step_ms, "now_ms": now_ms, "starts": starts}


def text() -> str:
    """Return the file."""
    return msgspec.json.format(msgspec.json.encode(vectors(), order="deterministic"), indent=1).decode() + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
