//! What a reload says it will do.

use super::*;
use crate::config::reload::{ReloadPlan, plan};

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
