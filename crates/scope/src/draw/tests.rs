//! Renders whole sheets and checks their content.

use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;
use crate::chart::{Axis, Chart, Mark, NEUTRAL, Point, Scale, Series, Unit};

const NASTY: &str = "</script><script>alert(1)</script><!-- & \" ' \0 \u{1b} \u{2028}";

fn series(name: &str, mark: Mark, points: &[(f64, f64)]) -> Series {
    let points = points.iter().copied().map(Point::from).collect();
    Series { name: name.to_owned(), colour: 0, mark, points }
}

fn chart(title: &str, series: Vec<Series>) -> Chart {
    let (x, y) = (
        Axis::new("Time", Unit::Seconds, Scale::Linear),
        Axis::new("Rate", Unit::BitsPerSecond, Scale::Linear),
    );
    Chart { title: title.to_owned(), note: String::new(), x, y, series }
}

fn sheet(charts: Vec<Chart>) -> Sheet {
    Sheet { title: "Title".to_owned(), notes: vec!["A note.".to_owned()], charts }
}

/// Returns the data embedded in a page.
fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once(r#"<script type="application/json" id="sheet">"#).unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// A sheet with one chart of one line.
fn line(points: &[(f64, f64)]) -> Sheet {
    sheet(vec![chart("Chart", vec![series("a", Mark::Line, points)])])
}

#[test]
fn axes_name_quantity_and_unit_and_a_png_is_the_svg_at_twice_its_size() {
    let sheet = line(&[(0.0, 0.0), (10.0, 6.5e9)]);
    let drawn = svg(&sheet);
    for text in [">Title<", ">A note.<", ">Chart<", ">Time [s]<", ">Rate [Gbit/s]<", ">a<", ">10<", ">6<"] {
        assert!(drawn.contains(text), "{text} is missing in {drawn}");
    }
    let pixels = png(&sheet).unwrap();
    let number = |at: usize| u32::from_be_bytes(pixels[at..at + 4].try_into().unwrap());
    let height: u32 = drawn.split("height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
    assert_eq!((number(16), number(20)), (1720, height * 2));
}

#[test]
fn empty_sheet_is_drawn_with_notice() {
    let nan = series("nan", Mark::Line, &[(0.0, f64::NAN), (f64::INFINITY, 1.0)]);
    for charts in [
        vec![],
        vec![chart("no series", vec![])],
        vec![chart("no points", vec![series("none", Mark::Measured, &[])])],
        vec![chart("not finite", vec![nan])],
    ] {
        let sheet = sheet(charts);
        assert!(svg(&sheet).contains("nothing was recorded"), "{sheet:?}");
        assert!(html(&sheet).contains("nothing was recorded"), "{sheet:?}");
        png(&sheet).unwrap();
    }
}

#[test]
fn empty_series_single_points_and_spreads_are_shown() {
    let both = vec![series("full", Mark::Line, &[(0.0, 1.0), (1.0, 2.0)]), series("none", Mark::Line, &[])];
    let with_empty = sheet(vec![chart("Chart", both)]);
    assert!(svg(&with_empty).contains(">none (nothing was recorded)<"));
    assert_eq!(data(&html(&with_empty))["charts"][0]["series"][1]["name"], "none (nothing was recorded)");
    for mark in [Mark::Line, Mark::Steps, Mark::Dots, Mark::Rings, Mark::Events, Mark::Measured, Mark::Dashed]
    {
        let one_point = sheet(vec![chart("Chart", vec![series("", mark, &[(1.0, 1.0)])])]);
        assert!(svg(&one_point).contains("\n<path"), "{mark:?}");
    }
    let mut measured = series("a", Mark::Measured, &[(1.0, 5.0), (2.0, 6.0)]);
    measured.points[0].spread = Some((4.0, 90.0));
    measured.colour = NEUTRAL;
    let mut chart = chart("Chart", vec![measured]);
    chart.y.unit = Unit::Number;
    let sheet = sheet(vec![chart]);
    assert!(svg(&sheet).contains(">90<"), "the axis reaches as far as the spread");
    let spread = &data(&html(&sheet))["charts"][0]["series"][0]["spread"];
    assert_eq!(*spread, serde_json::json!([[4.0, 90.0], null]));
}

#[test]
fn untrusted_text_is_escaped() {
    let mut nasty = chart(NASTY, vec![series(NASTY, Mark::Line, &[(0.0, 0.0), (1.0, 1.0)])]);
    nasty.note = NASTY.to_owned();
    nasty.x = Axis::new(NASTY, Unit::Number, Scale::Names(vec![NASTY.to_owned(), NASTY.to_owned()]));
    nasty.y.label = NASTY.to_owned();
    let sheet = Sheet { title: NASTY.to_owned(), notes: vec![NASTY.to_owned()], charts: vec![nasty] };
    png(&sheet).unwrap();
    assert!(!svg(&sheet).contains("<script"));
    let plain = html(&line(&[(0.0, 0.0)]));
    let page = html(&sheet);
    assert!(!page.contains("<script>alert"));
    assert_eq!(page.matches("<script").count(), plain.matches("<script").count());
    assert_eq!(page.matches("<!--").count(), 0);
    assert_eq!(data(&page)["charts"][0]["series"][0]["name"], NASTY);
}

#[test]
fn a_page_loads_nothing() {
    let page = html(&line(&[(0.0, 0.0), (1.0, 1.0)]));
    let origin = "/*! https://github.com/leeoniya/uPlot (v1.6.32) */";
    let without = page.replacen(origin, "", 1);
    assert_ne!(page, without);
    for word in ["http://", "https://", "//cdn", " src=", "@import", "url(", "fetch(", "XMLHttpRequest"] {
        assert!(!without.contains(word), "{word}");
    }
    assert!(page.contains("default-src 'none'"));
    assert!(page.contains("Permission is hereby granted"), "uPlot's licence goes with it");
}

#[test]
fn charts_over_time_share_their_range_and_others_do_not() {
    let mut by_size = chart("Sizes", vec![series("a", Mark::Measured, &[(1e6, 1.0)])]);
    by_size.x.unit = Unit::Bytes;
    let short = chart("Short", vec![series("a", Mark::Line, &[(0.0, 1.0), (3.0, 1.0)])]);
    let long = chart("Long", vec![series("a", Mark::Line, &[(0.0, 1.0), (113.0, 1.0)])]);
    let data = data(&html(&sheet(vec![short, by_size, long])));
    let charts = &data["charts"];
    assert_eq!(charts[0]["group"], charts[2]["group"]);
    assert_eq!([&charts[0]["x"]["high"], &charts[2]["x"]["high"]], [113.0; 2]);
    assert_ne!(charts[0]["group"], charts[1]["group"]);
}

#[test]
fn long_series_are_thinned_and_keep_their_burst() {
    let points: Vec<_> =
        (0..200_000).map(|at| (f64::from(at), if at == 77_777 { 9.0 } else { 1.0 })).collect();
    let sheet = line(&points);
    let page = data(&html(&sheet));
    let heights = page["charts"][0]["series"][0]["y"].as_array().unwrap();
    assert!((10_000..=20_000).contains(&heights.len()), "{}", heights.len());
    assert!(heights.contains(&serde_json::json!(9)));
    assert!(svg(&sheet).len() < 100_000);
}

#[test]
fn many_lines_and_long_names_stay_within_the_picture() {
    let name = "a name that is much longer than the space in a legend, and continues on and on and on";
    let many = |name: &str| {
        let line = |n: usize| series(&format!("{name}{n}"), Mark::Line, &[(0.0, 1.0), (1.0, 2.0)]);
        (0..40).map(line).collect()
    };
    for name in [name, "short"] {
        let drawn = svg(&sheet(vec![chart(name, many(name))]));
        let starts = drawn.split("<text x=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        assert!(starts.map(|x| x.parse::<f64>().unwrap()).all(|x| (0.0..860.0).contains(&x)));
    }
}

#[test]
fn a_file_is_replaced_as_a_whole_and_readable_as_others_are() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let sheet = line(&[(0.0, 1.0), (1.0, 2.0)]);
    std::fs::write(at("plain"), "").unwrap();
    let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode();
    for (name, begin) in
        [("a.svg", &b"<svg"[..]), ("b.png", b"\x89PNG\r\n\x1a\n"), ("c.HTML", b"<!doctype html>")]
    {
        for _ in 0..2 {
            write(&sheet, &at(name), "-o").unwrap();
            assert!(std::fs::read(at(name)).unwrap().starts_with(begin));
            assert_eq!(mode(name), mode("plain"));
            std::fs::write(at(name), "what stood there before").unwrap();
        }
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 4, "nothing is left beside them");
    let error = png(&self::sheet(vec![sheet.charts[0].clone(); 100])).unwrap_err();
    assert!(error.to_string().contains("pixels tall; .svg has no such limit"), "{error}");
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![-10.0..10.0f64, any::<f64>(), Just(0.0), Just(1e30), Just(-1e30), Just(1e-30), Just(5e-324)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_numbers_can_be_drawn(
        points in prop::collection::vec((any_number(), any_number()), 0..20),
        scales in (0usize..3, 0usize..3),
        units in (0usize..4, 0usize..4),
    ) {
        let scale = |index: usize| match index {
            0 => Scale::Linear,
            1 => Scale::Logarithmic,
            _ => Scale::Names(vec!["one".to_owned(), "two".to_owned()]),
        };
        let unit = |index: usize| [Unit::Seconds, Unit::Bytes, Unit::BitsPerSecond, Unit::Number][index];
        for mark in [Mark::Line, Mark::Steps, Mark::Measured, Mark::Dashed] {
            let mut chart = chart("Chart", vec![series("a", mark, &points)]);
            chart.x = Axis::new("x", unit(units.0), scale(scales.0));
            chart.y = Axis::new("y", unit(units.1), scale(scales.1));
            let sheet = sheet(vec![chart]);
            let drawn = svg(&sheet);
            prop_assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{}", drawn);
            prop_assert!(drawn.len() < 100_000);
            html(&sheet);
        }
    }
}
