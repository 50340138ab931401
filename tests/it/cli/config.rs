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
fn files_beside_the_configuration_are_included_however_it_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text);
    file("config.toml", "include = [\"site-*.toml\"]\n").expect("a file");
    file("site-a.toml", "[[site]]\nname = \"a\"\nurl = \"https://a.example/\"\n").expect("a file");
    let whole = folder.path().join("config.toml").display().to_string();
    for named in [
        &[][..],
        &["--config", "config.toml"],
        &["--config", "./config.toml"],
        &["--config", &whole],
    ] {
        let (code, out, err) =
            outcome(sitemapd_in(folder.path()).args(["config", "check"]).args(named));
        assert_eq!(code, 0, "{named:?}: {err}");
        assert!(out.contains("is valid: 1 site"), "{named:?}: {out}");
    }
    let (code, out, err) = outcome(
        sitemapd_in(folder.path())
            .args(["config", "check"])
            .env("SITEMAPD__INCLUDE", "[\"site-*.toml\"]"),
    );
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("is valid: 1 site"), "{out}");
    // Its own file is not one of them.
    file("config.toml", "include = [\"*.toml\"]\n").expect("a file");
    let (code, _, err) = outcome(sitemapd_in(folder.path()).args(["config", "check"]));
    assert_eq!(code, 78, "{err}");
    assert!(err.contains("config.toml:1: include: unknown key"), "{err}");
}

#[test]
fn what_is_secret_in_headers_is_asked_for_where_they_are_sent_and_nowhere_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "[listen]\napi = \"127.0.0.1:9\"\n[[site]]\nname = \"a\"\n\
                url = \"http://127.0.0.1:9/\"\nheaders = { Authorization = \"Bearer ${NO_SUCH}\" }\n";
    std::fs::write(folder.path().join("config.toml"), text).expect("a file");
    std::fs::write(folder.path().join("list.txt"), "http://127.0.0.1:9/1\n").expect("a file");
    let run = |args: &[&str]| outcome(sitemapd_in(folder.path()).args(args));
    for sends in [&["run"][..], &["config", "check"], &["check", "http://127.0.0.1:9/s.xml"]] {
        let (code, _, err) = run(sends);
        assert_eq!(code, 78, "{sends:?}: {err}");
        assert!(err.contains("the environment variable NO_SUCH is not set"), "{sends:?}: {err}");
    }
    assert_eq!(run(&["check", "list.txt"]).0, 0);
    for other in [
        &["status"][..],
        &["queue", "stats"],
        &["backup", "b.db"],
        &["discover", "http://127.0.0.1:9/"],
    ] {
        let (code, _, err) = run(other);
        assert_eq!(code, 1, "{other:?}: {err}");
        assert!(!err.contains("NO_SUCH"), "{other:?}: {err}");
    }
}

#[test]
fn a_budget_by_the_hour_is_printed_as_it_can_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for (typed, printed) in [("1000000000/hour", "1000000000/hour"), ("100/hour", "2400/day")] {
        let text = format!("[recrawl]\nbudget = \"{typed}\"\n");
        std::fs::write(folder.path().join("config.toml"), text).expect("a file");
        let (code, out, err) = outcome(sitemapd_in(folder.path()).args(["config", "check"]));
        assert_eq!(code, 0, "{err}");
        assert!(out.contains(&format!("budget = \"{printed}\"")), "{out}");
    }
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
fn programs_get_the_times_of_a_cron_line_as_rfc_3339_in_utc() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "[[site]]\nname = \"a\"\nurl = \"https://a.example/\"\n\
                timezone = \"Asia/Tokyo\"\npoll = \"cron: 30 4 * * *\"\n";
    std::fs::write(folder.path().join("config.toml"), text).expect("a file");
    let (code, out, err) = outcome(sitemapd_in(folder.path()).args(["config", "check", "--json"]));
    assert_eq!(code, 0, "{err}");
    let value: serde_json::Value = serde_json::from_str(&out).expect("json");
    let times = value["cron"]["a"].as_array().expect("a list");
    assert_eq!(times.len(), 3);
    for time in times.iter().map(|time| time.as_str().expect("a text")) {
        assert!(time.ends_with("T19:30:00.000Z"), "{time}");
    }
}

#[test]
fn without_a_file_the_defaults_are_shown_and_nothing_is_called_valid() {
    let folder = tempfile::tempdir().expect("a folder");
    let check =
        |more: &[&str]| outcome(sitemapd_in(folder.path()).args(["config", "check"]).args(more));
    let (code, out, err) = check(&[]);
    assert_eq!(code, 78, "as `run` says: {err}");
    assert!(err.contains("no config.toml in the current folder"), "{err}");
    let last = out.trim_end().lines().last();
    assert_eq!(last, Some("# these are the defaults"));
    let (code, out, _) = check(&["--json"]);
    let shown: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert!(code == 78 && shown["config"].is_object(), "{code} {out}");
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

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBhzCCAS2gAwIBAgIUM+fTF8s9NKeZ9zNDLVjQT0ZGpFAwCgYIKoZIzj0EAwIw
GDEWMBQGA1UEAwwNc2l0ZW1hcGQtdGVzdDAgFw0yNjExMjYxMDU5MzFaGA8yMTI2
MTEwMjEwNTkzMVowGDEWMBQGA1UEAwwNc2l0ZW1hcGQtdGVzdDBZMBMGByqGSM49
AgEGCCqGSM49AwEHA0IABMAh4OkU2em48T0QMEf3aJXP6sOd0s3diTIgDsSFGTPE
Yg7CQ43gSFk0v0Q+ITigRjdvi8hZTAINxxD04qGyK7GjUzBRMB0GA1UdDgQWBBR2
TSByx5c8C8NagcPua1x34XZT2TAfBgNVHSMEGDAWgBR2TSByx5c8C8NagcPua1x3
4XZT2TAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIGU3hj3RK/c/
+0XoOj08Igz6yMQqU51uGy/1xfVPFMzSAiEAxDQMpcWI0PDDI24Q9dANe/pUsA92
bl0mfHubVu+NKWc=
-----END CERTIFICATE-----
";

/// A user of nowhere: its seed is the numbers from 0 on.
const CREDENTIALS: &str = "-----BEGIN NATS USER JWT-----
eyJ0eXAiOiJqd3QifQ.e30.e30
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y
------END USER NKEY SEED------
";

#[test]
fn certificates_and_credentials_for_nats_are_read_before_anything_is_connected() {
    let broken = CERTIFICATE.replace("MIIBhzCC", "MIIBAAAA");
    let cut = CREDENTIALS.split("-----BEGIN USER").next().unwrap_or_default();
    for (key, text, is_good) in [
        ("ca_file", CERTIFICATE, true),
        ("ca_file", "no certificate here", false),
        ("ca_file", &broken, false),
        ("credentials_file", CREDENTIALS, true),
        ("credentials_file", "a password", false),
        ("credentials_file", cut, false),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = format!(
            "[listen]\napi = \"127.0.0.1:0\"\n[egress.nats]\n\
             servers = [\"tls://127.0.0.1:9\"]\n{key} = \"secret.pem\"\n"
        );
        std::fs::write(folder.path().join("config.toml"), config).expect("a file");
        std::fs::write(folder.path().join("secret.pem"), text).expect("a file");
        let run = |args: &[&str]| outcome(sitemapd_in(folder.path()).args(args));
        let (code, _, err) = run(&["config", "check"]);
        assert_eq!(code, if is_good { 0 } else { 78 }, "{key}: {text}: {err}");
        if !is_good {
            assert!(err.contains(&format!("egress.nats.{key} ")), "{err}");
            assert_eq!(run(&["run"]).0, 78, "{key}: {text}");
        }
    }
}
