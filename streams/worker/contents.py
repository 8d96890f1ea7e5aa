"""Judges what stands inside frames, apart from numbers that are too large: answers, and keys."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from producers.survey.survey import Survey
from producers.wire.layout import HEADER_BYTES, KEY_BYTES, TOKEN_NAME_BYTES, WORD_BYTES, Layout
from streams.store.entry import ANSWER_AT, RUNG_AT
from streams.store.shape import Key, Shape
from streams.worker import kernels
from streams.worker.key_chains import wrong_keys
from streams.worker.words import Ints, Words


def valid_answers(survey: Survey, packed: Words, shape: Shape) -> NDArray[np.bool_]:
    """Return which packed reports have an answer of the survey; a withdrawal has none, and zeros in its place."""
    rows = packed.view(np.uint8).reshape(len(packed), shape.entry_bytes)
    raw = rows[:, ANSWER_AT : ANSWER_AT + shape.width]
    answers = raw if shape.kind == "bits" else np.ascontiguousarray(raw).view(f"<u{shape.width}").ravel()
    valid: NDArray[np.bool_] = survey.mechanism.valid(answers)
    if shape.withdrawal is None:
        return valid
    return np.where(rows[:, RUNG_AT] == shape.withdrawal + 1, ~raw.any(axis=1), valid)


def without_key(survey: Survey, words: Words, frames: Ints, packed: Words, shape: Shape) -> NDArray[np.bool_]:
    """Return which reports of a withdrawable survey do not carry the key of their rung and token.

    `frames` are rows of `kernels.scan_frames` whose lengths were checked, `packed` their reports in the same order.
    """
    tokens, keys = _places(frames, shape)
    rungs = packed.view(np.uint8).reshape(len(packed), shape.entry_bytes)[:, RUNG_AT].astype(np.int64) - 1
    return wrong_keys(
        words,
        tokens,
        keys,
        np.repeat(frames[:, kernels.WINDOW_MS], frames[:, kernels.COUNT]),
        # A frame with a rung that the survey does not have is refused for that.
        np.minimum(rungs, shape.rungs - 1),
        survey.digest,
    )


def keys_of(frames: Mapping[Key, Ints], shapes: Mapping[str, Shape], words: Words) -> dict[Key, NDArray[np.uint8]]:
    """Return by log of a withdrawable survey the key of each report and the end of its token, (n, 16 + 3)."""
    found = {}
    for log, some in frames.items():
        shape = shapes[log.survey_id]
        if shape.withdrawable:
            tokens, keys = (
                words[np.stack([at, at + 1], axis=1)].view(np.uint8).reshape(-1, KEY_BYTES)
                for at in _places(some, shape)
            )
            found[log] = np.hstack([keys, tokens[:, TOKEN_NAME_BYTES:]])
    return found


def _places(frames: Ints, shape: Shape) -> tuple[Ints, Ints]:
    """Return by report of these frames the words at which its token and its key begin."""
    counts = frames[:, kernels.COUNT]
    lengths, which = np.unique(counts, return_inverse=True)
    layout = Layout(shape.width, shape.groups > 1, keyed=True)
    behind = np.array([sum(layout.column_bytes(count)[:-1]) for count in lengths.tolist()], dtype=np.int64)
    tokens = (frames[:, kernels.START] + HEADER_BYTES) // WORD_BYTES
    keys = tokens + behind[which] // WORD_BYTES
    inside = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    inside *= KEY_BYTES // WORD_BYTES
    return np.repeat(tokens, counts) + inside, np.repeat(keys, counts) + inside
