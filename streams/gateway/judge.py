"""What the gateway takes: the rules of the worker, applied to a request before anything of it goes to Kafka.

A request is taken whole or not at all. The answer names every frame that is refused, so that a client can leave those
out and send the others again. What is judged by a time is judged by the broker's, as far as it is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from producers.survey.lookup import SurveyLookup
from producers.survey.survey import Survey
from producers.wire.frames import FrameError, Header, Reports, columns, headers
from producers.wire.keys import right_keys
from producers.wire.shards import shards_of

AGAIN = frozenset({"survey", "version", "future", "early"})
"""Reasons that pass with time, or with an upgrade: the client keeps the frame and sends it later."""


class RefusedFrame(msgspec.Struct, frozen=True):
    """Why one frame is not taken: its number in the request, from 0, and whether it may be taken later."""

    frame: int
    reason: str
    text: str
    again: bool


@dataclass(frozen=True)
class Taken:
    """One good frame: its survey, its header and its columns, which are views of the request's body."""

    survey: Survey
    header: Header
    reports: Reports
    raw: memoryview


@dataclass(frozen=True)
class Judgement:
    """All frames of a request: taken, if none was refused."""

    taken: list[Taken]
    refused: list[RefusedFrame]

    @property
    def reports(self) -> int:
        """Number of good reports."""
        return sum(len(frame.reports) for frame in self.taken)


def judge(body: bytes, surveys: SurveyLookup, now_ms: int, *, later_ms: int = 0) -> Judgement:
    """Sort the frames of a request.

    Args:
        body: frames back to back.
        surveys: where digests are looked up.
        now_ms: the broker's time.
        later_ms: how much later a frame may reach the broker, since it is held; what has expired by then is refused.
    """
    judgement = Judgement([], [])
    view = memoryview(body)
    for number, header in enumerate(headers(body)):
        if isinstance(header, FrameError):
            again = header.reason in AGAIN
            judgement.refused.append(RefusedFrame(number, header.reason, str(header), again))
            continue
        survey = surveys.get(header.digest, now_ms)
        if survey is None:
            text = f"no survey with the digest {header.digest.hex()} is known here; fetch /v1/surveys"
            judgement.refused.append(RefusedFrame(number, "survey", text, again=True))
            continue
        fault = next(_faults(body, header, survey, now_ms, later_ms), None)
        if fault is not None:
            reason, text = fault
            judgement.refused.append(RefusedFrame(number, reason, f"{survey.id}: {text}", reason in AGAIN))
            continue
        raw = view[header.start : header.start + header.length]
        judgement.taken.append(Taken(survey, header, columns(body, header, survey.layout), raw))
    return judgement


def _faults(body: bytes, header: Header, survey: Survey, now_ms: int, later_ms: int) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a frame, the worker's order first; the caller takes the first fault."""
    window_ms = header.window_ms
    if header.length != survey.layout.frame_bytes(header.count):
        yield "length", f"{header.count} reports of this survey do not take {header.length} bytes"
        return
    if header.shard >= survey.shards:
        yield "shard", f"shards are 0 to {survey.shards - 1}; got {header.shard}"
    if window_ms % survey.windows.step_ms:
        yield "window", f"windows start at multiples of {survey.windows.step_ms} ms; got {window_ms}"
    if window_ms > now_ms + survey.skew_ms:
        yield "future", f"the window starts at {window_ms} and it is {now_ms} here; set the clock, or send it later"
    try:
        reports = columns(body, header, survey.layout)
    except FrameError as error:
        yield error.reason, str(error)
        return
    if now_ms + later_ms >= survey.expiry_ms(window_ms):
        yield "expired", f"answers for this window count until {survey.expiry_ms(window_ms)} and it is {now_ms} here"
    if (shards_of(reports.tokens, survey.shards) != header.shard).any():
        yield "token", f"a token does not belong to shard {header.shard}"
    withdrawals = survey.withdrawals(reports.rungs)
    top = int(reports.rungs[~withdrawals].max(initial=0))
    if top >= survey.mechanism.rungs:
        yield "rung", f"rungs are 0 to {survey.mechanism.rungs - 1}; got {top}"
    elif top > 0 and now_ms < survey.windows.end(window_ms) + survey.accepted_ms[top - 1]:
        yield "early", f"rung {top} of this window has not opened; send it when it has"
    if reports.groups is not None and int(reports.groups.max()) >= survey.mechanism.groups:
        yield "group", f"groups are 0 to {survey.mechanism.groups - 1}; got {int(reports.groups.max())}"
    if reports.groups is not None and reports.groups[withdrawals].any():
        yield "group", "a withdrawal has group 0"
    width = survey.layout.width
    answers = reports.answers
    symbols = survey.mechanism.answer.kind != "bits"
    given = np.ascontiguousarray(answers).view(f"<u{width}").ravel() if symbols else answers
    if not (survey.mechanism.valid(given) | withdrawals).all():
        yield "answer", "an answer that the survey does not have"
    if answers[withdrawals].any():
        yield "answer", "the answer of a withdrawal is all zeros"
    if reports.keys is not None:
        right = right_keys(reports.tokens, reports.rungs.tolist(), reports.keys, survey.digest, window_ms)
        if not right.all():
            yield "key", "a report does not carry the key of its rung and token"
