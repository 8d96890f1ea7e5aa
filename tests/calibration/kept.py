"""Finished parts of a run on disk, so that an interrupted run goes on where it was."""

from __future__ import annotations

import ast
import hashlib
import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".cache" / "calibration"
COUNTING = ("cells", "counts", "derived", "judge", "run", "wald", "worlds")
"""Modules of this folder that decide what a cell of bands finds. The others plan, keep and report."""

T = TypeVar("T")


@dataclass(frozen=True)
class Kept:
    """Parts that the same code found: a folder that no other code shares, with one file per part."""

    folder: Path

    @classmethod
    def of(cls, *key: object, under: Path = FOLDER, sources: Path = ROOT, modules: Collection[str] = ()) -> Kept:
        """Return the folder of this key and of today's code: a part that other code found is not found again.

        modules: those that the part runs, with all that they import, and the counting ones; none: all estimators and
        the whole suite.
        """
        digest = hashlib.sha256(repr(key).encode())
        for path in _sources(sources, tuple(sorted(modules))):
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


def _sources(root: Path, modules: tuple[str, ...]) -> list[Path]:
    suite = root / "tests" / "calibration"
    if not modules:
        return sorted([*(root / "estimators").rglob("*.py"), *suite.glob("*.py")])
    return sorted({*(suite / f"{name}.py" for name in COUNTING), *imported(root, modules)})


@lru_cache(maxsize=64)
def imported(root: Path, modules: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the files of these modules and of all modules of the same packages that they import."""
    packages = {name.split(".")[0] for name in modules}
    found: dict[Path, None] = {}
    left = list(modules)
    while left:
        name = left.pop()
        path = next((p for p in _places(root, name) if p.is_file()), None)
        if path is not None and path not in found:
            found[path] = None
            left += [other for other in _names(path) if other.split(".")[0] in packages]
    return tuple(found)


def _places(root: Path, module: str) -> tuple[Path, Path]:
    place = root.joinpath(*module.split("."))
    return place.with_suffix(".py"), place / "__init__.py"


def _names(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            # What is imported from a package may be a module.
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
