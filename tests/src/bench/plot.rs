//! Figures as a picture: a panel a table, a group of bars a trace, on a logarithmic scale.

use std::fmt::Write as _;

use serde_json::Value;

use crate::{
    figures::{Figures, PROGRAMS, label},
    machine,
};

const WIDTH: f64 = 900.0;
const PANEL: f64 = 330.0;
const TOP: f64 = 70.0;
const LEFT: f64 = 60.0;
const BARS: f64 = 220.0;
/// Nanoseconds at the ends of the scale.
const MIN: f64 = 10.0;
const MAX: f64 = 4000.0;
/// One for each program.
const COLOURS: [&str; 5] = ["#b8b8b8", "#7f8c9b", "#2a7f4f", "#d98a2b", "#b5413a"];

#[expect(clippy::cast_precision_loss, reason = "a handful of panels")]
pub(crate) fn svg(all: &[Figures], machine: &Value) -> String {
    let height = TOP + PANEL * all.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, LEFT, 22.0, "start", &format!("ns a packet: {}", machine::line(machine)));
    for (i, program) in PROGRAMS.into_iter().enumerate() {
        let x = LEFT + 165.0 * i as f64;
        bar(&mut svg, x, 36.0, 12.0, 12.0, COLOURS[i]);
        text(&mut svg, x + 18.0, 47.0, "start", label(program));
    }
    for (i, figures) in all.iter().enumerate() {
        panel(&mut svg, TOP + PANEL * i as f64, figures);
    }
    svg.push_str("</svg>\n");
    svg
}

#[expect(clippy::cast_precision_loss, reason = "a handful of bars")]
fn panel(svg: &mut String, top: f64, figures: &Figures) {
    let title = format!("{}, {} routes ({})", figures.family, figures.routes, figures.source);
    text(svg, LEFT, top + 20.0, "start", &title);
    let bottom = top + 35.0 + BARS;
    for ns in [10, 30, 100, 300, 1000, 3000] {
        let y = bottom - height(f64::from(ns));
        let right = WIDTH - 20.0;
        // Writing to a string cannot fail.
        let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#e2e2e2\"/>");
        text(svg, LEFT - 6.0, y + 4.0, "end", &ns.to_string());
    }
    let speed = &figures.speed;
    let group = (WIDTH - LEFT - 20.0) / speed.kinds.len() as f64;
    let width = group / (PROGRAMS.len() as f64 + 1.0);
    for (kind, trace) in speed.kinds.iter().enumerate() {
        let left = LEFT + group * kind as f64 + width / 2.0;
        for (i, program) in PROGRAMS.into_iter().enumerate() {
            let ns = speed.ns(program, kind);
            let (x, tall) = (left + width * i as f64, height(ns));
            bar(svg, x, bottom - tall, width - 3.0, tall, COLOURS[i]);
            text(svg, x + width / 2.0 - 1.5, bottom - tall - 4.0, "middle", &format!("{ns:.0}"));
        }
        text(svg, left + group / 2.0 - width / 2.0, bottom + 18.0, "middle", trace.label());
    }
}

fn height(ns: f64) -> f64 {
    BARS * (ns.clamp(MIN, MAX) / MIN).ln() / (MAX / MIN).ln()
}

fn bar(svg: &mut String, x: f64, y: f64, width: f64, height: f64, colour: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"{colour}\"/>"
    );
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}
