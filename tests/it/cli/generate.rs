//! `sitemapd generate`: completions that shells take, a page for each command.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::usage::COMMANDS;
use super::{outcome, sitemapd};

#[test]
fn completions_name_every_command_and_bash_takes_its_own() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, out, err) = outcome(sitemapd().args(["generate", "completions", shell]));
        assert_eq!((code, err.as_str()), (0, ""), "{shell}");
        for command in COMMANDS {
            assert!(out.contains(command), "{shell}: {command}");
        }
        if shell == "bash" {
            let mut bash =
                Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().expect("bash");
            bash.stdin.take().expect("a pipe").write_all(out.as_bytes()).expect("it reads");
            assert!(bash.wait().expect("it ends").success());
        }
    }
    let (code, _, err) = outcome(sitemapd().args(["generate", "completions", "tcsh"]));
    assert_eq!(code, 2, "{err}");
}

#[test]
fn every_command_has_a_manual_page() {
    let (code, out, _) = outcome(sitemapd().args(["generate", "man"]));
    assert_eq!(code, 0);
    assert!(out.contains(".TH sitemapd 1") && out.contains("Exit codes"), "{out}");
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("man");
    let (code, out, _) = outcome(sitemapd().args(["generate", "man", "--dir"]).arg(&dir));
    assert_eq!(code, 0, "{out}");
    for command in COMMANDS {
        let page = std::fs::read_to_string(dir.join(format!("sitemapd-{command}.1")));
        let page = page.unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(page.contains(&format!(".TH sitemapd-{command} 1")), "{command}");
    }
    assert!(dir.join("sitemapd-queue-peek.1").exists());
}
