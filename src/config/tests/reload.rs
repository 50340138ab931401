//! What a reload says it will do.

use super::*;
use crate::config::reload::{RESTART, ReloadPlan, plan, touched_sites, until_restart};

fn config(text: &str) -> Config {
    Config::from_toml_str(text).expect(text)
}

#[test]
fn nothing_changed_is_nothing_to_do() {
    let config = config(&with_site("[poll]\nmin = \"5m\""));
    assert!(plan(&config, &config.clone()).is_empty());
}

#[test]
fn a_plan_tells_what_holds_now_and_what_needs_a_restart() {
    let old = config("[poll]\nmin = \"5m\"");
    let new =
        config("[poll]\nmin = \"6m\"\n[listen]\napi = \"127.0.0.1:1\"\n[log]\nlevel = \"debug\"");
    let expected = ReloadPlan {
        restart_needed: vec!["listen.api".to_owned()],
        live: vec!["log.level".to_owned(), "poll.min".to_owned()],
        ..ReloadPlan::default()
    };
    assert_eq!(plan(&old, &new), expected);
    let proxy = config("[fetch]\nproxy = \"http://a:b@p.example:1\"");
    let other = config("[fetch]\nproxy = \"http://a:c@p.example:1\"");
    assert_eq!(plan(&proxy, &other).restart_needed, ["fetch.proxy"]);
    assert_eq!(plan(&proxy, &config("")).restart_needed, ["fetch.proxy"]);
}

#[test]
fn sites_come_go_and_change() {
    let site = |name: &str, keys: &str| {
        format!("[[site]]\nname = \"{name}\"\nurl = \"https://{name}.example/\"\n{keys}\n")
    };
    let old = config(&[site("a", ""), site("b", ""), site("c", "")].concat());
    let new =
        config(&[site("b", ""), site("c", "scope = \"any\"\nweight = 2"), site("d", "")].concat());
    let plan = plan(&old, &new);
    assert_eq!(plan.sites_added, ["d"]);
    assert_eq!(plan.sites_removed, ["a"]);
    let changed = vec!["scope".to_owned(), "weight".to_owned()];
    assert_eq!(plan.sites_changed, [("c".to_owned(), changed)]);
    assert!(plan.live.is_empty() && plan.restart_needed.is_empty());
}

#[test]
fn sites_are_touched_by_what_changes_for_them_and_by_who_shares_their_home() {
    let site = |name: &str, host: &str, keys: &str| {
        format!("[[site]]\nname = \"{name}\"\nurl = \"https://{host}.example/{name}\"\n{keys}\n")
    };
    let [a, b, c] = [("a", "x"), ("b", "x"), ("c", "y")].map(|(name, host)| site(name, host, ""));
    let old = [a.clone(), b.clone(), c.clone()].concat();
    let touched = |new: &str| Vec::from_iter(touched_sites(&config(&old), &config(new))).join(" ");
    assert_eq!(touched(&old), "");
    assert_eq!(touched(&format!("[log]\nlevel = \"debug\"\n{old}")), "");
    assert_eq!(touched(&[a.clone(), b.clone(), site("c", "y", "weight = 2")].concat()), "c");
    assert_eq!(touched(&[old.clone(), site("d", "y", "")].concat()), "c d");
    assert_eq!(touched(&[a.clone(), c.clone()].concat()), "a");
    assert_eq!(touched(&[a.clone(), site("b", "y", ""), c.clone()].concat()), "a b c");
    for key in ["politeness]\nhost_delay = \"2s\"", "poll]\nmax = \"8d\"", "poll]\nfirst = \"2h\""]
    {
        assert_eq!(touched(&format!("[{key}\n{old}")), "a b c", "{key}");
    }
}

#[test]
fn a_changed_header_is_told_without_its_value() {
    let old = config(&(with_site("") + "headers = { A = \"one\" }"));
    let new = config(&(with_site("") + "headers = { A = \"two\" }"));
    assert_eq!(plan(&old, &new).sites_changed, [("a".to_owned(), vec!["headers".to_owned()])]);
}

#[test]
fn a_daemon_wide_change_is_told_once_and_not_for_every_site() {
    let old = config(&with_site("[politeness]\nhost_delay = \"1s\""));
    let new = config(&with_site("[politeness]\nhost_delay = \"2s\""));
    let told = plan(&old, &new);
    assert_eq!(told.live, ["politeness.host_delay"]);
    assert!(told.sites_changed.is_empty(), "{told:?}");
    // What the site says itself is its own.
    let own = config(&(with_site("[politeness]\nhost_delay = \"2s\"") + "host_delay = \"1s\""));
    assert_eq!(plan(&new, &own).sites_changed.len(), 1);
}

/// Every key that needs a restart, each with another value than its default.
const RESTARTED: &str = r#"
[daemon]
contact = "me@b.example"
data_dir = "elsewhere"
user_agent = "newbot/1.0"
[egress.nats]
batch = 7
ca_file = "Cargo.toml"
crawls = ["other"]
create = false
credentials_file = "Cargo.toml"
in_flight = 77
lease = "3m"
results = "other.results"
results_stream = "OTHER_RESULTS"
servers = ["nats://127.0.0.1:4333"]
stream = "OTHER"
subject = "other.urls"
[fetch]
allow = ["127.0.0.1:1"]
ca_file = "Cargo.toml"
concurrency = 7
connect_timeout = "7s"
proxy = "http://p.example:1"
total_timeout = "7m"
[listen]
api = "127.0.0.1:1"
grpc = "127.0.0.1:2"
internal = "127.0.0.1:3"
public = "127.0.0.1:4"
public_url = "https://b.example/"
token_file = "Cargo.toml"
[log]
format = "json"
[politeness]
per_address = 7
[store]
durability = "normal"
url = "postgres://b.example/b"
"#;

#[test]
fn what_needs_a_restart_keeps_its_value_until_then() {
    let old = config(&with_site(""));
    let live = [
        ("user_agent =", "timezone = \"Europe/Berlin\"\nuser_agent ="),
        ("concurrency =", "max_redirects = 2\nmax_urls = 7\nconcurrency ="),
        ("per_address =", "host_delay = \"7s\"\nper_address ="),
        ("durability =", "keep_polls = \"7d\"\ndurability ="),
        ("format =", "level = \"debug\"\nformat ="),
    ];
    let text = live.iter().fold(RESTARTED.to_owned(), |text, (from, to)| text.replace(from, to));
    let new = config(&with_site(&text));
    // The other way to log in to the broker.
    let user = RESTARTED.replace("credentials_file =", "user = \"u\"\ntoken_file =");
    let user = config(&with_site(&user));
    let wanted = plan(&old, &new);
    let mut all = [wanted.restart_needed.clone(), plan(&old, &user).restart_needed].concat();
    all.sort();
    all.dedup();
    assert_eq!(all, RESTART, "a key is not in this test");

    let held = until_restart(&old, new.clone());
    assert_eq!(plan(&old, &held), ReloadPlan { restart_needed: Vec::new(), ..wanted.clone() });
    assert_eq!(plan(&held, &new).restart_needed, wanted.restart_needed);
    assert!(plan(&old, &until_restart(&old, user)).restart_needed.is_empty());
}

#[test]
fn a_site_keeps_the_robots_agent_that_it_has_from_a_user_agent_until_the_restart() {
    let named = |daemon: &str, site: &str| {
        config(&(with_site(&format!("[daemon]\nuser_agent = \"{daemon}/1.0\"")) + site))
    };
    let agent = |config: &Config| config.sites["a"].robots_agent.clone();
    let held = |old: &Config, new| agent(&until_restart(old, new));
    assert_eq!(held(&named("old", ""), named("new", "")), "old");
    assert_eq!(held(&named("old", ""), named("new", "robots_agent = \"own\"")), "own");
    let own = "robots_agent = \"new\"";
    assert_eq!(held(&named("old", own), named("new", own)), "new");
}
