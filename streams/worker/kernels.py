"""Compiled inner loops of the worker: walk frames, pack reports, fold packed reports into a table.

All of them work on 8-byte words, little-endian, and release the interpreter lock, so that a consumer in another thread
goes on fetching. They trust nothing: whatever could lead outside an array is checked first. Python twins that pass the
same tests: `producers.wire.frames.headers` for `scan_frames`, `tests.support.plain_table` for `fold_entries`.

The layout of frames stands in `producers.wire.layout`, that of packed reports in `streams.store.entry`; compiled code
takes their numbers as constants.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from producers.wire import layout
from producers.wire.layout import GROUP_BYTES, HEADER_BYTES, MAX_REPORTS, RUNG_BYTES, TOKEN_BYTES, TOKEN_NAME_BYTES
from streams.store.counters import FRAME_REASONS
from streams.store.entry import ANSWER_AT, RUNG_AT
from streams.worker.precedence import compare
from streams.worker.vectors import copy_answer, count_bits
from streams.worker.words import Ints, Words, byte_at, compiled, inlined

FRAME_FIELDS: Final = 9
MESSAGE, START, LENGTH, WINDOW_MS, SENT_MS, SHARD, COUNT, FAULT, VERSION = range(FRAME_FIELDS)
"""Columns of what `scan_frames` writes for each frame; START and LENGTH are bytes in the joined buffer."""

FAULTS: Final = ("", *FRAME_REASONS)
"""Reasons behind the numbers in FAULT. After `length` and `magic` the rest of the message cannot be delimited."""
GOOD, EMPTY, BAD_LENGTH, BAD_MAGIC, BAD_VERSION, BAD_COUNT = range(6)


def _shift_of(at: int) -> np.uint64:
    """Return by how many bits a word is shifted so that the byte at offset `at` comes first."""
    return np.uint64(8 * (at % layout.WORD_BYTES))


def _mask_of(size: int) -> np.uint64:
    """Return the mask of the first `size` bytes of a word."""
    return np.uint64((1 << 8 * size) - 1)


# Fields of a frame: the word each stands in, counted from the frame's first, and its place inside it.
_MAGIC: Final = np.uint64(int.from_bytes(layout.MAGIC, "little"))
_MAGIC_MASK: Final = _mask_of(len(layout.MAGIC))
_PLAIN: Final = layout.PLAIN_VERSION
_KEYED: Final = layout.KEYED_VERSION
_VERSION_SHIFT: Final = _shift_of(layout.VERSION_AT)
_LENGTH_SHIFT: Final = _shift_of(layout.LENGTH_AT)
_DIGEST_WORD: Final = layout.DIGEST_AT // layout.WORD_BYTES
_WINDOW_WORD: Final = layout.WINDOW_AT // layout.WORD_BYTES
_SENT_WORD: Final = layout.SENT_AT // layout.WORD_BYTES
_LAST_WORD: Final = layout.SHARD_AT // layout.WORD_BYTES
_COUNT_SHIFT: Final = _shift_of(layout.COUNT_AT)
_TOKEN_WORDS: Final = TOKEN_BYTES // layout.WORD_BYTES

# Fields of a token and of an entry: the second word of both begins with the rest of the token's name.
_NAME_MASK: Final = _mask_of(TOKEN_NAME_BYTES % layout.WORD_BYTES)
_TAIL_SHIFT: Final = _shift_of(TOKEN_NAME_BYTES)
_RUNG_SHIFT: Final = _shift_of(RUNG_AT)
_ANSWER_SHIFT: Final = _shift_of(ANSWER_AT)

_U8: Final = np.uint64(8)
_U32: Final = np.uint64(32)
_BYTE: Final = np.uint64(0xFF)
_TWO_BYTES: Final = np.uint64(0xFFFF)
_FOUR_BYTES: Final = np.uint64(0xFFFFFFFF)
_ZERO: Final = np.uint64(0)
_ONE: Final = np.uint64(1)


@compiled
def scan_frames(words: Words, starts: Ints, lengths: Ints, frames: Ints, digests: Words) -> int:
    """Walk the frames of all messages; return how many rows were written to `frames` and `digests`.

    Message i is `lengths[i]` bytes from byte `starts[i]` (a multiple of 8) of `words`. The arrays must have room for
    one row per HEADER_BYTES bytes and one per message.
    """
    row = 0
    for message in range(len(starts)):
        position = starts[message]
        end = position + lengths[message]
        if position == end:
            frames[row, 0] = message
            frames[row, 1] = position
            frames[row, 2] = 0
            frames[row, 7] = 1
            digests[row] = _ZERO
            row += 1
        while position < end:
            left = end - position
            fault = 0
            length = left
            if left < HEADER_BYTES:
                fault = 2
            else:
                word = position >> 3
                first = words[word]
                claimed = np.int64(first >> _LENGTH_SHIFT)
                if first & _MAGIC_MASK != _MAGIC:
                    fault = 3
                elif claimed < HEADER_BYTES or claimed > left or claimed & 7:
                    fault = 2
                else:
                    length = claimed
                    last = words[word + _LAST_WORD]
                    count = np.int64((last >> _COUNT_SHIFT) & _FOUR_BYTES)
                    version = np.int64((first >> _VERSION_SHIFT) & _BYTE)
                    frames[row, 8] = version
                    if version != _PLAIN and version != _KEYED:
                        fault = 4
                    elif count < 1 or count > MAX_REPORTS:
                        fault = 5
                    frames[row, 3] = np.int64(words[word + _WINDOW_WORD])
                    frames[row, 4] = np.int64(words[word + _SENT_WORD])
                    frames[row, 5] = np.int64(last & _TWO_BYTES)
                    frames[row, 6] = count
                    digests[row] = words[word + _DIGEST_WORD]
            frames[row, 0] = message
            frames[row, 1] = position
            frames[row, 2] = length
            frames[row, 7] = fault
            if fault:
                digests[row] = _ZERO
            row += 1
            position += length
    return row


PACK_FAULTS: Final = ("", "rung", "token", "group", "early")
"""Reasons behind the numbers in the `faults` of `pack_frames`."""


@compiled
def pack_frames(
    words: Words,
    starts: Ints,
    counts: Ints,
    shard_of_frame: Ints,
    width: int,
    rungs: int,
    groups: int,
    shards: int,
    opened: Ints,
    withdrawal: int,
    out: Words,
    faults: Ints,
) -> None:
    """Pack the reports of all frames into `out`, one entry a row, and note the first fault of each frame.

    `starts` are byte positions of frames in `words` whose lengths were checked against the survey's layout; `opened` is
    the number of rungs that were open when each frame came; `withdrawal` is the rung of withdrawals, which are never
    early, or negative if the survey has none.
    Long because it is one loop, and calls inside it would cost time per report.
    """
    row = 0
    size = out.shape[1]
    for frame in range(len(starts)):
        count = counts[frame]
        tokens = (starts[frame] + HEADER_BYTES) >> 3
        answers = (tokens << 3) + TOKEN_BYTES * count
        rung_at = answers + ((width * count + 7) >> 3 << 3)
        group_at = rung_at + ((RUNG_BYTES * count + 7) >> 3 << 3)
        shard = shard_of_frame[frame]
        fault = 0
        for i in range(count):
            second = words[tokens + _TOKEN_WORDS * i + 1]
            if np.int64(second >> _TAIL_SHIFT) % shards != shard and fault == 0:
                fault = 2
            at = rung_at + i
            rung = (words[at >> 3] >> np.uint64((at & 7) << 3)) & _BYTE
            if np.int64(rung) >= opened[frame] and np.int64(rung) != withdrawal and fault == 0:
                fault = 1 if np.int64(rung) >= rungs else 4
            out[row, 0] = words[tokens + _TOKEN_WORDS * i]
            second = (second & _NAME_MASK) | ((rung + _ONE) & _BYTE) << _RUNG_SHIFT
            target = ANSWER_AT
            at = answers + width * i
            if size == 2:
                for _ in range(width):
                    second |= ((words[at >> 3] >> np.uint64((at & 7) << 3)) & _BYTE) << np.uint64((target & 7) << 3)
                    target += 1
                    at += 1
                out[row, 1] = second
            else:
                out[row, 1] = second
                copy_answer(words, at, width, out, row)
                target += width
            if groups > 1:
                at = group_at + GROUP_BYTES * i
                group = (words[at >> 3] >> np.uint64((at & 7) << 3)) & _TWO_BYTES
                if (np.int64(group) >= groups or (np.int64(rung) == withdrawal and group != _ZERO)) and fault == 0:
                    fault = 3
                out[row, target >> 3] |= (group & _BYTE) << np.uint64((target & 7) << 3)
                target += 1
                out[row, target >> 3] |= (group >> _U8) << np.uint64((target & 7) << 3)
            row += 1
        faults[frame] = fault


@compiled
def slot_of(first: int, second: int, seed: Words, shift: int) -> int:
    """Return the home slot of a token. `seed` is random and secret, so tokens cannot be aimed at one slot."""
    mixed = (np.uint64(first) ^ seed[0]) * seed[1]
    mixed ^= mixed >> _U32
    mixed = (mixed ^ (np.uint64(second) & _NAME_MASK)) * seed[2]
    mixed ^= mixed >> _U32
    mixed *= seed[3]
    return np.int64(mixed >> np.uint64(shift))  # type: ignore[return-value]  # compiled: numbers have machine types


@inlined
def _add(
    numbers: Ints, words: Words, row: int, sign: int, bits: bool, size: int, width: int, rungs: int, groups: int
) -> bool:
    """Add one entry to the flat tally, or subtract it; False if it cannot be of this survey."""
    rung = byte_at(words, row, RUNG_AT) - 1
    group = 0
    if groups > 1:
        group = byte_at(words, row, ANSWER_AT + width) | byte_at(words, row, ANSWER_AT + width + 1) << 8
    if rung < 0 or rung >= rungs or group >= groups:
        return False
    line = rung * groups + group
    base = rungs * groups + line * size
    if bits:
        if not count_bits(numbers, base, words, row, sign, size, width):
            return False
    else:
        cell = 0
        for k in range(width):
            cell |= byte_at(words, row, ANSWER_AT + k) << (8 * k)
        if cell >= size:
            return False
        numbers[base + cell] += sign
    numbers[line] += sign
    return True


LIVE, ACCEPTED, DUPLICATE, OUTDATED, CONFLICTING, BROKEN, TOUCHED = range(7)
STATE_FIELDS: Final = 7
"""Entries of the `state` of `fold_entries`; LIVE counts users, BROKEN is 1 after an invalid entry."""

_BLOCK: Final = 128
# Slots of a block are read ahead of the work on them, a word of every cache line, so that the waits for memory overlap.
_LINE_WORDS: Final = 8


@compiled
def fold_entries(
    slots: Words,
    shift: int,
    seed: Words,
    entries: Words,
    begin: int,
    numbers: Ints,
    bits: bool,
    size: int,
    width: int,
    rungs: int,
    groups: int,
    accepted: Ints,
    state: Ints,
) -> int:
    """Fold `entries[begin:]` into the table and the flat tally; return where it stopped.

    The places of accepted entries are written to `accepted`.

    It stops before the end when the table is too full (call again with a larger one), or when BROKEN is set: then the
    entry at the returned position cannot be of this survey, and table and tally are unusable.
    Long because it is one loop with a fast path for short entries, and calls inside it would cost time per entry.
    """
    mask = len(slots) - 1
    limit = (len(slots) * 5) >> 3
    homes = np.empty(_BLOCK, dtype=np.int64)
    position = begin
    total = len(entries)
    words = slots.shape[1]
    live, row = state[0], state[1]
    short = words == 2 and groups == 1 and not bits  # an answer of one or two bytes
    answer_mask = _BYTE if width == 1 else _TWO_BYTES
    while position < total:
        block = min(_BLOCK, total - position)
        if live + block > limit:
            break
        touched = _ZERO
        for k in range(block):
            homes[k] = slot_of(entries[position + k, 0], entries[position + k, 1], seed, shift)
            for j in range(1, words, _LINE_WORDS):
                touched ^= slots[homes[k], j]
        state[6] = np.int64(touched)
        for i in range(position, position + block):
            slot = homes[i - position]
            first, second = entries[i, 0], entries[i, 1]
            while slots[slot, 1] != _ZERO and (
                slots[slot, 0] != first or (slots[slot, 1] ^ second) & _NAME_MASK != _ZERO
            ):
                slot = (slot + 1) & mask
            old = slots[slot, 1]
            new = old == _ZERO
            if short:
                # The same as below for the commonest of entries, in half the time.
                rung, rung_old = (second >> _RUNG_SHIFT) & _BYTE, (old >> _RUNG_SHIFT) & _BYTE
                if not new and rung <= rung_old:
                    if old == second:
                        state[2] += 1
                        continue
                    if rung < rung_old:
                        state[3] += 1
                        continue
                    state[4] += 1
                    if compare(entries, i, slots, slot) < 0:
                        continue
                line, cell = np.int64(rung) - 1, np.int64((second >> _ANSWER_SHIFT) & answer_mask)
                if line < 0 or line >= rungs or cell >= size:
                    state[5] = 1
                    return i
                numbers[line] += 1
                numbers[rungs + line * size + cell] += 1
                if new:
                    live += 1
                else:
                    line, cell = np.int64(rung_old) - 1, np.int64((old >> _ANSWER_SHIFT) & answer_mask)
                    numbers[line] -= 1
                    numbers[rungs + line * size + cell] -= 1
                slots[slot, 0] = first
                slots[slot, 1] = second
                accepted[row] = i
                row += 1
                continue
            if not new:
                order = compare(entries, i, slots, slot)
                if order == 0:
                    state[2] += 1
                elif order == -1:
                    state[3] += 1
                elif order != 1:
                    state[4] += 1
                if order <= 0:
                    continue
            if not _add(numbers, entries, i, 1, bits, size, width, rungs, groups):
                state[5] = 1
                return i
            if new:
                live += 1
            else:
                _add(numbers, slots, slot, -1, bits, size, width, rungs, groups)
            for j in range(words):
                slots[slot, j] = entries[i, j]
            accepted[row] = i
            row += 1
        position += block
    state[0], state[1] = live, row
    return position


@compiled
def rehash(old: Words, new: Words, shift: int, seed: Words) -> None:
    """Copy all entries of one table into a larger, empty one."""
    mask = len(new) - 1
    for i in range(len(old)):
        if old[i, 1] != _ZERO:
            slot = slot_of(old[i, 0], old[i, 1], seed, shift)
            while new[slot, 1] != _ZERO:
                slot = (slot + 1) & mask
            for j in range(old.shape[1]):
                new[slot, j] = old[i, j]


@compiled
def held_entries(slots: Words, shift: int, seed: Words, entries: Words, found: Ints) -> int:
    """Write the places of those entries that the table holds as they are; return how many."""
    mask = len(slots) - 1
    count = 0
    for i in range(len(entries)):
        first, second = entries[i, 0], entries[i, 1]
        slot = slot_of(first, second, seed, shift)
        while slots[slot, 1] != _ZERO and (slots[slot, 0] != first or (slots[slot, 1] ^ second) & _NAME_MASK != _ZERO):
            slot = (slot + 1) & mask
        same = slots[slot, 1] != _ZERO
        for j in range(slots.shape[1]):
            same = same and slots[slot, j] == entries[i, j]
        if same:
            found[count] = i
            count += 1
    return count
