"""Deliveries: a file of frames for each, in an order that follows from its content alone.

A delivered answer has a token of the market's own, the same in all deliveries, so that a buyer of a higher level finds
the answers of the lower one again. It is an HMAC under the secret of the books: whoever has a delivery knows no token
of the topic of reports, and so cannot send a sharper answer in the name of a device.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from producers.survey.survey import Survey
from producers.wire.frames import Reports
from producers.wire.layout import GROUP_TYPE, TOKEN_BYTES, Layout
from producers.wire.transport import frames_of
from streams.market.books import Delivered
from streams.market.failures import MarketError
from streams.market.receipt import Receipt, SoldWindow

_PLACE = struct.Struct("<qI")


@dataclass(frozen=True)
class Form:
    """What the frames of a delivery say of its survey."""

    survey_id: str
    digest: bytes
    shards: int
    layout: Layout

    @classmethod
    def of(cls, survey: Survey) -> Form:
        """Return the form of deliveries today: as reports, without keys, which are for devices alone."""
        return cls(survey.id, survey.digest, survey.shards, Layout(survey.layout.width, survey.layout.grouped))

    @classmethod
    def as_told(cls, receipt: Receipt) -> Form:
        """Return the form of a delivery, whatever became of its survey."""
        return cls(receipt.survey, bytes.fromhex(receipt.digest), receipt.shards, receipt.layout)


def token_of(secret: bytes, survey_id: str, window_ms: int, shard: int, name: bytes) -> bytes:
    """Return the delivered token of a chain."""
    place = survey_id.encode() + b"\0" + _PLACE.pack(window_ms, shard) + name
    return hmac.digest(secret, place, hashlib.sha256)[:TOKEN_BYTES]


def delivery_of(secret: bytes, form: Form, rung: int, answers: Sequence[Delivered]) -> tuple[bytes, list[SoldWindow]]:
    """Return the file of answers, and how many of each rung up to the sold one it has, by window."""
    windows: dict[int, list[tuple[bytes, Delivered]]] = {}
    for one in answers:
        token = token_of(secret, form.survey_id, one.window_ms, one.shard, one.place.name)
        windows.setdefault(one.window_ms, []).append((token, one))
    made, told = [], []
    for window_ms, rows in sorted(windows.items()):
        rows.sort(key=lambda row: row[0])
        tokens = np.frombuffer(b"".join(token for token, _ in rows), dtype=np.uint8).reshape(len(rows), TOKEN_BYTES)
        cells = np.frombuffer(b"".join(one.answer for _, one in rows), dtype=np.uint8).reshape(len(rows), -1)
        columns, width = np.ascontiguousarray(cells), form.layout.width
        groups = np.ascontiguousarray(columns[:, width:]).view(GROUP_TYPE).reshape(-1) if form.layout.grouped else None
        rungs = np.array([one.place.rung for _, one in rows], dtype=np.uint8)
        packed = frames_of(form, window_ms, window_ms, tokens, columns[:, :width], rungs, groups, partitions=1)
        made += packed[0]
        told.append(SoldWindow(window_ms, tuple(np.bincount(rungs, minlength=rung + 1).tolist())))
    return b"".join(made), told


def answers_in(reports: Reports) -> dict[tuple[bytes, int], bytes]:
    """Return the answers of a window, with their groups, by delivered token and rung."""
    columns = [reports.answers]
    if reports.groups is not None:
        columns.append(reports.groups.astype(GROUP_TYPE).view(np.uint8).reshape(len(reports), -1))
    cells = np.concatenate(columns, axis=1)
    rows = zip(map(bytes, reports.tokens), reports.rungs.tolist(), map(bytes, cells), strict=True)
    return {(token, rung): cell for token, rung, cell in rows}


def write_file(path: Path, raw: bytes) -> None:
    """Write a file in one step, so that nobody reads half of it, for its owner only.

    Raises:
        MarketError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise MarketError(
            f"{path} cannot be written ({error.strerror}); the sale is in the books: mend that and run "
            "`thaw market deliver`"
        ) from None
