"""Where a tally changed: a compiled loop, since it is asked for every log that a batch touches."""

from __future__ import annotations

from streams.worker.words import Ints, compiled


@compiled
def changed_spans(before: Ints, after: Ints, gap: int, spans: Ints) -> int:
    """Write first and end of every run of changed numbers; return how many. Runs no more than `gap` apart are one.

    `spans` must have a row for every `gap` numbers, and one more.
    """
    count = 0
    last = -gap - 1
    for i in range(len(after)):
        if before[i] != after[i]:
            if i - last > gap:
                spans[count, 0] = i
                count += 1
            spans[count - 1, 1] = i + 1
            last = i
    return count
