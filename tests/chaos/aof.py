"""What a power cut does to Redis' append-only file: its end is gone, cut at a random byte."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOST_BYTES = 400_000
"""Of a cut. A real one takes about a second with `appendfsync everysec`; this is several, to be on the cruel side."""
LAST_SCRIPTS = 30


class Command(NamedTuple):
    """One command in the file: its name and where it lies."""

    name: bytes
    start: int
    end: int


def aof_file(folder: Path) -> Path:
    """Return the file that Redis appends to: the last one of the manifest, or the only one of versions before 7."""
    parts = folder / "appendonlydir"
    manifest = next(iter(parts.glob("*.manifest")), None)
    if manifest is None:
        return folder / "appendonly.aof"
    words = [line.split() for line in manifest.read_text().splitlines()]
    return parts / [entry[1] for entry in words if entry[5] == "i"][-1]


def commands(raw: bytes) -> Iterator[Command]:
    """Walk the commands of a file; a torn one at the end is left out."""
    position = 0
    while position < len(raw):
        start = position
        try:
            position, count = _number(raw, position, b"*")
            words = []
            for _ in range(count):
                position, length = _number(raw, position, b"$")
                words.append(raw[position : position + length])
                position += length + 2
        except ValueError:
            return
        if position > len(raw):
            return
        yield Command(words[0].upper(), start, position)


def _number(raw: bytes, position: int, kind: bytes) -> tuple[int, int]:
    end = raw.index(b"\r\n", position)
    if raw[position : position + 1] != kind:
        raise ValueError(f"expected {kind!r} at byte {position}")
    return end + 2, int(raw[position + 1 : end])


def scripts(raw: bytes) -> list[list[Command]]:
    """Return the transactions that append to a log: what one run of the apply script wrote."""
    found: list[list[Command]] = []
    inside: list[Command] | None = None
    for command in commands(raw):
        if command.name == b"MULTI":
            inside = [command]
        elif inside is not None:
            inside.append(command)
            if command.name == b"EXEC":
                if any(part.name == b"RPUSH" for part in inside):
                    found.append(inside)
                inside = None
    return found


def cut_anywhere(folder: Path, rng: random.Random) -> int:
    """Cut the end off; return how many bytes went."""
    path = aof_file(folder)
    size = path.stat().st_size
    # Empty right after a rewrite: then there is nothing to lose.
    return _cut(path, size - rng.randint(min(1, size), min(size, MOST_BYTES)))


def cut_inside_a_script(folder: Path, rng: random.Random) -> int:
    """Cut between MULTI and EXEC of one of the last scripts, where half of a batch is written; bytes that went."""
    path = aof_file(folder)
    found = scripts(path.read_bytes())
    if not found:
        return cut_anywhere(folder, rng)
    chosen = rng.choice(found[-LAST_SCRIPTS:])
    # Half of the time exactly between two commands: nothing then tells Redis that something is missing but the EXEC.
    part = rng.choice(chosen[1:])
    return _cut(path, part.start if rng.random() < 0.5 else rng.randrange(part.start, part.end))


def _cut(path: Path, size: int) -> int:
    before = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size)
    return before - size
