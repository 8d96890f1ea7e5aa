"""Surveys: a question, its values, its mechanism, its ladder, its windows; one TOML file each."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Method
from estimators.mechanism import ParameterError, Specification
from estimators.mechanisms.registry import sampling_levels
from producers.survey.alerts import NO_LIMITS, AlertError, AlertRule, Limits, limits_of, rules_of
from producers.survey.attributes import Attributes
from producers.survey.budgets import budget_of
from producers.survey.building import builder
from producers.survey.canary import Canary, canary_of
from producers.survey.checks import FileChecker
from producers.survey.continuing import DIGEST_BYTES, FIELD, Edition, continued_editions, obstacle
from producers.survey.file import RungAssumption, SurveyFile
from producers.survey.grid import Grid
from producers.survey.messages import SurveyError, explain_shape
from producers.survey.methods import method_of
from producers.survey.publication import EVERYTHING, Publication, publication_of
from producers.survey.registry import UNREGISTERED, Registry, moment_ms, registry_of, with_times
from producers.survey.schedule import Stop
from producers.survey.tiers import Tier, tiers_of
from producers.survey.unlocking import Unlock
from producers.survey.windows import Windows
from producers.wire.layout import Layout

__all__ = ["Canary", "Survey", "SurveyError", "canonical_json", "load_folder", "load_survey", "parse_survey"]

MAX_FILE_CHARACTERS = 8 << 20
"""Longer files are not read: a worker reads every file of its folder. Tens of thousands of values fit."""
_NEVER_MS = 1 << 62
_DEEP_KEY = re.compile(r"""(?<![\w"'-])(?:[\w"'-]{1,200}[ \t]?\.[ \t]?){17}""", re.ASCII)


@dataclass(frozen=True)
class Survey:
    """A checked survey. Device, worker, exporter and command line all use this object.

    ladder is mechanism.ladder; opens_ms[i] is when rung i opens after the end of the window (opens_ms[0] is 0 and
    means: when the value is taken). Schedule, question, retention, skew, budget, canary, alerts, limits, publication,
    end and registry are not part of the id: they may change without making old answers undecodable. rungs is what is
    assumed about which device stops at which rung, and method is what follows from it.
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
    registry: Registry = UNREGISTERED
    candidates: str = ""
    """Name of the file with the strings that answers are decoded with, which may change; empty: values are fixed."""
    withdrawable: bool = False
    """Answers can be withdrawn: reports carry keys, in frames of version 2."""
    stop: Stop | None = None
    """Rungs above 0 open only as far as bulletins say, not before opens_ms."""
    standing: bool = False
    """Answers belong to the value: windows with the same value repeat them."""
    tiers: tuple[Tier, ...] = ()
    """Audiences that may know answers of low rungs alone, the lowest first."""
    tier: Tier | None = None
    """This is what one audience may know of the survey `part_of`."""
    part_of: Survey | None = None
    continued: tuple[Edition, ...] = ()
    """Earlier forms with shorter ladders, the first one first: answers to all of them are counted together."""

    @cached_property
    def candidates_hash(self) -> str:
        """16 hex digits over the candidates of this moment; empty where the values are fixed."""
        text = canonical_json(list(self.mechanism.labels)) if self.candidates else b""
        return hashlib.sha256(text).hexdigest()[:16] if text else ""

    @property
    def decoding(self) -> dict[str, Any]:
        """All that decoding depends on."""
        # The name is in it: two questions of the same form must not share frames, tallies or tokens.
        decoding: dict[str, Any] = {
            "name": self.name,
            "mechanism": self.mechanism.canonical(),
            "answer": [self.mechanism.answer.kind, self.mechanism.answer.size],
            "groups": self.mechanism.groups,
            "rungs": self.mechanism.rungs,
            "window": [self.windows.size_ms, self.windows.step_ms],
            "shards": self.shards,
        }
        if self.candidates:
            decoding["mechanism"] = self.mechanism.canonical() | {"values": "candidates"}
        # Under this assumption only devices answer that follow its rule; answers of others must not be mixed in.
        if self.rungs == "independent":
            decoding["rungs_assumed"] = self.rungs
        if self.grid is not None:
            decoding["grid"] = self.grid.canonical()
        if self.attributes is not None:
            decoding["attributes"] = self.attributes.parts
        if self.withdrawable:
            decoding["withdrawable"] = True
        if self.standing:
            decoding["standing"] = True
        if self.tiers:
            decoding["tiers"] = [list(tier) for tier in self.tiers]
        if self.tier is not None:
            decoding["tier"] = self.tier.name
        if self.continued:
            decoding["continues"] = self.continued[-1].decoding_hash.hex()
        return decoding

    @cached_property
    def tier_surveys(self) -> tuple[Survey, ...]:
        """What each tier below the top may know, as surveys that are counted and estimated by themselves.

        Their digests are on no frame. Mechanism and ladder are the whole ones: no answer above the tier is counted.
        """
        below = [tier for tier in self.tiers if self.tier is None and tier.rung < self.mechanism.rungs - 1]
        own = replace(self, part_of=self, canary=None, alerts=(), limits=NO_LIMITS, stop=None)
        return tuple(replace(own, name=f"{self.name}.{tier.name}", tier=tier) for tier in below)

    @cached_property
    def earlier(self) -> tuple[Survey, ...]:
        """The surveys that this one continues, as far as their files said the same as this one otherwise."""
        return tuple(
            replace(self, mechanism=mechanism, opens_ms=self.opens_ms[: mechanism.rungs], continued=self.continued[:i])
            for i, (_, _, mechanism) in enumerate(self.continued)
        )

    def form(self, rung: int) -> Survey:
        """Return the survey that frames of a rung name: the first that has it, so that they tell no device's file."""
        return next((one for one in self.earlier if rung < one.mechanism.rungs), self)

    @property
    def whole(self) -> Survey:
        """The survey whose digest frames carry."""
        return self.part_of or self

    @property
    def highest_rung(self) -> int:
        """The highest rung whose answers count."""
        return self.mechanism.rungs - 1 if self.tier is None else self.tier.rung

    @cached_property
    def decoding_hash(self) -> bytes:
        """SHA-256 of all that decoding depends on; `edition` and `digest` begin with it."""
        return hashlib.sha256(canonical_json(self.decoding)).digest()

    @cached_property
    def accepted_ms(self) -> tuple[int, ...]:
        """Per rung above 0, from when after the window's end its answers are accepted.

        That is before its opening by the skew, but at most by half the time since the rung below opened.
        """
        accepted = tuple(later - min(self.skew_ms, (later - below) // 2) for below, later in pairwise(self.opens_ms))
        # On demand all of them open together.
        return accepted[:1] * len(accepted) if self.on_demand else accepted

    @property
    def edition(self) -> str:
        """The name and 8 hex digits of all that decoding depends on."""
        return f"{self.name}-{self.decoding_hash[:4].hex()}"

    @property
    def id(self) -> str:
        """The edition of the first survey of those that are counted together: this one, unless it continues others."""
        return self.continued[0].id if self.continued else self.edition

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids under which people may know it, the first survey's first."""
        return (*(edition.id for edition in self.continued), self.edition)

    @property
    def digest(self) -> bytes:
        """The 8 bytes that frames carry."""
        return self.decoding_hash[:DIGEST_BYTES]

    @property
    def digests(self) -> tuple[bytes, ...]:
        """What frames carry whose reports are counted as those of this survey, the first survey's first."""
        return (*(edition.digest for edition in self.continued), self.digest)

    @property
    def layout(self) -> Layout:
        """How reports of this survey lie on the wire."""
        return Layout(self.mechanism.answer.width, self.mechanism.groups > 1, self.withdrawable)

    def opening_ms(self, window_ms: int, rung: int) -> int:
        """Return when a rung above the first opens for the window that starts at window_ms, jitter not included."""
        return self.windows.end(window_ms) + self.opens_ms[rung]

    @property
    def stops_ms(self) -> int:
        """From when on nothing is drawn, sent or counted, whichever window it is for."""
        return _NEVER_MS if self.registry.expires_ms is None else self.registry.expires_ms

    def public_ms(self, window_ms: int, rung: int) -> int:
        """Return what a frame says of when it was sent: a moment that everybody knows, not that of the device."""
        below = 0 < rung < self.mechanism.rungs
        return self.opening_ms(window_ms, rung) if below else window_ms

    def withdrawals(self, rungs: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return which of these rungs of reports are that of a withdrawal."""
        return rungs == self.mechanism.rungs if self.withdrawable else np.zeros(len(rungs), dtype=np.bool_)

    def asks(self, window_ms: int, now_ms: int | None = None) -> bool:
        """Tell whether devices answer for the window that starts at window_ms: it starts before the survey's end."""
        latest_ms = window_ms if now_ms is None else max(window_ms, now_ms)
        return (self.end_ms is None or window_ms < self.end_ms) and latest_ms < self.stops_ms

    def has_ended(self, now_ms: int) -> bool:
        """Tell whether the survey's end is over, or the survey itself has expired."""
        return (self.end_ms is not None and now_ms >= self.end_ms) or now_ms >= self.stops_ms

    def expiry_ms(self, window_ms: int) -> int:
        """Return the last moment at which an answer for the window that starts at window_ms counts."""
        return min(self.windows.end(window_ms) + self.retention_ms, self.stops_ms)


def canonical_json(data: Any) -> bytes:
    """Return JSON with sorted keys and no spaces: the same data always gives the same bytes."""
    return msgspec.json.encode(data, order="deterministic")


def load_survey(path: str | Path, *, candidates: Sequence[str] | None = None) -> Survey:
    """Read and check one survey file; SurveyError names field, value and remedy.

    candidates: in place of those in the file that the survey names. A device needs none of them: any one string will do
    there, and the file need not be on the device.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SurveyError(str(path), "file", error.object[error.start : error.start + 8], "save it as UTF-8") from None
    except OSError as error:
        raise SurveyError(str(path), "file", error.strerror, "it must be a file that can be read") from None
    return parse_survey(text, str(path), candidates=candidates)


def parse_survey(text: str, source: str = "survey", *, candidates: Sequence[str] | None = None) -> Survey:
    """Check the text of a survey file; `source` names it in messages, and other files are sought beside it."""
    if len(text) > MAX_FILE_CHARACTERS:
        raise SurveyError(source, "file", f"{len(text):,} characters", f"at most {MAX_FILE_CHARACTERS:,}; shorten it")
    if _DEEP_KEY.search(text):
        # The TOML reader keeps every prefix of a dotted key: a file of 200 kB would take gigabytes.
        raise SurveyError(source, "file", "a key of many parts", "a survey file has tables of one level; write [table]")
    try:
        data = with_times(tomllib.loads(text))
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
    return _Checker(source, data, candidates).survey(file)


def load_folder(path: str | Path) -> dict[bytes, Survey]:
    """Read all `*.toml` files of a folder, by digest; the first broken one raises SurveyError."""
    surveys: dict[bytes, Survey] = {}
    for file in sorted(Path(path).glob("*.toml")):
        survey = load_survey(file)
        surveys.setdefault(survey.digest, survey)
    return surveys


class _Checker(FileChecker):
    """Makes the survey of a file that passes all checks."""

    def survey(self, file: SurveyFile) -> Survey:
        """Long because each field of a survey is named once."""
        self.basics(file)
        values = self.values(file)
        name, parameters = self.named_mechanism(file.mechanism)
        schedule = self.schedule(file, partial(sampling_levels, name, values.labels, **parameters))
        built = builder(file.release, name, values.labels, schedule.ladder, parameters)
        mechanism = self.mechanism(file, values, built)
        windows = self.windows(file)
        retention_ms = self.duration("window.retention", file.window.retention)
        jitter_ms = self.jitter(schedule, windows, retention_ms)
        self.outlasts(file.window.retention, retention_ms, schedule.opens_ms[-1] + jitter_ms)
        try:
            budget = budget_of(file.budget, mechanism)
            alerts, limits = rules_of(file.alert, mechanism.labels), limits_of(file.limits)
            publication = publication_of(file.publish, mechanism)
            method, tiers = method_of(file.estimate, mechanism), tiers_of(file.tiers, mechanism.rungs)
            registry, end_ms = registry_of(file.registry), moment_ms("end", file.end)
        except (AlertError, ParameterError) as error:
            self.refuse(error.field, error.value, error.remedy)
        survey = Survey(
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
            method=method,
            alpha=file.estimate.alpha,
            population=file.estimate.population,
            accept_risk=file.accept_risk,
            canary=canary_of(self.source, file.canary, values.labels),
            alerts=alerts,
            limits=limits,
            rungs=file.estimate.rungs,
            end_ms=end_ms,
            registry=registry,
            publication=publication,
            grid=values.grid,
            attributes=values.attributes,
            on_demand=schedule.on_demand,
            stop=schedule.stop,
            unlock=budget.unlock,
            reserve_epsilon=budget.reserve_epsilon,
            candidates=values.candidates,
            withdrawable=self.withdrawable(file.withdrawable, mechanism),
            standing=file.window.standing,
            tiers=tiers,
        )
        if not file.continues:
            return survey
        ids = [file.continues] if isinstance(file.continues, str) else file.continues
        if reason := obstacle(survey):
            self.refuse(FIELD, ids, reason)

        def form(mechanism: Specification, before: tuple[Edition, ...]) -> Edition:
            earlier = replace(survey, mechanism=mechanism, continued=before)
            return Edition(earlier.edition, earlier.decoding_hash, mechanism)

        def build(levels: Sequence[float]) -> Specification:
            return builder(file.release, name, values.labels, levels, parameters)()

        try:
            return replace(survey, continued=continued_editions(mechanism, ids, build, form))
        except ParameterError as error:
            self.refuse(error.field, error.value, error.remedy)
