//! A strict reader of the OpenMetrics text format: it accepts nothing that the standard does not.

use std::collections::{BTreeMap, BTreeSet};

/// One number of a scrape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// Reads a whole scrape. Panics with what is wrong.
pub(crate) fn parse(text: &str) -> Vec<Sample> {
    let body = text.strip_suffix("# EOF\n").expect("ends with # EOF");
    let (mut samples, mut families) = (Vec::new(), BTreeMap::new());
    let mut current: Option<String> = None;
    let mut seen = BTreeSet::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("TYPE has a name and a kind");
            check_name(name);
            assert!(["gauge", "counter", "histogram"].contains(&kind), "{line}");
            assert!(families.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
            current = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            check_name(rest.split_once(' ').expect("HELP has a name and a text").0);
        } else {
            assert!(!line.starts_with('#') && !line.is_empty(), "a stray line: {line:?}");
            let sample = sample(line);
            let family = current.as_deref().expect("a sample belongs to a family");
            check_family(&sample, family, &families[family]);
            let key = (sample.name.clone(), sample.labels.clone());
            assert!(seen.insert(key), "the same sample twice: {line}");
            samples.push(sample);
        }
    }
    check_histograms(&samples, &families);
    samples
}

/// The suffix that a sample's name must have for its kind.
fn check_family(sample: &Sample, family: &str, kind: &str) {
    let suffix = sample.name.strip_prefix(family).expect("samples follow their TYPE");
    match kind {
        "gauge" => assert_eq!(suffix, "", "{sample:?}"),
        "counter" => {
            assert_eq!(suffix, "_total", "{sample:?}");
            assert!(sample.value >= 0.0, "{sample:?}");
        }
        _ => {
            assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{sample:?}");
            assert_eq!(suffix == "_bucket", sample.labels.contains_key("le"), "{sample:?}");
        }
    }
}

/// Buckets grow, and the last holds everything.
fn check_histograms(samples: &[Sample], families: &BTreeMap<String, String>) {
    for (family, _) in families.iter().filter(|(_, kind)| *kind == "histogram") {
        let bucket = format!("{family}_bucket");
        for count in samples.iter().filter(|sample| sample.name == format!("{family}_count")) {
            let of_same = |sample: &&Sample| {
                let mut labels = sample.labels.clone();
                labels.remove("le");
                sample.name == bucket && labels == count.labels
            };
            let buckets: Vec<&Sample> = samples.iter().filter(of_same).collect();
            assert!(buckets.windows(2).all(|pair| pair[0].value <= pair[1].value), "{family}");
            let last = buckets.last().expect("a histogram has buckets");
            assert_eq!((last.labels["le"].as_str(), last.value), ("+Inf", count.value));
        }
    }
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect("a name and a value");
    let (name, mut rest) = line.split_at(end);
    check_name(name);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"").expect("a label and its value");
            check_name(label);
            let (value, after) = quoted(after);
            assert!(labels.insert(label.to_owned(), value).is_none(), "a label twice: {line}");
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect("one space before the value");
    let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
    Sample { name: name.to_owned(), labels, value }
}

/// The text up to the closing quote, and what comes after it.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => match characters.next().expect("something after a backslash").1 {
                'n' => value.push('\n'),
                other @ ('\\' | '"') => value.push(other),
                other => panic!("an unknown escape: \\{other}"),
            },
            '\n' => panic!("a line break inside a label"),
            other => value.push(other),
        }
    }
    panic!("a label without an end: {text}")
}

fn check_name(name: &str) {
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let goes_on_well = name.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c));
    assert!(starts_well && goes_on_well, "no name: {name:?}");
}

#[test]
fn what_breaks_the_rules_is_refused() {
    let good = "# TYPE a gauge\na{x=\"q\\\"\\\\\"} 1\n# EOF\n";
    assert_eq!(parse(good)[0].labels["x"], "q\"\\");
    for bad in [
        "# TYPE a gauge\na 1\n",
        "a 1\n# EOF\n",
        "# TYPE a gauge\na{x=\"\"\"} 1\n# EOF\n",
        "# TYPE a gauge\na 1\na 2\n# EOF\n",
        "# TYPE a counter\na 1\n# EOF\n",
        "# TYPE a gauge\na one\n# EOF\n",
        "# TYPE a gauge\n\na 1\n# EOF\n",
        "# TYPE a histogram\na_bucket{le=\"1\"} 2\na_count 2\na_sum 1\n# EOF\n",
    ] {
        assert!(std::panic::catch_unwind(|| parse(bad)).is_err(), "accepted: {bad}");
    }
}
