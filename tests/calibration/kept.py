"""Finished parts of a run on disk, so that an interrupted run goes on where it was."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".cache" / "calibration"

T = TypeVar("T")


@dataclass(frozen=True)
class Kept:
    """The parts of one run: a folder that no other run shares, with one file per part."""

    folder: Path

    @classmethod
    def of(cls, *key: object, under: Path = FOLDER, sources: Path = ROOT) -> Kept:
        """Return the folder of this key and of today's code: a part that other code found is not found again."""
        digest = hashlib.sha256(repr(key).encode())
        for path in sorted(
            [*(sources / "estimators").rglob("*.py"), *(sources / "tests" / "calibration").glob("*.py")]
        ):
            digest.update(path.relative_to(sources).as_posix().encode() + b"\0" + path.read_bytes())
        return cls(under / digest.hexdigest()[:16])

    def get(self, name: str, find: Callable[[], Sequence[T]]) -> Sequence[T]:
        """Return what was found under this name, or find it and keep it."""
        path = self.folder / hashlib.sha256(name.encode()).hexdigest()[:32]
        if path.exists():
            kept: Sequence[T] = pickle.loads(path.read_bytes())
            return kept
        found = find()
        self.folder.mkdir(parents=True, exist_ok=True)
        # Another name first: a run that is killed here leaves no half of a part.
        half = path.with_suffix(".half")
        half.write_bytes(pickle.dumps(found))
        half.rename(path)
        return found
