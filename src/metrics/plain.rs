//! The older text format of Prometheus, for tools that do not read OpenMetrics.
//!
//! Samples are the same in both. What differs is said in comments: there the
//! name of a counter or an information is with its ending, units are not told,
//! and an information is a gauge.

use std::fmt::Write as _;

/// The same metrics, as Prometheus 0.0.4 has them.
pub(super) fn from_openmetrics(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut about = "";
    for line in text.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            plain.push_str(line);
            plain.push('\n');
            continue;
        };
        if let Some(help) = comment.strip_prefix("HELP ") {
            // It comes before the type, which decides about the name.
            about = help;
        } else if let Some(told) = comment.strip_prefix("TYPE ") {
            let (name, kind) = told.split_once(' ').unwrap_or((told, "untyped"));
            let (ending, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            let help = about.strip_prefix(name).unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = writeln!(plain, "# HELP {name}{ending}{help}\n# TYPE {name}{ending} {kind}");
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_informations_are_named_with_their_ending_and_units_are_left_out() {
        let text = "# HELP a_polls Polls done.\n# TYPE a_polls counter\na_polls_total 1\n\
                    # HELP a_build It.\n# TYPE a_build info\na_build_info{v=\"1\"} 1\n\
                    # HELP a_x_seconds X.\n# TYPE a_x_seconds gauge\n# UNIT a_x_seconds seconds\n\
                    a_x_seconds 2.0\n# EOF\n";
        let expected = "# HELP a_polls_total Polls done.\n# TYPE a_polls_total counter\n\
                        a_polls_total 1\n\
                        # HELP a_build_info It.\n# TYPE a_build_info gauge\n\
                        a_build_info{v=\"1\"} 1\n\
                        # HELP a_x_seconds X.\n# TYPE a_x_seconds gauge\na_x_seconds 2.0\n";
        assert_eq!(from_openmetrics(text), expected);
    }
}
