//! The text format of Prometheus, made from OpenMetrics, for those who do not ask for the latter.

use std::fmt::Write as _;

/// What the format calls itself.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a caller that sent this `Accept` wants OpenMetrics: it names it, and does not weigh it
/// below plain text.
pub(crate) fn wants_open_metrics(accept: Option<&str>) -> bool {
    let weight = |kind: &str| {
        let offers = accept.unwrap_or_default().split(',').filter_map(|offer| {
            let mut words = offer.split(';').map(str::trim);
            let is_meant = words.next().is_some_and(|name| name.eq_ignore_ascii_case(kind));
            let weight = words.find_map(|word| word.strip_prefix("q="));
            is_meant.then(|| weight.and_then(|weight| weight.parse().ok()).unwrap_or(1.0))
        });
        offers.fold(0.0, f64::max)
    };
    let open = weight("application/openmetrics-text");
    open > 0.0 && open >= weight("text/plain")
}

/// The same numbers. The formats differ in how a counter's family is called, in escapes of help
/// texts, and in the mark of the end.
pub(crate) fn from_open_metrics(text: &str) -> String {
    let mut plain = String::with_capacity(text.len() + 512);
    let mut helps: Option<(&str, &str)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            helps = rest.split_once(' ');
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = helps.take().filter(|(helped, _)| *helped == name) {
                let help = help.replace("\\\"", "\"");
                write_line(&mut plain, format_args!("# HELP {name}{suffix} {help}"));
            }
            write_line(&mut plain, format_args!("# TYPE {name}{suffix} {kind}"));
        } else if !line.starts_with('#') {
            write_line(&mut plain, format_args!("{line}"));
        }
    }
    plain
}

fn write_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes all text");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_for_those_who_ask_for_it() {
        let open = "application/openmetrics-text";
        for yes in [
            open,
            "application/openmetrics-text; version=1.0.0",
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1",
        ] {
            assert!(wants_open_metrics(Some(yes)), "{yes}");
        }
        for no in ["", "*/*", "text/plain", "text/plain, application/openmetrics-text;q=0.1"] {
            assert!(!wants_open_metrics(Some(no)), "{no}");
        }
        assert!(!wants_open_metrics(None));
    }

    #[test]
    fn counters_are_called_by_their_whole_name() {
        let open = "# HELP a Told \\\"so\\\".\n# TYPE a counter\na_total{n=\"x # y\"} 1\n\
                    # HELP b B.\n# TYPE b gauge\nb 2\n# EOF\n";
        let plain = "# HELP a_total Told \"so\".\n# TYPE a_total counter\na_total{n=\"x # y\"} 1\n\
                     # HELP b B.\n# TYPE b gauge\nb 2\n";
        assert_eq!(from_open_metrics(open), plain);
    }
}
