"""Grafana dashboards from the table of metrics: `python -m deploy.grafana.build` writes them to `dashboards/`.

Run it after changing metrics (`make generated`). Grafana itself needs only the JSON files.
"""

from pathlib import Path
from typing import get_args

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import GraphDrawStyle, LineStyle, VizOrientation
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DynamicConfigValue,
    VariableHide,
    VariableRefresh,
)

from streams.metrics import METRICS
from streams.metrics_gateway import Metric, Process

FOLDER = Path(__file__).parent / "dashboards"
SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
HALF, THIRD = 12, 8
SURVEY = 'survey=~"$survey"'
ESTIMATE = "thaw_frequency_estimate_ratio|thaw_mean_estimate"
PLACE = f'{SURVEY},value=~"$value",window="$window"'


def query(expression: str, legend: str, *, name: str = "A") -> prometheus.Dataquery:
    """Return one query of a panel."""
    return prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(name)


def panel(title: str, about: str, *queries: prometheus.Dataquery, unit: str = "short") -> timeseries.Panel:
    """Return a time series panel."""
    made = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(unit)
        .height(8)
        .span(HALF)
        .legend(common.VizLegendOptions().show_legend(True))
        .draw_style(GraphDrawStyle.LINE)
    )
    for made_query in queries:
        made.with_target(made_query)
    return made


def number(title: str, about: str, expression: str, *, unit: str = "short") -> stat.Panel:
    """Return a panel with one number."""
    return (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(unit)
        .height(4)
        .span(THIRD)
        .orientation(VizOrientation.AUTO)
        .with_target(query(expression, "{{survey}}"))
    )


def _start(title: str, uid: str, about: str) -> dashboard.Dashboard:
    made = dashboard.Dashboard(title).uid(uid).description(about).tags(["thaw"]).refresh("5s").time("now-15m", "now")
    return made.with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))


def _variable(name: str, label: str, expression: str, *, several: bool) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(expression)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(several)
        .include_all(several)
        .hide(VariableHide.DONT_HIDE)
    )


def estimates() -> dashboard.Dashboard:
    """One survey: estimates with their confidence intervals, alert bounds, users per rung, the canary."""
    made = (
        _start(
            "Thaw: estimates",
            "thaw-estimates",
            "Estimates with their confidence intervals, and the bounds of alert rules.",
        )
        .with_variable(_variable("survey", "Survey", "label_values(thaw_survey_info, survey)", several=False))
        .with_variable(
            _variable("value", "Value", f'label_values({{__name__=~"{ESTIMATE}",{SURVEY}}}, value)', several=True)
        )
        .with_variable(_variable("window", "Window", f"label_values(thaw_users{{{SURVEY}}}, window)", several=False))
    )
    for made_panel in (*_numbers(), _shares().span(2 * HALF).height(10), _means(), *_alert_bounds(), *_trust()):
        made.with_panel(made_panel)
    return made


def _numbers() -> tuple[stat.Panel, ...]:
    return (
        number("Users", "Users of the window, on all rungs.", f'sum(thaw_users{{{SURVEY},window="$window"}})'),
        number(
            "Age of the last estimate",
            "Time since the last estimate of the survey was computed.",
            f"time() - max(thaw_last_estimate_timestamp_seconds{{{SURVEY}}})",
            unit="s",
        ),
        number(
            "Budget spent",
            "Part of the lifetime budget that a device has spent if it answered in every window.",
            f"max(thaw_budget_spent_ratio{{{SURVEY}}})",
            unit="percentunit",
        ),
    )


def _means() -> timeseries.Panel:
    return with_bounds(
        "Means",
        "Mean of each value with its confidence interval, in the unit of the survey's values.",
        query(f"thaw_mean_estimate{{{PLACE}}}", "{{value}} {{unit}}", name="A"),
        "thaw_mean_{}_bound",
    )


def _alert_bounds() -> tuple[timeseries.Panel, ...]:
    return (
        with_limit(
            "Alert bounds of shares",
            "A rule fires when its bound passes the dashed threshold. The bounds are always valid.",
            (f'thaw_alert_bound_ratio{{{SURVEY},window="$window"}}', "{{value}} {{side}}"),
            (f"thaw_alert_threshold_ratio{{{SURVEY}}}", "{{value}} {{side}} threshold"),
            unit="percentunit",
        ),
        with_limit(
            "Alert bounds of means",
            "The same for means, in the unit of the survey's values.",
            (f'thaw_alert_mean_bound{{{SURVEY},window="$window"}}', "{{value}} {{side}}"),
            (f"thaw_alert_mean_threshold{{{SURVEY}}}", "{{value}} {{side}} threshold"),
        ),
        panel(
            "Always-valid bounds",
            "Wider than the confidence interval; they hold at every look at a window together.",
            query(f"thaw_frequency_always_valid_lower_bound_ratio{{{PLACE}}}", "{{value}} lower", name="A"),
            query(f"thaw_frequency_always_valid_upper_bound_ratio{{{PLACE}}}", "{{value}} upper", name="B"),
            unit="percentunit",
        ),
    )


def _trust() -> tuple[timeseries.Panel, ...]:
    return (
        panel(
            "Users per rung",
            "Users whose last answer is of this rung. The schedule opens rungs one after the other.",
            query(f'thaw_users{{{SURVEY},window="$window"}}', "rung {{rung}}"),
        ),
        with_limit(
            "Canary",
            "Distance of canaries from their known truth over the last five settled windows, in standard errors, "
            "and the limit of the alert.",
            ("thaw_canary_joint_z_score", "{{survey}}"),
            ("thaw_limit_canary_z_score", "{{survey}} limit"),
        ),
        with_limit(
            "Proven epsilon",
            "The answers of canary devices up to each rung cost at least this epsilon, and what is declared. The bound "
            "is always valid.",
            ("thaw_audit_epsilon_lower_bound", "{{survey}} rung {{rung}}"),
            ("thaw_audit_epsilon_declared", "{{survey}} rung {{rung}} declared"),
        ),
    )


def _shares() -> timeseries.Panel:
    return with_bounds(
        "Estimates",
        "Share of each value with its confidence interval, which narrows as rungs open.",
        query(f"thaw_frequency_estimate_ratio{{{PLACE}}}", "{{value}}", name="A"),
        "thaw_frequency_{}_bound_ratio",
        unit="percentunit",
    )


def with_bounds(
    title: str, about: str, estimate: prometheus.Dataquery, bound: str, *, unit: str = "short"
) -> timeseries.Panel:
    """Return estimates, and their bounds (the metric `bound` with lower and upper) as thin dashed lines."""
    lower, upper = (
        query(f"{bound.format(side)}{{{PLACE}}}", f"{{{{value}}}} {side}", name=name)
        for side, name in (("lower", "B"), ("upper", "C"))
    )
    made = panel(title, about, estimate, lower, upper, unit=unit)
    return made.override_by_query("B", [_thin(), _dashed()]).override_by_query("C", [_thin(), _dashed()])


def with_limit(
    title: str, about: str, measured: tuple[str, str], limit: tuple[str, str], *, unit: str = "short"
) -> timeseries.Panel:
    """Return what is measured and the limit that an alert compares it with, dashed; each an expression and a legend."""
    made = panel(title, about, query(*measured, name="A"), query(*limit, name="B"), unit=unit)
    return made.override_by_query("B", [_dashed(), _grey()])


def _dashed() -> DynamicConfigValue:
    return DynamicConfigValue(id_val="custom.lineStyle", value=LineStyle(fill="dash", dash=[6, 6]))


def _thin() -> DynamicConfigValue:
    return DynamicConfigValue(id_val="custom.lineWidth", value=1)


def _grey() -> DynamicConfigValue:
    return DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": "gray"})


def everything() -> dashboard.Dashboard:
    """All metrics of the table, one panel each: counters as rates, histograms as quantiles."""
    made = _start(
        "Thaw: all metrics", "thaw-metrics", "Every metric of docs/metrics.md, by the process that serves it."
    )
    for process in get_args(Process):
        made.with_row(dashboard.Row(process.capitalize()))
        for metric in METRICS:
            if metric.process == process:
                made.with_panel(metric_panel(metric))
    return made


def metric_panel(metric: Metric) -> timeseries.Panel:
    """Return the panel of one metric."""
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels) or "{{instance}}"
    if metric.kind == "histogram":
        rate = f"sum by (le) (rate({metric.name}_bucket[1m]))"
        quantiles = [
            query(f"histogram_quantile({share}, {rate})", f"p{round(100 * share)}", name=name)
            for share, name in ((0.5, "A"), (0.99, "B"))
        ]
        unit = "s" if metric.name.endswith("_seconds") else "short"
        return panel(metric.name, metric.help, *quantiles, unit=unit).span(THIRD)
    if metric.kind == "counter":
        kept = f"sum by ({', '.join(metric.labels)}) " if metric.labels else "sum"
        return panel(
            f"{metric.name} per second", metric.help, query(f"{kept}(rate({metric.name}[1m]))", legend), unit="cps"
        ).span(THIRD)
    if metric.name.endswith("_timestamp_seconds"):
        return panel(f"Age of {metric.name}", metric.help, query(f"time() - {metric.name}", legend), unit="s").span(
            THIRD
        )
    unit = "percentunit" if metric.name.endswith("_ratio") else "short"
    return panel(metric.name, metric.help, query(metric.name, legend), unit=unit).span(THIRD)


DASHBOARDS = {"estimates.json": estimates, "metrics.json": everything}


def text_of(name: str) -> str:
    """Return the JSON of a dashboard."""
    return JSONEncoder(sort_keys=True, indent=2).encode(DASHBOARDS[name]().build()) + "\n"


def write() -> None:
    """Write all dashboards."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in DASHBOARDS:
        (FOLDER / name).write_text(text_of(name))


if __name__ == "__main__":
    write()
