//! A sheet as one HTML file with data, script and style; it loads nothing else.

use serde_json::{Value, json};

use crate::chart::{Mark, Point, Scale, Series, Sheet};

use super::axis::DrawnAxis;
use super::palette::colour;
use super::prepared::{Limits, PreparedChart, prepare, shares_x};
use super::text::escape;

const UPLOT: &str = include_str!("../../assets/uplot/uPlot.iife.min.js");
const UPLOT_LICENSE: &str = include_str!("../../assets/uplot/LICENSE");
const UPLOT_STYLE: &str = include_str!("../../assets/uplot/uPlot.min.css");
const SCRIPT: &str = include_str!("../../assets/page/page.js");
const STYLE: &str = include_str!("../../assets/page/page.css");
/// Content Security Policy: the page may load nothing.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// As many points as a browser draws without delay; enough to zoom to single samples.
const LIMITS: Limits = Limits { points: 20_000, points_of_all: 100_000, x_ticks: 10, y_ticks: 6 };

/// Renders a sheet as HTML.
pub(super) fn draw(sheet: &Sheet) -> String {
    let charts = prepare(sheet, LIMITS);
    let sections: String = charts.iter().enumerate().map(|(index, chart)| section(index, chart)).collect();
    let sections =
        if charts.is_empty() { "<p class=\"nothing\">nothing was recorded</p>\n".into() } else { sections };
    let notes: String = sheet.notes.iter().map(|note| format!("<p>{}</p>\n", escape(note))).collect();
    let title = escape(&sheet.title);
    let data =
        json_in_html(&json!({ "charts": charts.iter().map(|chart| data(chart, sheet)).collect::<Vec<_>>() }));
    format!(
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{UPLOT_STYLE}
{STYLE}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<nav><button id="reset" disabled>Reset zoom</button><button id="theme">Dark</button></nav>
</header>
{notes}<p class="help">Drag across a chart to zoom into all of them; double-click to zoom out; click a name to hide its line.</p>
<noscript><p class="nothing">The charts are drawn by a script in this page, which the browser does not run.</p></noscript>
<main>
{sections}</main>
<script type="application/json" id="sheet">{data}</script>
<script>
/*
{UPLOT_LICENSE}*/
{UPLOT}</script>
<script>
{SCRIPT}</script>
</body>
</html>
"#
    )
}

fn section(index: usize, chart: &PreparedChart) -> String {
    let title = escape(&chart.chart.title);
    let note = match chart.chart.note.as_str() {
        "" => String::new(),
        note => format!("<p>{}</p>\n", escape(note)),
    };
    let drawable = chart.series.iter().any(|(_, points)| !points.is_empty());
    let place = if drawable {
        format!("<div id=\"chart-{index}\"></div>")
    } else {
        "<p class=\"nothing\">nothing was recorded</p>".to_owned()
    };
    format!("<section>\n<h2>{title}</h2>\n{note}{place}\n</section>\n")
}

/// Returns the data of a chart for the page's script.
fn data(chart: &PreparedChart, sheet: &Sheet) -> Value {
    // Charts that share an x axis form a group, named by the index of its first chart.
    let group = sheet.charts.iter().position(|other| shares_x(chart.chart, other));
    let named = |(series, points): &(&Series, Vec<Point>)| {
        let name = if points.is_empty() && !series.name.is_empty() {
            format!("{} (nothing was recorded)", series.name)
        } else {
            series.name.clone()
        };
        self::series(series, name, points)
    };
    json!({
        "group": format!("group-{}", group.unwrap_or(0)),
        "x": axis(&chart.x, &chart.chart.x.label, &chart.chart.x.scale),
        "y": axis(&chart.y, &chart.chart.y.label, &chart.chart.y.scale),
        "series": chart.series.iter().map(named).collect::<Vec<_>>(),
    })
}

fn axis(ruler: &DrawnAxis, name: &str, scale: &Scale) -> Value {
    let scale = match scale {
        Scale::Linear | Scale::Near => "linear",
        Scale::Logarithmic => "log",
        Scale::Names(_) => "names",
    };
    let ticks: Vec<Value> =
        ruler.ticks.iter().map(|tick| json!({ "value": tick.value, "text": tick.text })).collect();
    json!({
        "name": name,
        "label": ruler.label,
        "factor": ruler.unit.factor,
        "unit": ruler.unit.name,
        "scale": scale,
        "base": ruler.base,
        "low": ruler.low,
        "high": ruler.high,
        "ticks": ticks,
    })
}

fn series(series: &Series, name: String, points: &[Point]) -> Value {
    let mark = match series.mark {
        Mark::Line => "line",
        Mark::Dashed => "dashed",
        Mark::Steps => "steps",
        // The page has one mark for all; zooming separates them.
        Mark::Dots | Mark::Rings | Mark::Separate => "dots",
        Mark::Events => "events",
        Mark::Measured => "measured",
        Mark::Band => "band",
    };
    let (light, dark) = colour(series.colour);
    let mut value = json!({
        "name": name,
        "mark": mark,
        "colours": [light, dark],
        "x": points.iter().map(|point| rounded(point.x)).collect::<Vec<_>>(),
        "y": points.iter().map(|point| rounded(point.y)).collect::<Vec<_>>(),
    });
    if points.iter().any(|point| point.spread.is_some()) {
        value["spread"] = points.iter().map(|point| json!(point.spread)).collect();
    }
    value
}

/// Rounds a number to nine digits: finer than any measurement, and shorter in JSON.
fn rounded(value: f64) -> Value {
    let rounded = format!("{value:.8e}").parse().unwrap_or(value);
    // Integers are written without ".0".
    if rounded == rounded.trunc() && rounded.abs() < 1e15 { json!(rounded as i64) } else { json!(rounded) }
}

/// Writes JSON for a script element; no text in it can close the element.
fn json_in_html(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}
