//! Files, includes and the environment.

use std::fs;
use std::path::Path;

use super::*;

/// Writes `files` into a new folder and loads the first.
fn load(files: &[(&str, &str)], env: &Env) -> (tempfile::TempDir, Result<Config, ConfigError>) {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, text).expect("written");
    }
    let config = Config::load(&folder.path().join(files[0].0), env);
    (folder, config)
}

fn site(name: &str) -> String {
    format!("[[site]]\nname = \"{name}\"\nurl = \"https://{name}.example/\"\n")
}

#[test]
fn paths_are_relative_to_the_file() {
    let text = "[listen]\ntoken_file = \"token\"\n[daemon]\ndata_dir = \"var\"";
    let (folder, config) = load(&[("etc/c.toml", text), ("etc/token", "t")], &Env::empty());
    let config = config.expect("a config");
    assert_eq!(config.daemon.data_dir, folder.path().join("etc/var"));
    assert_eq!(config.listen.token_file, Some(folder.path().join("etc/token")));
    let (folder, config) = load(&[("c.toml", "")], &Env::empty());
    assert_eq!(config.expect("a config").daemon.data_dir, folder.path().join("data"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::load(Path::new("/no/such.toml"), &Env::empty()).expect_err("no file");
    assert!(error.to_string().starts_with("/no/such.toml: cannot be read: No such file"));
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn a_file_that_is_not_utf_8_names_the_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.toml");
    std::fs::write(&path, b"[daemon]\ncontact = \"\xfc@a.example\"\n").expect("a file");
    let told = Config::load(&path, &Env::empty()).expect_err("no UTF-8").to_string();
    assert_eq!(told, format!("{}:2: not valid UTF-8; save the file as UTF-8", path.display()));
}

#[test]
fn included_files_add_sites_in_the_order_of_their_names() {
    let main = format!("include = [\"sites.d/*.toml\", \"more.toml\"]\n{}", site("a"));
    let files = [
        ("c.toml", main.as_str()),
        ("sites.d/2.toml", &site("c")),
        ("sites.d/1.toml", &site("b")),
        ("sites.d/readme.md", "not TOML"),
        ("more.toml", &site("d")),
    ];
    let (_folder, config) = load(&files, &Env::empty());
    let config = config.expect("a config");
    assert_eq!(config.sites.keys().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
}

#[test]
fn a_fault_in_an_included_file_names_that_file() {
    for (text, expected) in [
        (site("a"), "1.toml:2: site.name: found \"a\" again"),
        ("[poll]\nmin = \"1h\"".to_owned(), "1.toml:1: poll: unknown key (known here: site)"),
        ("x".to_owned(), "1.toml:1: not valid TOML"),
    ] {
        let main = format!("include = [\"s/*.toml\"]\n{}", site("a"));
        let (_folder, config) = load(&[("c.toml", &main), ("s/1.toml", &text)], &Env::empty());
        let told = config.expect_err("a fault").to_string();
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn an_include_without_files_is_empty_and_a_named_file_must_be_there() {
    let (_folder, config) = load(&[("c.toml", "include = [\"s/*.toml\"]")], &Env::empty());
    assert!(config.expect("a config").sites.is_empty());
    let (_folder, config) = load(&[("c.toml", "\ninclude = [\"s.toml\"]")], &Env::empty());
    let told = config.expect_err("no file").to_string();
    assert!(told.contains("c.toml:2: include: ") && told.contains("there is no file"), "{told}");
}

#[test]
fn a_folder_of_sites_that_cannot_be_read_is_a_fault_and_not_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let (main, sites) = (folder.path().join("c.toml"), folder.path().join("sites.d"));
    fs::write(&main, "include = [\"sites.d/*.toml\"]").expect("written");
    let told = || Config::load(&main, &Env::empty()).expect_err("a fault").to_string();
    fs::write(&sites, "").expect("written");
    assert!(told().contains("c.toml:1: include: ") && told().contains("cannot be read"));
    fs::remove_file(&sites).expect("removed");
    std::os::unix::fs::symlink("sites.d", &sites).expect("a link");
    assert!(told().contains("c.toml:1: include: ") && told().contains("cannot be read"));
    fs::remove_file(&sites).expect("removed");
    fs::create_dir(&sites).expect("a folder");
    // As an editor locks a file.
    std::os::unix::fs::symlink("nobody@nowhere:1", sites.join(".#a.toml")).expect("a link");
    fs::create_dir(sites.join("b.toml")).expect("a folder");
    assert!(Config::load(&main, &Env::empty()).is_ok());
    std::os::unix::fs::symlink("c.toml", sites.join("c.toml")).expect("a link");
    assert!(told().contains("sites.d/c.toml cannot be read"), "{}", told());
}

#[test]
fn an_empty_variable_names_no_token_file() {
    let named = "[listen]\ntoken_file = \"token\"";
    for (text, file) in [("", None), (named, Some("token"))] {
        let env = Env::from([("SITEMAPD__LISTEN__TOKEN_FILE", " "), ("SITEMAPD_TOKEN", "t")]);
        let (folder, config) = load(&[("c.toml", text), ("token", "t")], &env);
        let expected = file.map(|file| folder.path().join(file));
        assert_eq!(config.expect("a config").listen.token_file, expected, "{text}");
    }
}

#[test]
fn a_token_file_of_the_command_line_stands_in_for_that_of_the_file() {
    let named = "[listen]\napi = \"0.0.0.0:7070\"\ntoken_file = \"missing\"";
    let token = tempfile::NamedTempFile::new().expect("a file");
    let path = token.path().to_owned();
    let env = Env::empty().with_token_file(Some(path.clone()));
    let (_folder, config) = load(&[("c.toml", named)], &env);
    assert_eq!(config.expect("a config").listen.token_file, Some(path));
    let env = Env::empty().with_token_file(Some("/no/such".into()));
    let (_folder, config) = load(&[("c.toml", "")], &env);
    let told = config.expect_err("no file").to_string();
    assert!(told.starts_with("--token-file (SITEMAPD_TOKEN_FILE): listen.token_file: "), "{told}");
    let (_folder, config) = load(&[("c.toml", "")], &env.sending_nothing());
    assert!(config.is_ok(), "who reads it tells");
}

#[test]
fn the_environment_overrides_the_file() {
    let env = Env::from([
        ("SITEMAPD__POLL__MIN", "20m"),
        ("SITEMAPD__POLL__JITTER", "0.2"),
        ("SITEMAPD__FETCH__MAX_URLS", "7"),
        ("SITEMAPD__FETCH__ALLOW", "[\"127.0.0.1:1\"]"),
        ("SITEMAPD__LISTEN__API", "127.0.0.1:1"),
        ("SITEMAPD__RECRAWL__CHANGEFREQ__DAILY", "2d"),
        ("PATH", "/bin"),
    ]);
    let (_folder, config) = load(&[("c.toml", "[poll]\nmin = \"15m\"\nmax = \"1d\"")], &env);
    let config = config.expect("a config");
    assert_eq!(config.poll.min, Duration::from_secs(1_200));
    assert_eq!(config.poll.max, Duration::from_secs(86_400));
    assert!((config.poll.jitter - 0.2).abs() < 1e-9);
    assert_eq!(config.fetch.limits.max_urls, 7);
    assert_eq!(config.fetch.allow.len(), 1);
    assert_eq!(config.listen.api.port(), 1);
    assert_eq!(config.recrawl.changefreq.by_word[2], Duration::from_secs(172_800));
    let alone = Config::from_env(&env).expect("a config");
    assert_eq!(alone.poll.min, config.poll.min);
}

#[test]
fn a_fault_in_the_environment_names_the_variable() {
    for (name, value, expected) in [
        ("SITEMAPD__POLL__MIN", "soon", "poll.min: found \"soon\", allowed is a duration"),
        ("SITEMAPD__POLL__MINI", "1h", "poll.mini: unknown key; did you mean min?"),
        ("SITEMAPD__POL__MIN", "1h", "pol: unknown key; did you mean poll?"),
        ("SITEMAPD__POLL", "1h", "poll: found string, allowed is a table"),
        ("SITEMAPD__POLL__", "1h", "names no key"),
        ("SITEMAPD__SITE__NAME", "a", "sites are written in files"),
        ("SITEMAPD__LISTEN__API", "x", ": listen.api: found \"x\", allowed is an address"),
        ("SITEMAPD__RECRAWL__CHANGEFREQ__DAILY", "x", ": recrawl.changefreq.daily: found \"x\""),
        // Of a table as of its keys, however far into it.
        ("SITEMAPD__LISTEN", "{api = \"x\"}", ": listen.api: found \"x\", allowed is an address"),
        ("SITEMAPD__LISTEN", "{grpc = \"x\", api = \"127.0.0.1:1\"}", ": listen.grpc: found \"x\""),
        ("SITEMAPD__LISTEN", "{apj = \"x\"}", ": listen.apj: unknown key; did you mean api?"),
        ("SITEMAPD__LISTEN", "{api = 1}", ": listen.api: "),
        (
            "SITEMAPD__RECRAWL",
            "{changefreq = {weekly = \"7d\", daily = \"x\"}}",
            ": recrawl.changefreq.daily: found \"x\"",
        ),
        ("SITEMAPD__FETCH__ALLOW", "[\"127.0.0.1\", \"x\"]", ": fetch.allow: "),
        ("SITEMAPD__LISTEN__GRPC", "x", ": listen.grpc: found \"x\", allowed is an address"),
    ] {
        let (_folder, config) = load(
            &[("c.toml", "[poll]\nmax = \"1d\"\n# and more than a variable has")],
            &Env::from([(name, value)]),
        );
        let told = config.expect_err(name).to_string();
        assert!(told.starts_with(&format!("environment variable {name}: ")), "{told}");
        assert!(told.contains(expected), "{told}");
    }
}
