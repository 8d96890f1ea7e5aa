"""What `survey check` says of answers that outlast a window, and of answers that are taken back."""

from __future__ import annotations

from producers.survey.survey import Survey


def cost_sentence(survey: Survey, per_window: str, per_day: str) -> str:
    """Say what answers cost; `per_window` and `per_day` are numbers as they are shown."""
    if survey.standing:
        return (
            f"All answers for one value together cost epsilon {per_window}, however many windows repeat them; each "
            "other value that a person has costs as much again, and one that comes back nothing; a device whose value "
            f"is new in every window spends {per_day} a day"
        )
    return (
        f"All answers of a window together cost epsilon {per_window}, the cost of the last one alone; a device that "
        f"answers in every window spends {per_day} a day"
    )


def lifetime_sentence(survey: Survey, lifetime: str, number: int, lasts: str, person: str) -> str:
    """Say how far the lifetime budget goes: for `number` windows or values."""
    if survey.standing:
        values = "one value" if number == 1 else f"{number:,} different values"
        pays = f"pays for {values} with all rungs"
    else:
        windows = "one whole window" if number == 1 else f"{number:,} whole windows"
        pays = f"pays for {windows}, {lasts} if the device answers in every window"
    return (
        f"The lifetime budget of {lifetime}, shared with all other surveys of a device, {pays}; the person's own "
        f"bound, {person} unless they set another, holds as well"
    )


def lasting_sentences(survey: Survey) -> tuple[str, ...]:
    """Say what opens by a rule, what is repeated, what can be taken back, and who may know what."""
    found = []
    if survey.continued:
        forms = " and ".join(f"{one.id} ({one.mechanism.rungs} levels)" for one in survey.continued)
        found.append(
            f"It continues {forms}: chains of these go on above their top, and answers to all of them are counted "
            f"together, as {survey.id}."
        )
    if survey.stop is not None:
        found.append(
            f"A level above the first opens only while the always-valid band of some value is wider than "
            f"{survey.stop.width:g}: devices release what a signed bulletin has opened, and pay for no more."
        )
    if survey.standing:
        found.append(
            "Answers belong to the value: each window repeats those of the value that the person has then, under a new "
            "token, and draws new ones only for a value that they never had before."
        )
    if survey.withdrawable:
        found.append(
            "A person can take answers back until the window expires; what was seen before was seen. If who does so "
            "depends on the value, estimates are biased."
        )
    if survey.tiers:
        levels = ", ".join(
            f"{tier.name} up to epsilon {survey.mechanism.epsilons[tier.rung]:g}" for tier in survey.tiers
        )
        found.append(
            f"Each audience has estimates of its own, from the answers up to its rung: {levels}. Several that share "
            "what they know learn what the highest of them does."
        )
    return tuple(found)


def lasting_warnings(survey: Survey) -> list[str]:
    """Judge what no epsilon covers."""
    if survey.stop is not None:
        stops = (
            "the rule stops when the answers look good enough, so intervals at one look hold less often than they say; "
            "always-valid ones hold"
        )
        return [stops, *_standing_warnings(survey)]
    return _standing_warnings(survey)


def _standing_warnings(survey: Survey) -> list[str]:
    if not survey.standing:
        return []
    follows = (
        "standing values: who can follow a device, by its connection or otherwise, learns which of its windows had the "
        "same value, and so whether and how often it changed; no epsilon covers that. Use them where values change "
        "rarely and a change is no secret; otherwise remove window.standing"
    )
    repeats = (
        "standing values: a device makes the same error in every window, so averages over windows are no more accurate "
        "than one window"
    )
    return [follows, repeats]
