"""Surveys: a question, its values, its mechanism, its ladder, its windows; one TOML file each."""

from __future__ import annotations

import datetime
import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from estimators.estimates import Method
from estimators.mechanism import ParameterError, Specification
from estimators.mechanisms.registry import build, names, sampling_levels
from producers.survey.alerts import NO_LIMITS, AlertError, AlertRule, Limits, limits_of, rules_of
from producers.survey.attributes import Attributes
from producers.survey.budgets import budget_of
from producers.survey.canary import Canary, canary_of
from producers.survey.durations import format_duration, parse_duration
from producers.survey.file import MAX_SHARDS, EstimateTable, OnDemand, RungAssumption, SurveyFile
from producers.survey.grid import Grid
from producers.survey.messages import SurveyError, did_you_mean, explain_shape
from producers.survey.publication import EVERYTHING, Publication, publication_of
from producers.survey.schedule import SampledLevels, Schedule, ScheduleError, schedule_of
from producers.survey.unlocking import Unlock
from producers.survey.values import Values, values_of
from producers.survey.windows import Windows
from producers.wire.layout import Layout

__all__ = ["Canary", "Survey", "SurveyError", "canonical_json", "load_folder", "load_survey", "parse_survey"]

MAX_FILE_CHARACTERS = 8 << 20
"""Longer files are not read: a worker reads every file of its folder. Tens of thousands of values fit."""
LAST_END_MS = 253_402_300_799_000
"""The last second of the year 9999, which is the last that has a date."""
_DEEP_KEY = re.compile(r"""(?<![\w"'-])(?:[\w"'-]{1,200}[ \t]?\.[ \t]?){17}""", re.ASCII)


@dataclass(frozen=True)
class Survey:
    """A checked survey. Device, worker, exporter and command line all use this object.

    ladder is mechanism.ladder; opens_ms[i] is when rung i opens after the end of the window (opens_ms[0] is 0 and
    means: when the value is taken). Schedule, question, retention, skew, budget, canary, alerts, limits, publication
    and end are not part of the id: they may change without making old answers undecodable. rungs is what is assumed
    about which device stops at which rung, and method is what follows from it.
    """

    name: str
    question: str
    mechanism: Specification
    opens_ms: tuple[int, ...]
    jitter_ms: int
    windows: Windows
    retention_ms: int
    skew_ms: int
    lifetime_epsilon: float
    shards: int
    method: Method
    alpha: float
    population: str
    accept_risk: str
    canary: Canary | None = None
    alerts: tuple[AlertRule, ...] = ()
    limits: Limits = NO_LIMITS
    rungs: RungAssumption = "any"
    end_ms: int | None = None
    """Devices start no window at or after it; None: the survey goes on."""
    publication: Publication = EVERYTHING
    grid: Grid | None = None
    """Where the values are cells of a map."""
    attributes: Attributes | None = None
    """Where the values are combinations of several attributes."""
    on_demand: bool = False
    """Rungs above 0 are released when the person says so, not before opens_ms."""
    unlock: Unlock | None = None
    reserve_epsilon: float = 0.0

    @cached_property
    def decoding_hash(self) -> bytes:
        """SHA-256 of all that decoding depends on; `id` and `digest` begin with it."""
        # The name is in it: two questions of the same form must not share frames, tallies or tokens.
        decoding = {
            "name": self.name,
            "mechanism": self.mechanism.canonical(),
            "answer": [self.mechanism.answer.kind, self.mechanism.answer.size],
            "groups": self.mechanism.groups,
            "rungs": self.mechanism.rungs,
            "window": [self.windows.size_ms, self.windows.step_ms],
            "shards": self.shards,
        }
        # Under this assumption only devices answer that follow its rule; answers of others must not be mixed in.
        if self.rungs == "independent":
            decoding["rungs_assumed"] = self.rungs
        if self.grid is not None:
            decoding["grid"] = self.grid.canonical()
        if self.attributes is not None:
            decoding["attributes"] = self.attributes.parts
        return hashlib.sha256(canonical_json(decoding)).digest()

    @cached_property
    def accepted_ms(self) -> tuple[int, ...]:
        """Per rung above 0, from when after the window's end its answers are accepted.

        That is before its opening by the skew, but at most by half the time since the rung below opened.
        """
        accepted = tuple(later - min(self.skew_ms, (later - below) // 2) for below, later in pairwise(self.opens_ms))
        # On demand all of them open together.
        return accepted[:1] * len(accepted) if self.on_demand else accepted

    @property
    def id(self) -> str:
        """The name and 8 hex digits of all that decoding depends on."""
        return f"{self.name}-{self.decoding_hash[:4].hex()}"

    @property
    def digest(self) -> bytes:
        """The 8 bytes that frames carry."""
        return self.decoding_hash[:8]

    @property
    def layout(self) -> Layout:
        """How reports of this survey lie on the wire."""
        return Layout(self.mechanism.answer.width, self.mechanism.groups > 1)

    def opening_ms(self, window_ms: int, rung: int) -> int:
        """Return when a rung above the first opens for the window that starts at window_ms, jitter not included."""
        return self.windows.end(window_ms) + self.opens_ms[rung]

    def asks(self, window_ms: int) -> bool:
        """Tell whether devices answer for the window that starts at window_ms: it starts before the survey's end."""
        return self.end_ms is None or window_ms < self.end_ms

    def has_ended(self, now_ms: int) -> bool:
        """Tell whether the survey's end is over."""
        return self.end_ms is not None and now_ms >= self.end_ms

    def expiry_ms(self, window_ms: int) -> int:
        """Return the last moment at which an answer for the window that starts at window_ms counts."""
        return self.windows.end(window_ms) + self.retention_ms


def canonical_json(data: Any) -> bytes:
    """Return JSON with sorted keys and no spaces: the same data always gives the same bytes."""
    return msgspec.json.encode(data, order="deterministic")


def load_survey(path: str | Path) -> Survey:
    """Read and check one survey file; SurveyError names field, value and remedy."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SurveyError(str(path), "file", error.object[error.start : error.start + 8], "save it as UTF-8") from None
    except OSError as error:
        raise SurveyError(str(path), "file", error.strerror, "it must be a file that can be read") from None
    return parse_survey(text, str(path))


def parse_survey(text: str, source: str = "survey") -> Survey:
    """Check the text of a survey file; `source` names it in messages."""
    if len(text) > MAX_FILE_CHARACTERS:
        raise SurveyError(source, "file", f"{len(text):,} characters", f"at most {MAX_FILE_CHARACTERS:,}; shorten it")
    if _DEEP_KEY.search(text):
        # The TOML reader keeps every prefix of a dotted key: a file of 200 kB would take gigabytes.
        raise SurveyError(source, "file", "a key of many parts", "a survey file has tables of one level; write [table]")
    try:
        data = _with_times(tomllib.loads(text))
        try:
            file = msgspec.convert(data, SurveyFile)
        except msgspec.ValidationError as error:
            explain_shape(source, data, str(error))
    except SurveyError:
        raise
    except ValueError as error:
        raise SurveyError(source, "file", str(error), "this is not TOML; correct the line it names") from None
    except RecursionError:
        raise SurveyError(source, "file", "lists or tables inside each other", "nested too deeply to be read") from None
    return _Checker(source, data).survey(file)


def _with_times(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data with a date as the beginning of its day; the shape takes dates with a time only."""
    end = data.get("end")
    if isinstance(end, datetime.date) and not isinstance(end, datetime.datetime):
        return data | {"end": datetime.datetime.combine(end, datetime.time(), datetime.UTC)}
    return data


def load_folder(path: str | Path) -> dict[bytes, Survey]:
    """Read all `*.toml` files of a folder, by digest; the first broken one raises SurveyError."""
    surveys: dict[bytes, Survey] = {}
    for file in sorted(Path(path).glob("*.toml")):
        survey = load_survey(file)
        surveys.setdefault(survey.digest, survey)
    return surveys


class _Checker:
    """The checks that the shape of a survey file cannot express."""

    def __init__(self, source: str, data: Mapping[str, Any]) -> None:
        self.source, self.data = source, data

    def refuse(self, field: str, value: object, remedy: str) -> NoReturn:
        raise SurveyError(self.source, field, value, remedy)

    def duration(self, field: str, text: str, *, least_ms: int = 0) -> int:
        try:
            duration_ms = parse_duration(text)
        except ValueError as error:
            self.refuse(field, text, str(error))
        if duration_ms < least_ms:
            self.refuse(field, text, f"must be at least {format_duration(least_ms)}")
        return duration_ms

    def survey(self, file: SurveyFile) -> Survey:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,47}", file.name):
            self.refuse("name", file.name, "use 1 to 48 lower-case letters, digits, - and _, a letter or digit first")
        if not file.question.strip():
            self.refuse("question", file.question, "write in one sentence what the person is asked")
        if not 1 <= file.shards <= MAX_SHARDS:
            self.refuse("shards", file.shards, f"must be 1 to {MAX_SHARDS}; 64 fits most surveys")
        if not 0.0 < file.estimate.alpha < 0.5:
            self.refuse("estimate.alpha", file.estimate.alpha, "must be between 0 and 0.5; 0.05 gives 95 % intervals")
        values = self.values(file)
        name, parameters = self.named_mechanism(file.mechanism)
        schedule = self.schedule(file, partial(sampling_levels, name, values.labels, **parameters))
        mechanism = self.mechanism(file, values, partial(build, name, values.labels, schedule.ladder, **parameters))
        windows = self.windows(file)
        retention_ms = self.duration("window.retention", file.window.retention)
        jitter_ms = self.jitter(schedule, windows, retention_ms)
        last_ms = schedule.opens_ms[-1] + jitter_ms
        if retention_ms <= last_ms:
            self.refuse(
                "window.retention",
                file.window.retention,
                f"the last rung is sent up to {format_duration(last_ms)} after the window's end and would be refused "
                "as expired; raise the retention, or open the rungs earlier",
            )
        try:
            budget = budget_of(file.budget, mechanism)
            alerts, limits = rules_of(file.alert, mechanism.labels), limits_of(file.limits)
            publication = publication_of(file.publish, mechanism)
        except (AlertError, ParameterError) as error:
            self.refuse(error.field, error.value, error.remedy)
        return Survey(
            name=file.name,
            question=file.question,
            mechanism=mechanism,
            opens_ms=schedule.opens_ms,
            jitter_ms=jitter_ms,
            windows=windows,
            retention_ms=retention_ms,
            skew_ms=self.duration("window.skew", file.window.skew),
            lifetime_epsilon=budget.lifetime_epsilon,
            shards=file.shards,
            method=self.method(file.estimate, mechanism),
            alpha=file.estimate.alpha,
            population=file.estimate.population,
            accept_risk=file.accept_risk,
            canary=canary_of(self.source, file.canary, values.labels),
            alerts=alerts,
            limits=limits,
            rungs=file.estimate.rungs,
            end_ms=self.end(file.end),
            publication=publication,
            grid=values.grid,
            attributes=values.attributes,
            on_demand=schedule.on_demand,
            unlock=budget.unlock,
            reserve_epsilon=budget.reserve_epsilon,
        )

    def end(self, moment: datetime.datetime | None) -> int | None:
        if moment is None:
            return None
        if moment.tzinfo is None:
            self.refuse("end", moment.isoformat(), f"it has no time zone; write {moment.isoformat()}Z for UTC")
        end_ms = round(moment.timestamp() * 1_000)
        if not 0 <= end_ms <= LAST_END_MS:
            self.refuse("end", moment.isoformat(), "it must lie in the years 1970 to 9999 of UTC; correct it")
        return end_ms

    def method(self, table: EstimateTable, mechanism: Specification) -> Method:
        """Return the method that the assumption about rungs means, or the one asked for where they agree."""
        if table.method is None:
            # On one rung nothing is combined, so nothing is assumed.
            return "pooled" if table.rungs == "independent" or mechanism.rungs == 1 else "stratified"
        if table.method == "auto":
            self.refuse(
                "estimate.method",
                table.method,
                "there is no automatic choice any more, since no test can make one honest; remove it, and write "
                'rungs = "any" (no assumption, wider bands) or rungs = "independent" (the rung of a device never '
                "depends on its value)",
            )
        if table.method not in mechanism.methods:
            self.refuse(
                "estimate.method", table.method, f"{mechanism.name} offers {', '.join(mechanism.methods)}; remove it"
            )
        if table.method != "stratified" and table.rungs == "any" and mechanism.rungs > 1:
            self.refuse(
                "estimate.method",
                table.method,
                f"{table.method} is biased where the rung depends on the value; write "
                'rungs = "independent" if it never does, or remove the method',
            )
        return table.method

    def values(self, file: SurveyFile) -> Values:
        try:
            return values_of(self.source, file.values)
        except ParameterError as error:
            self.refuse(error.field, error.value, error.remedy)

    def named_mechanism(self, table: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        parameters = dict(table)
        name = parameters.pop("name", None)
        if name is None:
            self.refuse("mechanism.name", None, f"name a mechanism: {', '.join(names())}")
        if name not in names():
            self.refuse("mechanism.name", name, did_you_mean("mechanism", str(name), names()))
        return name, parameters

    def schedule(self, file: SurveyFile, sampled_levels: SampledLevels) -> Schedule:
        if isinstance(file.release, OnDemand) and file.estimate.rungs == "independent":
            self.refuse(
                "release.kind",
                "on_demand",
                'people decide which rung they release, so it may depend on their value; write rungs = "any"',
            )
        try:
            return schedule_of(file.release, sampled_levels)
        except ScheduleError as error:
            self.refuse(f"release.{error.field}", error.value, error.remedy)
        except ParameterError as error:
            self.refuse(self.place(error.field), error.value, error.remedy)
        except ValueError as error:
            self.refuse("mechanism", file.mechanism, str(error))

    def mechanism(self, file: SurveyFile, values: Values, built: Callable[[], Specification]) -> Specification:
        try:
            mechanism = built()
            values.check(mechanism)
        except ParameterError as error:
            self.refuse(self.place(error.field), error.value, error.remedy)
        except ValueError as error:
            self.refuse("mechanism", file.mechanism, str(error))
        if mechanism.answer.kind == "index" and mechanism.answer.size < 2:
            self.refuse("values", file.values, "a question needs at least two possible answers; add values")
        if mechanism.guarantee.is_risk and len(file.accept_risk.split()) < 4:
            self.refuse(
                "accept_risk",
                file.accept_risk,
                f"{mechanism.name} protects {mechanism.guarantee.protects} ({mechanism.guarantee.sentence}); choose "
                "another mechanism, or write a sentence here that states which risk is taken and why",
            )
        return mechanism

    def place(self, field: str) -> str:
        if field == "mechanism" or field.split(".")[0].split("[")[0] in ("mechanism", "values", "release"):
            return field
        if field.split("[")[0] == "ladder":
            return f"release.{field}" if isinstance(self.data.get("release", {}).get("ladder"), list) else "release"
        return f"mechanism.{field}"

    def windows(self, file: SurveyFile) -> Windows:
        size_ms = self.duration("window.size", file.window.size, least_ms=100)
        if file.window.step is None:
            return Windows(size_ms, size_ms)
        step_ms = self.duration("window.step", file.window.step, least_ms=100)
        if step_ms > size_ms:
            self.refuse(
                "window.step",
                file.window.step,
                f"must not exceed the size ({file.window.size}), or some moments belong to no window; shorten it",
            )
        if size_ms > 100 * step_ms:
            self.refuse("window.step", file.window.step, "a moment may lie in at most 100 windows; use a longer step")
        return Windows(size_ms, step_ms)

    def jitter(self, schedule: Schedule, windows: Windows, retention_ms: int) -> int:
        if schedule.jitter_ms is not None:
            return schedule.jitter_ms
        return min(windows.step_ms // 2, max(retention_ms - schedule.opens_ms[-1], 0) // 2)
