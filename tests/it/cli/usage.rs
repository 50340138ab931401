//! Help, and what wrong usage is answered with.

use std::io::Read as _;
use std::process::{Command as Process, Stdio};

use super::{outcome, sitemapd, sitemapd_in};

/// Every subcommand of the command line.
pub(crate) const COMMANDS: [&str; 16] = [
    "run", "demo", "check", "discover", "poll", "sites", "sources", "status", "url", "queue",
    "export", "import", "backup", "migrate", "config", "generate",
];

#[test]
fn help_names_every_command_and_every_exit_code() {
    let (code, out, _) = outcome(sitemapd().arg("--help"));
    assert_eq!(code, 0);
    for command in COMMANDS {
        assert!(out.contains(&format!("\n  {command} ")), "{command}: {out}");
    }
    assert!(out.contains("0 done, 1 failed, 2 wrong usage, 78 wrong configuration"));
}

#[test]
fn every_command_has_a_help_page_that_fits_a_hundred_columns() {
    for command in COMMANDS {
        let (code, out, _) = outcome(sitemapd().args([command, "--help"]));
        assert_eq!(code, 0, "{command}");
        assert!(out.contains("Usage: sitemapd"), "{command}: {out}");
        for line in out.lines() {
            assert!(line.chars().count() <= 100, "{command}: {line}");
        }
    }
}

#[test]
fn a_variable_that_is_set_to_nothing_is_not_set_and_an_option_that_names_nothing_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("config.toml"), "").expect("a config");
    let mut status = sitemapd_in(folder.path());
    for name in ["SITEMAPD_CONFIG", "SITEMAPD_API", "SITEMAPD_TOKEN_FILE"] {
        status.env(name, "");
    }
    let (code, _, err) = outcome(status.args(["config", "check"]));
    assert_eq!(code, 0, "{err}");
    for option in ["--config", "--api", "--token-file"] {
        let (code, _, err) = outcome(sitemapd_in(folder.path()).args([option, "", "status"]));
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(&format!("{option} names nothing")), "{err}");
    }
}

#[test]
fn wrong_usage_exits_2_and_says_what_is_right() {
    let cases: [(&[&str], &str); 14] = [
        (&[], "Usage: sitemapd"),
        (&["chekc"], "check"),
        (&["check"], "<FILE|URL|->"),
        (&["check", "-", "--url", "sitemap.xml"], "such as https://example.org/sitemap.xml"),
        (&["demo", "--for", "15"], "15s"),
        (&["queue", "replay"], "--all"),
        (&["queue", "peek", "--limit", "0"], "1..=1000"),
        (&["discover", "ftp://example.org/"], "such as https://example.org/"),
        (&["discover", "http://me:s3cret@example.org/"], "leave them out"),
        (&["check", "ftp://example.org/sitemap.xml"], "http or https URL"),
        (&["url", "example.org/a"], "such as https://example.org/a"),
        (&["queue", "requeue", "example.org/a"], "such as https://example.org/a"),
        (&["queue", "block", "--prefix", "/a"], "such as https://example.org/a"),
        (&["sites", "--api", "ftp://127.0.0.1/"], "http"),
    ];
    for (args, right) in cases {
        let (code, out, err) = outcome(sitemapd().args(args).write_stdin(""));
        assert_eq!(code, 2, "{args:?}: {err}");
        assert!(err.contains(right), "{args:?}: {err}");
        assert_eq!(out, "", "{args:?}");
    }
}

#[test]
fn without_a_daemon_it_is_said_how_to_start_one() {
    let folder = tempfile::tempdir().expect("a folder");
    // Port 9 (discard) is below the ports that a test may be given.
    std::fs::write(folder.path().join("config.toml"), "[listen]\napi = \"127.0.0.1:9\"\n")
        .expect("a config");
    for args in [&["status"][..], &["queue", "pause"], &["poll", "site"]] {
        let (code, _, err) = outcome(sitemapd_in(folder.path()).args(args));
        assert_eq!(code, 1, "{args:?}");
        assert!(err.contains("127.0.0.1:9") && err.contains("sitemapd run"), "{args:?}: {err}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("many.txt");
    let many = "https://example.org/one/of/many\n".repeat(40_000);
    std::fs::write(&file, many).expect("a file");
    let mut child = Process::new(assert_cmd::cargo::cargo_bin("sitemapd"))
        .args(["check", "--json", "--entries"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut start = [0; 16];
    // More is to come than any pipe holds, so it must notice that we go.
    child.stdout.take().expect("a pipe").read_exact(&mut start).expect("it prints");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn colours_are_for_terminals_or_when_asked_for() {
    let check = |args: &[&str], no_color: bool| {
        let mut command = sitemapd();
        command.args(["check", "-"]).args(args).write_stdin("https://example.org/\n");
        if no_color {
            command.env("NO_COLOR", "1");
        }
        outcome(&mut command).1.contains('\x1b')
    };
    assert!(!check(&[], false));
    assert!(check(&["--color", "always"], false));
    assert!(check(&["--color", "always"], true), "what is asked for wins");
    assert!(!check(&["--color", "never"], false));
}
