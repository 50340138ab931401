//! `sitemapd demo`: the whole, in a few seconds.

use super::{outcome, sitemapd};

#[test]
fn the_demo_shows_the_main_job_loses_nothing_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, out, err) =
        outcome(sitemapd().args(["demo", "--for", "5s"]).env("TMPDIR", folder.path()));
    assert_eq!(code, 0, "{out}{err}");
    for told in ["curl http://127.0.0.1:", "/metrics", "/v1/lease", " poll ", " fetch ", " total "]
    {
        assert!(out.contains(told), "{told}: {out}");
    }
    let summary = out.split("What happened").nth(1).expect("a summary");
    assert!(summary.contains("  lost     0 (of "), "{summary}");
    assert!(!summary.contains(" 0 known"), "{summary}");
    for line in out.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 0, "the temporary folder is removed");
}
