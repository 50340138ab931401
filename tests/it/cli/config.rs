//! Configuration on the command line: errors exit 78 and name the place.

use super::{outcome, sitemapd_in};

#[test]
fn a_wrong_value_names_file_line_key_and_what_is_allowed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("my.toml");
    std::fs::write(&file, "[poll]\nmin = \"10m\"\njitter = 7\n").expect("a file");
    for command in [&["run"][..], &["config", "check"], &["status"], &["check", "x.xml"]] {
        let (code, out, err) =
            outcome(sitemapd_in(folder.path()).args(command).args(["--config", "my.toml"]));
        assert_eq!(code, 78, "{command:?}: {err}");
        assert!(err.contains("my.toml:3: poll.jitter"), "{command:?}: {err}");
        assert!(err.contains('7') && err.contains("0.5"), "{command:?}: {err}");
        assert_eq!(out, "", "{command:?}");
    }
}

#[test]
fn without_a_configuration_run_says_how_to_begin() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, _, err) = outcome(sitemapd_in(folder.path()).arg("run"));
    assert_eq!(code, 78);
    assert!(err.contains("config.toml") && err.contains("--config"), "{err}");
    assert!(err.contains("sitemapd demo"), "{err}");
}

#[test]
fn a_configuration_that_is_not_there_exits_78() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, _, err) =
        outcome(sitemapd_in(folder.path()).args(["config", "check", "--config", "no.toml"]));
    assert_eq!(code, 78);
    assert!(err.contains("no.toml"), "{err}");
}

#[test]
fn checking_prints_the_resolved_values_and_three_times_of_each_cron_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let text =
        "[[site]]\nname = \"a\"\nurl = \"https://a.example/\"\npoll = \"cron: 30 4 * * *\"\n";
    std::fs::write(folder.path().join("config.toml"), text).expect("a file");
    let (code, out, err) = outcome(sitemapd_in(folder.path()).args(["config", "check"]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("removal_polls = 3"), "{out}");
    assert_eq!(out.matches("04:30:00 UTC").count(), 3, "{out}");
    assert!(out.contains("config.toml is valid: 1 site"), "{out}");
    // What is printed is a configuration itself, comments included.
    std::fs::write(folder.path().join("again.toml"), &out).expect("a file");
    let (code, again, err) =
        outcome(sitemapd_in(folder.path()).args(["config", "check", "--config", "again.toml"]));
    assert_eq!(code, 0, "{err}");
    assert_eq!(again.replace("again.toml", "config.toml"), out);
}

#[test]
fn an_override_of_the_environment_is_named_when_it_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, _, err) = outcome(
        sitemapd_in(folder.path())
            .args(["config", "check"])
            .env("SITEMAPD__POLL__JITTER", "\"much\""),
    );
    assert_eq!(code, 78);
    assert!(err.contains("SITEMAPD__POLL__JITTER"), "{err}");
}
