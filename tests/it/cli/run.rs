//! `sitemapd run` as a process: signals, reload, the lock, the way it ends.

use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use super::super::support::{Origin, Reply};
use super::{outcome, sitemapd, sitemapd_in};

/// A running daemon and what it logs; ended with the test.
struct Daemon {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    api: String,
}

impl Daemon {
    fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[])
    }

    fn start_with(folder: &Path, more: &[&str]) -> Self {
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("sitemapd"))
            .args(["run", "--config", "config.toml"])
            .args(more)
            .current_dir(folder)
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let log = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let mut daemon = Self { child, log, api: String::new() };
        let line = daemon.wait_for("\"listening\"");
        let line: serde_json::Value = serde_json::from_str(&line).expect("a line of JSON");
        line["api"].as_str().expect("its address").clone_into(&mut daemon.api);
        daemon
    }

    /// Reads the log up to a line with this text.
    fn wait_for(&mut self, text: &str) -> String {
        let line = self.log.by_ref().map_while(Result::ok).find(|line| line.contains(text));
        line.unwrap_or_else(|| panic!("the log ended without {text}"))
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([format!("-{name}"), self.child.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(status.success());
    }

    fn exit_code(mut self) -> Option<i32> {
        // Read to its end, so that a full pipe holds nothing up.
        self.log.by_ref().for_each(drop);
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already, and then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "");
    folder
}

fn write(folder: &Path, more: &str) {
    let text = format!(
        "[listen]\napi = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n[store]\nmin_free_disk = \"1MiB\"\n{more}"
    );
    std::fs::write(folder.join("config.toml"), text).expect("a config");
}

#[test]
fn a_signal_stops_the_daemon_with_exit_code_0() {
    for signal in ["TERM", "INT"] {
        let folder = folder();
        let mut daemon = Daemon::start(folder.path());
        let (code, out, err) = outcome(sitemapd().args(["status", "--api", &daemon.api]));
        assert_eq!(code, 0, "{err}");
        assert!(out.contains("running"), "{out}");
        daemon.signal(signal);
        daemon.wait_for(&format!("SIG{signal}"));
        assert_eq!(daemon.exit_code(), Some(0), "{signal}");
    }
}

#[test]
fn a_second_daemon_on_the_same_folder_is_refused_and_told_who_holds_it() {
    let folder = folder();
    let daemon = Daemon::start(folder.path());
    let (code, _, err) = outcome(sitemapd_in(folder.path()).arg("run"));
    assert_eq!(code, 1);
    let holder = daemon.child.id().to_string();
    assert!(err.lines().last().is_some_and(|line| line.contains(&holder)), "{err}");
    daemon.signal("TERM");
    assert_eq!(daemon.exit_code(), Some(0));
}

#[test]
fn a_log_has_the_colours_that_the_command_line_says() {
    let folder = folder();
    let daemon = Daemon::start(folder.path());
    for (color, is_coloured) in [("always", true), ("never", false), ("auto", false)] {
        // It says that it starts, and ends: the folder is taken.
        let mut command = sitemapd_in(folder.path());
        command.args(["run", "--color", color]).env("SITEMAPD__LOG__FORMAT", "text");
        let (code, _, err) = outcome(&mut command);
        assert_eq!(code, 1, "{err}");
        assert_eq!(err.contains("\u{1b}["), is_coloured, "{color}: {err}");
    }
    daemon.signal("TERM");
    assert_eq!(daemon.exit_code(), Some(0));
}

#[test]
fn a_reload_says_what_it_does_and_a_bad_file_changes_nothing() {
    let folder = folder();
    let mut daemon = Daemon::start(folder.path());
    let site = "[[site]]\nname = \"mine\"\nurl = \"http://127.0.0.1:9/\"\n";
    write(folder.path(), &format!("[poll]\nmin = \"20m\"\n{site}"));
    daemon.signal("HUP");
    assert!(daemon.wait_for("at once").contains("poll.min"));
    assert!(daemon.wait_for("a new site").contains("mine"));
    daemon.wait_for("\"reloaded\"");
    for narrowing in ["normalise = []", "follow = [\"image\"]"] {
        write(folder.path(), &format!("{site}{narrowing}\n"));
        daemon.signal("HUP");
        assert!(daemon.wait_for("no longer admit").contains("mine"), "{narrowing}");
        daemon.wait_for("\"reloaded\"");
    }
    let sites = |api: &str| outcome(sitemapd().args(["sites", "--api", api])).1;
    write(folder.path(), "[poll]\nmin = 7\n");
    daemon.signal("HUP");
    assert!(daemon.wait_for("nothing is changed").contains("poll.min"));
    assert!(sites(&daemon.api).contains("mine"));
    write(folder.path(), "[daemon]\nuser_agent = \"other/1.0\"\n");
    daemon.signal("HUP");
    assert!(daemon.wait_for("need a restart").contains("daemon.user_agent"));
    assert!(daemon.wait_for("no longer").contains("sitemapd sites forget mine"));
    daemon.signal("TERM");
    assert_eq!(daemon.exit_code(), Some(0));
}

#[test]
fn the_first_line_of_a_token_file_is_the_token_for_all() {
    let folder = folder();
    let config = folder.path().join("config.toml");
    let text = std::fs::read_to_string(&config).expect("a config");
    let text = text.replace("[listen]\n", "[listen]\ntoken_file = \"token\"\n");
    std::fs::write(&config, text).expect("a config");
    std::fs::write(folder.path().join("token"), "t\nold\n").expect("a token");
    let daemon = Daemon::start(folder.path());
    let told = ["--token-file", "token"];
    let (code, _, err) =
        outcome(sitemapd_in(folder.path()).args(["status", "--api", &daemon.api]).args(told));
    assert_eq!(code, 0, "{err}");
    daemon.signal("TERM");
    assert_eq!(daemon.exit_code(), Some(0));
    let (code, _, err) = outcome(sitemapd_in(folder.path()).arg("sites"));
    assert_eq!(code, 0, "{err}");
}

#[test]
fn a_token_file_of_the_command_line_is_the_daemons_also_after_a_reload() {
    let folder = folder();
    std::fs::write(folder.path().join("token"), "t\n").expect("a token");
    let mut daemon = Daemon::start_with(folder.path(), &["--token-file", "token"]);
    let sites = |api: &str, token: &[&str]| {
        let mut command = sitemapd_in(folder.path());
        outcome(command.args(["sites", "--api", api]).args(token))
    };
    for round in ["started", "reloaded"] {
        let (code, _, err) = sites(&daemon.api, &[]);
        assert!(code == 1 && err.contains("--token-file"), "{round}: {code} {err}");
        assert_eq!(sites(&daemon.api, &["--token-file", "token"]).0, 0, "{round}");
        write(folder.path(), "[poll]\nmin = \"20m\"\n");
        daemon.signal("HUP");
        let lines = daemon.log.by_ref().map_while(Result::ok);
        let before: Vec<_> = lines.take_while(|line| !line.contains("\"reloaded\"")).collect();
        assert!(!before.iter().any(|line| line.contains("listen.token_file")), "{before:?}");
        write(folder.path(), "");
        daemon.signal("HUP");
        daemon.wait_for("\"reloaded\"");
    }
    daemon.signal("TERM");
    assert_eq!(daemon.exit_code(), Some(0));
}

#[test]
fn another_token_in_the_file_holds_from_the_next_reload_and_one_that_is_none_changes_nothing() {
    let folder = folder();
    let token = folder.path().join("token");
    std::fs::write(&token, "first\n").expect("a token");
    let mut daemon = Daemon::start_with(folder.path(), &["--token-file", "token"]);
    let api = daemon.api.clone();
    let sites = |token: &str| {
        let mut command = sitemapd_in(folder.path());
        outcome(command.args(["sites", "--api", &api]).env("SITEMAPD_TOKEN", token))
    };
    std::fs::write(&token, "second\n").expect("a token");
    assert_eq!(sites("first").0, 0);
    let (code, _, err) = sites("second");
    assert!(code == 1 && err.contains("last reloaded"), "{code} {err}");
    daemon.signal("HUP");
    daemon.wait_for("another token");
    daemon.wait_for("\"reloaded\"");
    assert_eq!([sites("first").0, sites("second").0], [1, 0]);
    std::fs::write(&token, "\n").expect("a token");
    daemon.signal("HUP");
    assert!(daemon.wait_for("nothing is changed").contains("first line is empty"));
    assert_eq!(sites("second").0, 0);
    daemon.signal("TERM");
    assert_eq!(daemon.exit_code(), Some(0));
}

#[test]
fn run_takes_a_token_file_before_it_judges_the_rest_and_no_address_of_another_daemon() {
    let folder = folder();
    let check = |told: &[&str]| {
        let mut command = sitemapd_in(folder.path());
        let command = command.args(["config", "check"]).args(told);
        outcome(command.env("SITEMAPD__LISTEN__API", "0.0.0.0:7070"))
    };
    let (code, _, err) = check(&[]);
    assert!(code == 78 && err.contains("listen.token_file"), "{code} {err}");
    for command in [&["config", "check"][..], &["run"]] {
        let told = ["--token-file", "missing"];
        let (code, _, err) = outcome(sitemapd_in(folder.path()).args(command).args(told));
        assert_eq!(code, 78, "{command:?}: {err}");
        let fault = "--token-file (SITEMAPD_TOKEN_FILE): listen.token_file: found \"missing\"";
        assert!(err.contains(fault), "{command:?}: {err}");
    }
    std::fs::write(folder.path().join("token"), "t\n").expect("a token");
    let (code, out, err) = check(&["--token-file", "token"]);
    assert!(code == 0 && out.contains("token_file = \"token\""), "{code} {out}{err}");
    let api = ["--api", "127.0.0.1:7171"];
    let (code, _, err) = outcome(sitemapd_in(folder.path()).arg("run").args(api));
    assert!(code == 2 && err.contains("SITEMAPD__LISTEN__API"), "{code} {err}");
    // In the environment it is for the commands; what is wrong here is another thing.
    let mut command = sitemapd_in(folder.path());
    let command = command.args(["run", "--config", "none.toml"]).env("SITEMAPD_API", api[1]);
    assert_eq!(outcome(command).0, 78);
}

#[test]
fn a_token_of_the_environment_goes_before_the_file_of_the_configuration() {
    let folder = folder();
    std::fs::write(folder.path().join("token"), "t\n").expect("a token");
    let daemon = Daemon::start_with(folder.path(), &["--token-file", "token"]);
    // A file that is the daemon's, and not there, or not the same, for who asks.
    let api = daemon.api.trim_start_matches("http://");
    for (file, code) in [("none", 78), ("other", 1)] {
        std::fs::write(folder.path().join("other"), "another\n").expect("a token");
        let config = format!("[listen]\napi = \"{api}\"\ntoken_file = \"{file}\"\n");
        std::fs::write(folder.path().join("client.toml"), config).expect("a config");
        let sites = |token: &str, more: &[&str]| {
            let mut command = sitemapd_in(folder.path());
            let command = command.args(["sites", "--config", "client.toml"]).args(more);
            outcome(command.env("SITEMAPD_TOKEN", token))
        };
        let (found, _, err) = sites("t", &[]);
        assert_eq!(found, 0, "{file}: {err}");
        assert_eq!(sites("", &[]).0, code, "an empty one is none");
        let named = ["--token-file", "token"];
        assert_eq!(sites("wrong", &named).0, 0, "what is named goes first");
    }
    daemon.signal("TERM");
    assert_eq!(daemon.exit_code(), Some(0));
}

#[test]
fn a_folder_of_sites_that_cannot_be_read_takes_no_site_away() {
    let folder = folder();
    let config = folder.path().join("config.toml");
    let text = std::fs::read_to_string(&config).expect("a config");
    std::fs::write(&config, format!("include = [\"sites.d/*.toml\"]\n{text}")).expect("a config");
    let sites = folder.path().join("sites.d");
    std::fs::create_dir(&sites).expect("a folder");
    let site = "[[site]]\nname = \"mine\"\nurl = \"http://127.0.0.1:9/\"\n";
    std::fs::write(sites.join("mine.toml"), site).expect("a site");
    let mut daemon = Daemon::start(folder.path());
    std::fs::rename(&sites, folder.path().join("away")).expect("moved");
    std::fs::write(&sites, "").expect("a file");
    daemon.signal("HUP");
    assert!(daemon.wait_for("nothing is changed").contains("include"));
    let (_, out, err) = outcome(sitemapd().args(["sites", "--api", &daemon.api]));
    assert!(out.contains("mine"), "{out}{err}");
    assert!(!out.contains("unregistered"), "{out}");
    daemon.signal("TERM");
    assert_eq!(daemon.exit_code(), Some(0));
    assert_eq!(outcome(sitemapd_in(folder.path()).arg("run")).0, 78);
}

#[test]
fn a_stop_is_heard_while_a_reload_waits() {
    let folder = folder();
    let mut daemon = Daemon::start(folder.path());
    // Nobody else writes until this is dropped.
    let held = rusqlite::Connection::open(folder.path().join("data/sitemapd.db")).expect("opened");
    held.busy_timeout(std::time::Duration::from_secs(30)).expect("set");
    held.execute_batch("BEGIN IMMEDIATE").expect("held");
    write(folder.path(), "[[site]]\nname = \"mine\"\nurl = \"http://127.0.0.1:9/\"\n");
    daemon.signal("HUP");
    daemon.wait_for("reloading");
    daemon.signal("TERM");
    let lines = daemon.log.by_ref().map_while(Result::ok);
    let before: Vec<_> = lines.take_while(|line| !line.contains("\"stopping\"")).collect();
    let is_over = |line: &String| line.contains("nothing is changed") || line.contains("reloaded");
    assert!(!before.iter().any(is_over), "{before:?}");
    drop(held);
    assert_eq!(daemon.exit_code(), Some(0));
}

#[test]
fn polling_by_hand_tells_of_all_changes_however_many() {
    let origin = Origin::start_blocking();
    let upto = |count: usize| -> String {
        let urls: Vec<_> = (0..count).map(|n| origin.url(&format!("/{n}")).to_string()).collect();
        urls.join("\n")
    };
    origin.set_sequence("/list.txt", [1, 1_501, 3_001].map(|count| Reply::text(upto(count))));
    let folder = folder();
    let (base, list_url) = (origin.base(), origin.url("/list.txt"));
    write(
        folder.path(),
        &format!(
            "[fetch]\nallow = [\"{}\"]\n[politeness]\nhost_delay = \"0s\"\n\
             [[site]]\nname = \"mine\"\nurl = \"{base}/\"\nsitemaps = [\"{list_url}\"]\nfeeds = []\n",
            origin.addr()
        ),
    );
    let mut daemon = Daemon::start(folder.path());
    daemon.wait_for("list.txt");
    let poll = |more: &[&str]| {
        let (code, out, err) =
            outcome(sitemapd().args(["poll", list_url.as_str(), "--api", &daemon.api]).args(more));
        assert_eq!(code, 0, "{out}{err}");
        out
    };
    let out = poll(&[]);
    assert!(out.contains("1,500 new") && out.contains("and 1,480 more; --json"), "{out}");
    let value: serde_json::Value = serde_json::from_str(&poll(&["--json"])).expect("json");
    let changes = value["polls"][0]["changes"].as_array().expect("a list");
    let urls: std::collections::HashSet<_> = changes.iter().map(|c| c["url"].as_str()).collect();
    assert_eq!((changes.len(), urls.len()), (1_500, 1_500));
    daemon.signal("TERM");
    assert_eq!(daemon.exit_code(), Some(0));
}

#[test]
fn polling_by_hand_shows_what_changed() {
    let origin = Origin::start_blocking();
    let (one, two) = (origin.url("/one"), origin.url("/two"));
    let lists = [format!("{one}\n"), format!("{one}\n{two}\n")];
    origin.set_sequence("/list.txt", lists.map(Reply::text));
    let folder = folder();
    let (base, list_url) = (origin.base(), origin.url("/list.txt"));
    write(
        folder.path(),
        &format!(
            "[fetch]\nallow = [\"{}\"]\n[politeness]\nhost_delay = \"0s\"\n\
             [[site]]\nname = \"mine\"\nurl = \"{base}/\"\nsitemaps = [\"{list_url}\"]\nfeeds = []\n",
            origin.addr()
        ),
    );
    let mut daemon = Daemon::start(folder.path());
    daemon.wait_for("list.txt");
    let poll = |args: &[&str]| {
        let (code, out, err) = outcome(sitemapd().arg("poll").args(args));
        assert_eq!(code, 0, "{out}{err}");
        out
    };
    let out = poll(&[list_url.as_str(), "--api", &daemon.api]);
    assert!(out.contains("1 new") && out.contains("+ new") && out.contains("/two"), "{out}");
    assert!(!out.contains("/one"), "{out}");
    let out = poll(&[list_url.as_str(), "--api", &daemon.api]);
    assert_eq!(out.trim_end(), format!("{list_url}\n  unchanged"));
    let out = poll(&["mine", "--api", &daemon.api, "--json"]);
    let value: serde_json::Value = serde_json::from_str(&out).expect("json");
    assert!(value["polls"].as_array().is_some_and(|polls| !polls.is_empty()), "{out}");
    let (code, out, _) =
        outcome(sitemapd().args(["url", origin.url("/two").as_str(), "--api", &daemon.api]));
    assert!(code == 0 && out.contains("new") && out.contains("list.txt"), "{out}");
    let (_, out, _) = outcome(sitemapd().args(["queue", "peek", "--api", &daemon.api]));
    assert!(out.contains("/one") && out.contains("/two"), "{out}");
    // Of what is paused that is said, and nobody waits.
    let ask = |args: &[&str]| outcome(sitemapd().args(args).args(["--api", &daemon.api]));
    let (code, out, _) = ask(&["sites", "pause", "mine"]);
    assert_eq!((code, out.trim_end()), (0, "paused mine: nothing of it is polled or leased"));
    let (code, _, err) = ask(&["poll", list_url.as_str()]);
    assert!(code == 1 && err.contains("`sitemapd sites resume mine`"), "{err}");
    let (_, out, _) = ask(&["url", origin.url("/two").as_str()]);
    assert!(out.contains("not handed out: its site is paused; "), "{out}");
    let (code, out, _) = ask(&["sites", "resume", "mine", "--json"]);
    assert!(code == 0 && out.contains("\"active\""), "{out}");
    // A URL is meant by whoever names it; of a site some place or other is always empty.
    origin.unset("/list.txt");
    for (what, code) in [(list_url.as_str(), 1), ("mine", 0)] {
        let told = outcome(sitemapd().args(["poll", what, "--api", &daemon.api]));
        assert_eq!((told.0, told.2.as_str()), (code, ""), "{told:?}");
        assert!(told.1.contains("not-found"), "{told:?}");
    }
    daemon.signal("TERM");
    assert_eq!(daemon.exit_code(), Some(0));
}
