//! What stands in `deploy/` fits the program: dashboard, alerts.

use std::collections::BTreeSet;

use serde_json::Value;
use sitemapd::config::Config;

use crate::documents::{document, example_keys, families_in, metric_families};

/// Labels that our metrics have, and those that Prometheus adds.
const LABELS: [&str; 19] = [
    "what", "broker", "by", "call", "crawl", "instance", "job", "kind", "le", "listener", "method",
    "outcome", "reason", "part", "result", "route", "state", "status", "version",
];
/// What the process says of itself.
const OF_THE_PROCESS: [&str; 4] = [
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
];

/// Names of metrics in a query.
fn metrics_in(query: &str) -> BTreeSet<&str> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("sitemapd_") || word.starts_with("process_")).collect()
}

/// Names of labels in a query: within braces, and after `by`, `on` and `without`.
fn labels_in(query: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for part in query.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
        let names = part.split(',').filter_map(|matcher| matcher.split(['=', '!']).next());
        found.extend(names.map(str::trim));
    }
    for word in ["by (", "on (", "without ("] {
        for part in query.split(word).skip(1).filter_map(|rest| rest.split(')').next()) {
            found.extend(part.split(',').map(str::trim));
        }
    }
    found
}

/// What each daemon says of the whole store, so that several that share it say the
/// same: all that is made of the status, but what is of the process or of its file.
fn store_wide() -> BTreeSet<String> {
    let mut families = families_in(&document("src/metrics/gauges.rs"));
    for own in ["sitemapd_start_time_seconds", "sitemapd_wal_bytes"] {
        assert!(families.remove(own), "{own}");
    }
    families
}

/// Metrics of these in a query that are not taken once for all daemons of a store
/// before anything else is done with them.
fn taken_often(query: &str, families: &BTreeSet<String>) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in query.match_indices("sitemapd_") {
        let name = query[at..].split(|c| !is_word(c)).next().unwrap();
        let before = query[..at].trim_end_matches("deriv(");
        let is_once = ["max without (instance) (", "max by (crawl) (", "max("]
            .iter()
            .any(|taken| before.ends_with(taken));
        if families.contains(name) && !is_once {
            found.push(name.to_owned());
        }
    }
    found
}

fn is_known(name: &str, families: &BTreeSet<String>) -> bool {
    let endings = ["", "_total", "_info", "_bucket", "_sum", "_count"];
    let is_ours = endings
        .iter()
        .any(|ending| name.strip_suffix(ending).is_some_and(|family| families.contains(family)));
    is_ours || OF_THE_PROCESS.contains(&name)
}

/// Titles and queries of the dashboard.
fn panels() -> Vec<(String, Vec<String>)> {
    let board: Value = serde_json::from_str(&document("deploy/grafana.json")).unwrap();
    let panels = board["panels"].as_array().unwrap().iter();
    panels
        .filter(|panel| panel["type"] != "row")
        .map(|panel| {
            let title = panel["title"].as_str().unwrap().to_owned();
            assert!(!panel["description"].as_str().unwrap().is_empty(), "{title}");
            let queries = panel["targets"].as_array().unwrap().iter();
            (title, queries.map(|query| query["expr"].as_str().unwrap().to_owned()).collect())
        })
        .collect()
}

/// One alert of the file, as its lines.
struct Alert {
    name: String,
    text: String,
}

fn alerts() -> Vec<Alert> {
    let text = document("deploy/alerts.yml");
    let parts = text.split("- alert: ").skip(1);
    parts
        .map(|part| {
            let (name, rest) = part.split_once('\n').unwrap();
            Alert { name: name.to_owned(), text: rest.to_owned() }
        })
        .collect()
}

impl Alert {
    /// The query, in one line or several.
    fn query(&self) -> &str {
        let rest = self.text.split_once("expr: ").unwrap().1;
        let ends = ["\n        for:", "\n        labels:"].map(|end| rest.find(end));
        &rest[..ends.into_iter().flatten().min().unwrap()]
    }
}

#[test]
fn the_dashboard_and_the_alerts_name_only_metrics_and_labels_that_exist() {
    let families = metric_families();
    let queries = queries();
    let mut shown = BTreeSet::new();
    for (place, query) in &queries {
        for name in metrics_in(query) {
            assert!(is_known(name, &families), "{place} names {name}");
            shown.insert(name);
        }
        for label in labels_in(query) {
            assert!(LABELS.contains(&label), "{place} names the label {label}: {query}");
        }
    }
    for family in &families {
        let is_shown = shown.iter().any(|name| name.starts_with(family.as_str()));
        assert!(is_shown, "{family} is neither in the dashboard nor in an alert");
    }
}

/// All queries, each with what it belongs to.
fn queries() -> Vec<(String, String)> {
    let mut queries: Vec<(String, String)> =
        alerts().into_iter().map(|alert| (alert.name.clone(), alert.query().to_owned())).collect();
    for (title, of_panel) in panels() {
        queries.extend(of_panel.into_iter().map(|query| (title.clone(), query)));
    }
    assert!(queries.len() > 50, "{}", queries.len());
    queries
}

#[test]
fn what_daemons_say_of_the_store_they_share_is_taken_once_and_their_own_work_added_up() {
    let families = store_wide();
    assert!(families.contains("sitemapd_queue_urls") && families.len() > 8, "{families:?}");
    let mut asked = 0;
    for (place, query) in queries() {
        let is_of_store = metrics_in(&query).iter().any(|name| families.contains(*name));
        // Here it is asked which of them says nothing.
        if !is_of_store || place == "SitemapdStoreSilent" {
            continue;
        }
        asked += 1;
        let often = taken_often(&query, &families);
        assert!(often.is_empty(), "{place} takes {often:?} of each daemon: {query}");
        assert!(!query.contains("by (instance"), "{place} asks each daemon: {query}");
    }
    assert!(asked > 12, "{asked}");
    for (place, query) in queries() {
        // Whose lease has run out shows where its host belongs, not who gave it.
        if query.contains("leases_expired") {
            assert!(!query.contains("by (instance"), "{place}: {query}");
        }
    }
    let found = taken_often("sum(sitemapd_urls) / max(sitemapd_sites)", &families);
    assert_eq!(found, ["sitemapd_urls"]);
}

#[test]
fn what_a_container_logs_is_bounded() {
    let compose = document("deploy/compose.yml");
    assert!(compose.contains("max-size:") && compose.contains("max-file:"));
    let containers = compose.matches("restart: unless-stopped").count();
    assert!(containers >= 3, "{containers}");
    assert_eq!(compose.matches("logging: *logging").count(), containers);
}

#[test]
fn every_alert_says_what_it_means_and_operations_what_to_do() {
    let operations = document("docs/OPERATIONS.md");
    let alerts = alerts();
    assert!(alerts.len() > 10);
    for Alert { name, text } in &alerts {
        for field in ["severity:", "summary:", "description:"] {
            assert!(text.contains(field), "{name} has no {field}");
        }
        assert!(operations.contains(&format!("| `{name}` |")), "{name} is not in OPERATIONS");
    }
    let told = operations.matches("| `Sitemapd").count();
    assert_eq!(told, alerts.len(), "OPERATIONS tells of an alert that is not there");
}

#[test]
fn unit_and_image_run_what_there_is_and_set_only_keys_that_exist() {
    let keys = example_keys();
    let unit = document("deploy/sitemapd.service");
    assert!(unit.contains("ExecStart=/usr/bin/sitemapd run --config "));
    let image = document("deploy/Dockerfile");
    assert!(image.contains("ENTRYPOINT [\"/usr/bin/sitemapd\"]\nCMD [\"run\"]\n"));
    let compose = document("deploy/compose.yml");
    let mut seen = 0;
    for text in [&unit, &image, &compose] {
        for rest in text.split("SITEMAPD__").skip(1) {
            let name =
                rest.split(['=', ':']).next().unwrap().to_ascii_lowercase().replace("__", ".");
            assert!(keys.contains(&name), "{name}");
            seen += 1;
        }
    }
    assert!(seen >= 7, "{seen}");
    // What restarting does not mend.
    assert!(unit.contains("RestartPreventExitStatus=2 78\n"));
    // /proc/sys names the boot, without which no step of the clock is noticed.
    assert!(!unit.contains("ProcSubset=pid"));
}

/// The values of a setting of the unit, in the order of its lines.
fn set_in_unit(unit: &str, name: &str) -> Vec<String> {
    let values = unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    values.map(str::to_owned).collect()
}

#[test]
fn the_unit_the_package_and_the_documents_have_the_store_in_one_folder() {
    let unit = document("deploy/sitemapd.service");
    let folders = set_in_unit(&unit, "StateDirectory");
    assert_eq!(folders.len(), 1);
    let folder = format!("/var/lib/{}", folders[0]);
    // What only the daemon is told, the commands look for elsewhere.
    assert!(!unit.contains("SITEMAPD__DAEMON__DATA_DIR"));
    let made = std::process::Command::new("bash").arg("deploy/packaged-config").output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let packaged = String::from_utf8(made.stdout).unwrap();
    let example = document("config.example.toml");
    let other: Vec<&str> =
        packaged.lines().filter(|line| !example.lines().any(|of_it| of_it == *line)).collect();
    let told = format!("data_dir = \"{folder}\"");
    assert!(other.len() == 1 && other[0].starts_with(&told), "{other:?}");
    let config = Config::from_toml_str(&packaged).unwrap();
    assert_eq!(config.daemon.data_dir, std::path::Path::new(&folder));
    let file = "/etc/sitemapd/config.toml";
    assert_eq!(set_in_unit(&unit, "ExecStart"), [format!("/usr/bin/sitemapd run --config {file}")]);
    let manifest: toml::Value = toml::from_str(&document("Cargo.toml")).unwrap();
    let deb = &manifest["package"]["metadata"]["deb"];
    assert_eq!(deb["conf-files"][0].as_str(), Some(file));
    let assets = deb["assets"].as_array().unwrap();
    let installed = assets.iter().find(|asset| asset[1].as_str() == file.strip_prefix('/'));
    assert_eq!(installed.unwrap()[0].as_str(), Some("target/generated/config.toml"));
    assert!(document("deploy/package").contains("deploy/packaged-config > \"$made/config.toml\""));
    let operations = document("docs/OPERATIONS.md");
    assert!(unit.contains(&told), "the unit says what the file needs");
    assert!(operations.contains(&format!("`{told}`")), "{told} is not in OPERATIONS");
    assert!(operations.contains(&format!("sitemapd --config {file} backup ")));
}

#[test]
fn the_unit_lets_threads_stand_back_and_starts_again_for_as_long_as_it_takes() {
    let unit = document("deploy/sitemapd.service");
    let filters = set_in_unit(&unit, "SystemCallFilter");
    let at = |what: &str| filters.iter().position(|filter| filter.split(' ').any(|it| it == what));
    // Later lines add to what is left by those before.
    let taken = filters.iter().position(|it| it.starts_with('~') && it.contains("@resources"));
    assert!(at("@system-service") == Some(0), "{filters:?}");
    assert!(taken.is_none_or(|taken| at("setpriority").is_some_and(|given| given > taken)));
    assert_eq!(set_in_unit(&unit, "StartLimitIntervalSec"), ["0"]);
    assert_eq!(set_in_unit(&unit, "Restart"), ["on-failure"]);
}

#[test]
fn the_package_takes_only_what_is_there_or_made_for_it() {
    let manifest: toml::Value = toml::from_str(&document("Cargo.toml")).unwrap();
    let deb = &manifest["package"]["metadata"]["deb"];
    let assets = deb["assets"].as_array().unwrap();
    let script = document("deploy/package");
    for asset in assets {
        let from = asset[0].as_str().unwrap();
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = from.split('*').next().unwrap();
        let made = from.strip_prefix("target/generated/");
        assert!(made.is_some() || root.join(folder).exists(), "{from}");
        if let Some(made) = made {
            let first = made.split('/').next().unwrap();
            assert!(script.contains(&format!("$made/{first}")), "{from} is not made");
        }
    }
    assert_eq!(deb["systemd-units"]["unit-scripts"].as_str(), Some("deploy"));
}

#[test]
fn names_and_labels_are_read_out_of_a_query() {
    let query = r#"sum by (le, crawl) (rate(sitemapd_a_bucket{state!="due",job=~"x"}[5m])) unless on (instance) sum without (part) (up)"#;
    assert_eq!(metrics_in(query), BTreeSet::from(["sitemapd_a_bucket"]));
    assert_eq!(
        labels_in(query),
        BTreeSet::from(["crawl", "instance", "job", "le", "part", "state"])
    );
}
