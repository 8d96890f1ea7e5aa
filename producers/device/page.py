"""The person's own page: a statement of the ledger as one HTML file that needs nothing else, no script either."""

from __future__ import annotations

import datetime
import math
from html import escape
from importlib.resources import files

from estimators.planning.odds import highest_percent
from producers.device.statement import Level, Statement, SurveyStatement, WindowStatement, meaning, switched_off

MOST_WINDOWS = 200
"""Windows of a survey in the table. Fewer hides what a person looks for; more makes a page that no browser likes."""
_MOST_POINTS = 600
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 900, 220, 52, 26, 12
_MUCH = 0.8
"""Share of the budget from which its meter has the colour of a warning."""


def page_of(statement: Statement, suspicion: float) -> str:
    """Return the page; every text that comes from elsewhere is escaped."""
    style = files("producers.device").joinpath("page.css").read_text(encoding="utf-8")
    surveys = "".join(_survey(survey, suspicion) for survey in statement.surveys)
    if not statement.surveys:
        surveys = '<section class="card"><p>This device has answered no survey.</p></section>'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>What left this device</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>What left this device</h1>
<p class="lead">As of {_moment(statement.made_ms)}. This page was made from the ledger of the device alone. It holds
neither a value nor an answer.</p>
{_consent(statement)}{_summary(statement, suspicion)}
{surveys}
<footer>Epsilon is the privacy level: answers of level epsilon multiply the odds of a suspicion by at most e to the
power of epsilon. Answers of one window cost together what the sharpest of them costs; windows and surveys add up. The
sum over the lifetime is for somebody who knows that all of it came from one device; reports themselves do not say so.
Times are in UTC.</footer>
</main>
</body>
</html>
"""


def _consent(statement: Statement) -> str:
    if statement.consent:
        return ""
    return f'<p class="card off">{switched_off(statement.withdrawals)}</p>\n'


def _summary(statement: Statement, suspicion: float) -> str:
    released = sum(len(window.levels) for survey in statement.surveys for window in survey.windows)
    windows = sum(bool(window.levels) for survey in statement.surveys for window in survey.windows)
    unlock = f"; it unlocks {escape(statement.unlock)}" if statement.unlock else ""
    figures = [
        ("Released", f"{released:,}", f"answers for {windows:,} windows; {statement.waiting:,} reports wait"),
        ("Spent", _epsilon(statement.spent), _unbounded(statement.unbounded) or "epsilon, over the lifetime"),
        ("Left", _epsilon(statement.left), f"of {_epsilon(statement.limit)}, the bound of this person{unlock}"),
        ("A suspicion may rise to", highest_percent(suspicion, statement.epsilon), f"from {100 * suspicion:g} %"),
    ]
    terms = "".join(
        f"<div><dt>{name}</dt><dd>{number}<small>{note}</small></dd></div>" for name, number, note in figures
    )
    bound = " none" if math.isinf(statement.epsilon) else ""
    return (
        f'<section class="card"><dl class="figures" style="margin:0">{terms}</dl>{_meter(statement)}'
        f'<p class="meaning{bound}">Over the lifetime: {escape(meaning(statement.epsilon, suspicion))}.</p>'
        f"{_chart(statement)}</section>"
    )


def _meter(statement: Statement) -> str:
    if math.isinf(statement.limit) or statement.limit <= 0:
        return ""
    share = min(1.0, statement.spent / statement.limit)
    return (
        f'<div class="meter" role="img" aria-label="{100 * share:.0f} % of the budget is spent">'
        f'<span class="{"much" if share >= _MUCH else ""}" style="width:{100 * share:.2f}%"></span></div>'
    )


def _chart(statement: Statement) -> str:
    """Draw what was spent over time: steps, and the person's bound where it is near enough to be seen."""
    spending = statement.spending
    if len(spending) < 2 or spending[-1][0] == spending[0][0]:
        return ""
    # Releases whose moment is not known stand before the first known one.
    before = statement.spent - sum(more for _, more in spending)
    first_ms, last_ms = spending[0][0], max(spending[-1][0], statement.made_ms)
    points = [(first_ms, max(before, 0.0))]
    for moment_ms, more in spending:
        points += [(moment_ms, points[-1][1]), (moment_ms, points[-1][1] + more)]
    points.append((last_ms, points[-1][1]))
    points = points[:: max(1, len(points) // _MOST_POINTS)] + points[-1:]
    highest = max(points[-1][1], statement.limit if statement.limit < 4 * points[-1][1] else 0.0)

    def across(moment_ms: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - 8) * (moment_ms - first_ms) / (last_ms - first_ms)

    def up(epsilon: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * epsilon / (1.08 * highest)

    line = " ".join(f"{across(moment_ms):.1f},{up(epsilon):.1f}" for moment_ms, epsilon in points)
    floor = up(0)
    limit = ""
    if highest == statement.limit:
        limit = (
            f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{up(highest):.1f}" y2="{up(highest):.1f}"/>'
            f'<text x="{_WIDTH - 8}" y="{up(highest) - 4:.1f}" text-anchor="end">bound {_epsilon(highest)}</text>'
        )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Epsilon spent over time"><polygon class="under" '
        f'points="{across(first_ms):.1f},{floor:.1f} {line} {across(last_ms):.1f},{floor:.1f}"/>'
        f'<polyline class="spent" points="{line}"/>{limit}'
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{floor:.1f}" y2="{floor:.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{floor:.1f}" text-anchor="end">0</text>'
        f'<text x="{_LEFT - 8}" y="{up(points[-1][1]) + 4:.1f}" text-anchor="end">{_epsilon(points[-1][1])}</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{_moment(first_ms)}</text>'
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 6}" text-anchor="end">{_moment(last_ms)}</text></svg>'
    )


def _survey(survey: SurveyStatement, suspicion: float) -> str:
    chips = [f'<span class="chip">spent {_epsilon(survey.spent)}</span>']
    if survey.unbounded:
        chips.append(f'<span class="chip warn">{_unbounded(survey.unbounded)}</span>')
    if survey.question:
        limit = f" of {_epsilon(survey.limit)}" if math.isfinite(survey.limit) else ""
        chips.append(f'<span class="chip">it may ask for at most {_epsilon(survey.left)} more{limit}</span>')
    if survey.unlock:
        chips.append(f'<span class="chip">unlocks {escape(survey.unlock)}</span>')
    if survey.protects and survey.protects != "every value":
        chips.append(f'<span class="chip warn">protects {escape(survey.protects)}</span>')
    shown = survey.windows[:MOST_WINDOWS]
    rows = "".join(_window(window, suspicion) for window in shown)
    table = (
        '<div class="scroll"><table><thead><tr><th>window from</th><th>what left, and when</th><th>paid</th>'
        f"<th>{100 * suspicion:g} % may become</th><th>one more level</th></tr></thead><tbody>{rows}</tbody></table>"
        "</div>"
    )
    older = ""
    if len(survey.windows) > len(shown):
        older = f'<p class="question">{len(survey.windows) - len(shown):,} older windows: --json has them.</p>'
    return (
        f'<section class="card"><h2>{escape(survey.name)}</h2><p class="question">{escape(survey.question)}</p>'
        f"<div>{''.join(chips)}</div>{table if rows else ''}{older}</section>\n"
    )


def _window(window: WindowStatement, suspicion: float) -> str:
    levels = "".join(_level(level) for level in window.levels) or '<span class="next">nothing yet</span>'
    taken = "" if window.withdrawn_ms is None else f"<small>taken back {_moment(window.withdrawn_ms)}</small>"
    following = '<span class="next">none</span>'
    if window.following is not None:
        would = highest_percent(suspicion, window.following.epsilon)
        wished = "; asked for" if window.following.wished else ""
        following = f"{_epsilon(window.following.costs)}<small>then at most {would}{wished}</small>"
    return (
        f'<tr><td>{_moment(window.window_ms)}</td><td><div class="levels">{levels}</div>{taken}</td>'
        f"<td>{_epsilon(window.paid)}</td><td>{highest_percent(suspicion, window.epsilon)}</td><td>{following}</td>"
        "</tr>"
    )


def _level(level: Level) -> str:
    if level.waiting:
        when = "waits to be sent"
    elif level.sent_ms is not None:
        when = f"sent {_moment(level.sent_ms)}"
    else:
        when = "moment not recorded"
    kind = "level waiting" if level.waiting else "level"
    return f'<span class="{kind}">{_epsilon(level.epsilon)}<small>{when}</small></span>'


def _unbounded(answers: int) -> str:
    return f"and {answers:,} answers without a finite cost" if answers else ""


def _epsilon(epsilon: float) -> str:
    return "no bound" if math.isinf(epsilon) else f"{epsilon:.4g}"


def _moment(moment_ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(moment_ms / 1_000, datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M}"
