"""Frames of other versions, translated into those that the compiled loops read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from producers.survey.survey import Survey
from producers.wire.frames import READERS, FrameError, encode
from producers.wire.layout import VERSION_AT
from streams.worker import kernels
from streams.worker.words import Ints, Words


def translate(
    values: Sequence[bytes],
    starts: Ints,
    words: Words,
    frames: Ints,
    digests: Words,
    survey_of: Callable[[bytes], Survey | None],
) -> Words:
    """Translate the frames that `scan_frames` refused for a version which has a reader; return the extended buffer.

    `values` are the messages and `starts` their positions in `words`. The rows of translated frames in `frames` and
    `digests` are rewritten: they name the translation behind the end of `words`. A frame that its reader refuses stays
    where it is, with the reader's reason.
    """
    added: list[bytes] = []
    end = words.nbytes
    for row in np.flatnonzero(frames[:, kernels.FAULT] == kernels.BAD_VERSION):
        message, length = int(frames[row, kernels.MESSAGE]), int(frames[row, kernels.LENGTH])
        value, start = values[message], int(frames[row, kernels.START] - starts[message])
        reader = READERS.get(value[start + VERSION_AT])
        if reader is None:
            continue
        try:
            header = reader.header(value, start, length)
            digests[row] = int.from_bytes(header.digest, "little")
            frames[row, kernels.WINDOW_MS :] = (
                header.window_ms,
                header.sent_ms,
                header.shard,
                header.count,
                kernels.GOOD,
                header.version,
            )
            survey = survey_of(header.digest)
            if survey is None:
                continue
            reports = reader.columns(value, header, survey.layout)
        except FrameError as error:
            frames[row, kernels.FAULT] = kernels.FAULTS.index(error.reason)
            continue
        frame = encode(header.digest, header.window_ms, header.sent_ms, header.shard, reports, survey.layout)
        frames[row, kernels.START], frames[row, kernels.LENGTH] = end, len(frame)
        frames[row, kernels.VERSION] = survey.layout.version
        added.append(frame)
        end += len(frame)
    return np.frombuffer(b"".join([words.tobytes(), *added]), dtype=np.uint64) if added else words
