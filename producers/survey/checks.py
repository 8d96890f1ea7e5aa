"""The checks that the shape of a survey file cannot express."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from estimators.mechanism import ParameterError, Specification
from estimators.mechanisms.registry import names
from producers.survey.file import MAX_RUNGS, MAX_SHARDS, OnDemand, SurveyFile, WhileWide
from producers.survey.messages import did_you_mean
from producers.survey.schedule import SampledLevels, Schedule, ScheduleError, schedule_of
from producers.survey.times import TimeChecker
from producers.survey.values import Values, values_of


class FileChecker(TimeChecker):
    """Checks one file; `data` is its content as it was read."""

    def __init__(self, source: str, data: Mapping[str, Any], candidates: Sequence[str] | None) -> None:
        super().__init__(source)
        self.data, self.candidates = data, candidates

    def basics(self, file: SurveyFile) -> None:
        """Check what needs no mechanism."""
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,47}", file.name):
            self.refuse("name", file.name, "use 1 to 48 lower-case letters, digits, - and _, a letter or digit first")
        if not file.question.strip():
            self.refuse("question", file.question, "write in one sentence what the person is asked")
        if not 1 <= file.shards <= MAX_SHARDS:
            self.refuse("shards", file.shards, f"must be 1 to {MAX_SHARDS}; 64 fits most surveys")
        if not 0.0 < file.estimate.alpha < 0.5:
            self.refuse("estimate.alpha", file.estimate.alpha, "must be between 0 and 0.5; 0.05 gives 95 % intervals")

    def withdrawable(self, asked: bool, mechanism: Specification) -> bool:
        """Check that a rung is left for withdrawals."""
        if asked and mechanism.rungs > MAX_RUNGS - 1:
            self.refuse("withdrawable", asked, f"a ladder of {mechanism.rungs} rungs leaves none for it; shorten it")
        return asked

    def values(self, file: SurveyFile) -> Values:
        """Return the values."""
        try:
            return values_of(self.source, file.values, self.candidates)
        except ParameterError as error:
            self.refuse(error.field, error.value, error.remedy)

    def named_mechanism(self, table: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the mechanism's name and its parameters."""
        parameters = dict(table)
        name = parameters.pop("name", None)
        if name is None:
            self.refuse("mechanism.name", None, f"name a mechanism: {', '.join(names())}")
        if name not in names():
            self.refuse("mechanism.name", name, did_you_mean("mechanism", str(name), names()))
        return name, parameters

    def schedule(self, file: SurveyFile, sampled_levels: SampledLevels) -> Schedule:
        """Return when which level is released."""
        if isinstance(file.release, WhileWide) and file.estimate.rungs == "independent":
            self.refuse(
                "release.kind",
                "while_wide",
                "devices that rely on the top rung pay for it with their first answer, so stopping would save nothing; "
                'write rungs = "any"',
            )
        if file.canary is not None and file.window.standing:
            self.refuse(
                "window.standing", True, "a canary is judged by answers that are fresh in every window; remove it"
            )
        if isinstance(file.release, WhileWide) and file.publish.totals_only:
            self.refuse(
                "publish.totals_only", True, "a rule on bands tells something of every window; remove one of them"
            )
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
        """Build the mechanism, and check that it fits the file."""
        try:
            mechanism = built()
            values.check(mechanism)
        except ParameterError as error:
            self.refuse(self.place(error.field), error.value, error.remedy)
        except ValueError as error:
            self.refuse("mechanism", file.mechanism, str(error))
        if isinstance(file.release, WhileWide) and not all(one.always_valid for one in mechanism.quantities):
            self.refuse("release.kind", "while_wide", f"{mechanism.name} has no always-valid bands; use listed")
        # Bits of a single value cost nothing, since nothing else could have been answered.
        if (mechanism.answer.kind == "index" and mechanism.answer.size < 2) or not any(mechanism.epsilons):
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
        """Return where in the file a field of the mechanism or the ladder is."""
        if field == "mechanism" or field.split(".")[0].split("[")[0] in ("mechanism", "values", "release"):
            return field
        if field.split("[")[0] == "ladder":
            return f"release.{field}" if isinstance(self.data.get("release", {}).get("ladder"), list) else "release"
        return f"mechanism.{field}"
