//! Each fault names its place, its key, what was found and what is allowed.

use super::*;
use crate::config::env::Token;

/// What a person is told of `text`, after the file's name.
fn told(text: &str) -> String {
    Config::from_toml_str(text).expect_err(text).to_string().replace("config:", "")
}

#[test]
fn a_fault_names_line_key_found_and_allowed() {
    for (text, expected) in [
        (
            "\n[poll]\nmin = \"10 minuets\"",
            "3: poll.min: found \"10 minuets\", allowed is a duration from 1s to 3650d: \
             \"10 minuets\" is no duration such as \"1h 30m\"",
        ),
        (
            "[poll]\nmin = 10",
            "2: poll.min: found 10, allowed is a duration from 1s to 3650d, such as \"1h 30m\"",
        ),
        ("[poll]\nmin = \"10\"", "\"10\" has no unit: write \"10s\" for seconds"),
        ("[poll]\njitter = 0.9", "2: poll.jitter: found 0.9, allowed is a number from 0 to 0.5"),
        // What is left at its default for it contradicts nothing.
        ("[poll]\nmin = \"5\"\nfirst = \"10s\"", "2: poll.min: found \"5\", allowed is a duration"),
        ("[poll]\nmin = \"8d\"\nmax = \"x\"", "3: poll.max: found \"x\", allowed is a duration"),
        ("[recrawl]\nmin = \"x\"\nmax = \"30m\"", "2: recrawl.min: found \"x\", allowed is"),
        ("[fetch]\nmax_redirects = -1", "allowed is a whole number from 0 to 20"),
        ("[fetch]\nmax_redirects = 2.5", "found 2.5, allowed is a whole number from 0 to 20"),
        (
            "[fetch]\nmax_body_bytes = \"5 apples\"",
            "2: fetch.max_body_bytes: found \"5 apples\", allowed is a size from 1KiB to 4GiB: \
             \"5 apples\" is no size such as \"50MiB\"",
        ),
        ("[fetch]\nallow = [\"localhost:1\"]", "of which \"localhost:1\" is wrong: allowed is an"),
        ("[fetch]\nproxy = \"socks5://p:1\"", "allowed is the http or https URL of a proxy"),
        ("[fetch]\nca_file = \"no/such.pem\"", "and there is no file no/such.pem"),
        ("[store]\ndurability = \"some\"", "found \"some\", allowed is \"full\" or \"normal\""),
        ("[daemon]\ntimezone = \"CEST\"", "2: daemon.timezone: found \"CEST\", allowed is a name"),
        ("[queue]\nlease = \"13h\"", "2: queue.lease: found \"13h\", allowed is"),
        ("[daemon]\nuser_agent = \"(bot)\"", "allowed is a name of letters, digits"),
        ("[daemon]\nuser_agent = \"bot\\nX: y\"", "allowed is a name of letters"),
        ("[daemon]\ncontact = \"nobody\"", "allowed is a mail address"),
        ("[daemon]\ndata_dir = \"\"", "allowed is a path"),
        ("[listen]\napi = \"7070\"", "allowed is an address and port"),
        ("[log]\nlevel = \"verbose\"", "2: log.level: found \"verbose\", allowed is a level"),
        ("[log]\nlevel = \"a=b=c\"", "allowed is a level"),
        ("poll = 3", "1: poll: found integer, allowed is a table: [poll]"),
        ("[site]\nname = \"a\"", "write a site as [[site]]"),
        ("[poll\nmin = 3", "1: not valid TOML: "),
        ("[poll]\nmin = \"1s\"\nmin = \"2s\"", "3: not valid TOML: duplicate key min"),
        ("include = [\"a/*/b.toml\"]", "allowed are wildcards in the last part of the path only"),
    ] {
        let told = told(text);
        assert!(told.contains(expected), "{text}\n{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn a_fault_of_a_site_names_its_own_line() {
    let long_feed = format!("feeds = [\"/{}\"]", "x".repeat(2_048));
    for (keys, expected) in [
        ("poll = \"cron: */5 * * *\"", "5: site.poll: found \"cron: */5 * * *\", it has 4 fields"),
        ("poll = \"cron: 0 0 31 2 *\"", "never comes"),
        ("poll = \"10ms\"", "allowed is \"auto\", a duration from 1s"),
        ("crawl = \"a b\"", "allowed are 1 to 100 of the characters A-Z a-z 0-9 . _ -"),
        ("hosts = [\"https://b.example/\"]", "allowed is a host with or without a port"),
        ("hosts = [\"u@b.example\"]", "allowed is a host with or without a port"),
        ("sitemaps = \"yes\"", "allowed is \"auto\" or a list of http or https URLs"),
        ("feeds = [\"ftp://a.example/\"]", "allowed is an http or https URL"),
        (long_feed.as_str(), "allowed is a URL of at most 2,048 bytes as it is sent"),
        ("timezone = \"Mars\"", "allowed is a name of the IANA database"),
        ("weight = 0", "5: site.weight: found 0, allowed is a number from 0.001 to 1000"),
        ("scope = \"hosts\"", "allowed is \"host\" or \"directory\" or \"domain\" or \"any\""),
        ("include = [\"\"]", "of which \"\" is wrong: allowed is a glob"),
        ("include = [\"/blog/*\"]", "of which \"/blog/*\" is wrong: no URL begins so"),
        ("exclude = [\"/blog/*\"]", "begins with *, ? or a scheme: \"*/blog/*\""),
        ("exclude = [\"b.example/*\"]", "or a scheme: \"*/b.example/*\""),
        ("exclude = [\"HTTPS://b.example/*\"]", "a scheme: \"https://b.example/*\""),
        ("exclude = [\"ftp://b.example/*\"]", "a scheme: \"*://b.example/*\""),
        ("exclude = [\"*/caf\u{e9}/*\"]", "allowed is a glob of ASCII characters"),
        ("hosts = [\"*.a.example\"]", "scope = \"domain\" takes in all hosts"),
        ("hosts = [\"cdn?.a.example\"]", "allowed is a host without wildcards"),
        ("follow = [\"images\"]", "allowed are \"image\", \"video\", \"alternate\""),
        ("follow = \"image\"", "5: site.follow: found \"image\""),
        ("strip_params = [\"*\"]", "allowed is the name of a query parameter"),
        ("strip_params = [\"a*b\"]", "allowed is the name of a query parameter"),
        ("obey_robots = \"no\"", "5: site.obey_robots: found \"no\", allowed is true or false"),
        ("robots_agent = \"bot/1\"", "allowed are letters, digits, _ and -"),
        ("limits = { max_url = 1 }", "5: site.limits.max_url: unknown key; did you mean max_urls?"),
        ("recrawl = { min = \"9d\", max = \"1d\" }", "site.recrawl.max: recrawl.min is \"9d\""),
        ("headers = { Host = \"a\" }", "header \"Host\": this header is set by sitemapd itself"),
        ("headers = { \"A B\" = \"a\" }", "allowed is the name of an HTTP header"),
        ("headers = { A = \"${NO_SUCH}\" }", "environment variable NO_SUCH is not set"),
        ("headers = { A = \"${OPEN\" }", "has no }"),
        ("headers = { A = \"x\\ny\" }", "allowed are visible ASCII characters"),
        ("headers = \"A: b\"", "allowed is a table"),
    ] {
        let told = told(&format!("{}{keys}\n", with_site("")));
        assert!(told.contains(expected), "{keys}\n{told}");
        assert!(told.starts_with("5: site."), "{told}");
    }
}

#[test]
fn a_site_needs_a_name_of_its_own_and_a_url() {
    let a = "[[site]]\nname = \"a\"\nurl = \"https://a.example/\"\n";
    for (text, expected) in [
        (format!("{a}{a}"), "5: site.name: found \"a\" again, allowed is a name of its own"),
        ("\n[[site]]\nname = \"a\"".to_owned(), "2: site: a [[site]] needs url"),
        ("[[site]]\nurl = \"https://a.example/\"".to_owned(), "1: site: a [[site]] needs name"),
        (a.replace("https:", "file:"), "3: site.url: found \"file://a.example/\", allowed is"),
        (a.replace("https://", "/"), "relative URL without a base"),
    ] {
        let told = told(&text);
        assert!(told.contains(expected), "{text}\n{told}");
    }
}

#[test]
fn all_faults_are_told_at_once_and_a_flood_is_cut() {
    let told_of = told("[poll]\nmin = 1\nmax = 2\n[log]\nformat = \"xml\"");
    assert_eq!(told_of.lines().count(), 3, "{told_of}");
    let one_site = told("[[site]]\nname = \"a b\"\nurl = \"a\"\nscope = \"b\"\n[poll]\nmin = 1");
    let lines: Vec<&str> = one_site.lines().map(|line| &line[..2]).collect();
    assert_eq!(lines, ["2:", "3:", "4:", "6:"]);
    assert_eq!(told(&"[[site]]\n".repeat(100)).lines().count(), 20);
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_and_the_known_ones() {
    for (text, expected) in [
        (
            "[poll]\nmn = \"1h\"",
            "2: poll.mn: unknown key; did you mean min? (known here: min, max, first, jitter, \
             removal_polls, removal_after)",
        ),
        ("[pol]\nmin = \"1h\"", "1: pol: unknown key; did you mean poll?"),
        ("[fetch]\nuseragent = 1", "2: fetch.useragent: unknown key (known here: concurrency"),
        ("[recrawl.changefreq]\ndayly = \"1d\"", "recrawl.changefreq.dayly: unknown key; did you"),
        ("sites = []", "1: sites: unknown key; did you mean site?"),
    ] {
        assert!(told(text).contains(expected), "{text}\n{}", told(text));
    }
    let both = told("[poll]\nmn = \"1h\"\n[log]\nfmt = 1");
    assert_eq!(both.lines().count(), 2, "{both}");
    let long = format!("{} = 1", "x".repeat(100_000));
    assert!(told(&long).contains("unknown key (known"));
}

#[test]
fn listeners_have_an_address_each() {
    for (text, expected) in [
        (
            "public = \"127.0.0.1:7070\"",
            "public: found \"127.0.0.1:7070\", where listen.api listens",
        ),
        ("public = \"0.0.0.0:7070\"", "public: found \"0.0.0.0:7070\", where listen.api"),
        (
            "public = \"[::1]:1\"\ngrpc = \"[::1]:1\"",
            "grpc: found \"[::1]:1\", where listen.public",
        ),
    ] {
        let told = told(&format!("[listen]\n{text}"));
        assert!(told.contains(expected), "{text}\n{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    let apart = "api = \"127.0.0.1:0\"\npublic = \"127.0.0.1:0\"\ngrpc = \"[::1]:7071\"\n\
                 internal = \"127.0.0.1:7071\"";
    assert!(Config::from_toml_str(&format!("[listen]\n{apart}")).is_ok());
    let inner = "[listen]\ninternal = \"127.0.0.1:7070\"\n";
    assert!(Config::from_toml_str(inner).is_ok(), "nobody listens there");
    let shared = told(&format!("{inner}[store]\nurl = \"postgres://a@127.0.0.1/b\""));
    assert!(shared.contains("listen.internal: found \"127.0.0.1:7070\""), "{shared}");
}

#[test]
fn the_api_beyond_loopback_needs_a_token_file() {
    let text = "[listen]\napi = \"0.0.0.0:7070\"";
    assert!(told(text).contains("2: listen.api: found \"0.0.0.0:7070\", which others can reach"));
    let file = tempfile::NamedTempFile::new().expect("a file");
    let with_token = format!("{text}\ntoken_file = {:?}", file.path());
    assert!(Config::from_toml_str(&with_token).is_ok());
    let file = tempfile::NamedTempFile::with_suffix(".toml").expect("a file");
    std::fs::write(file.path(), text).expect("a config");
    let of = |token| Config::load(file.path(), &Env::from([("SITEMAPD_TOKEN", token)]));
    let config = of(" s3cret\n").expect("the environment has one");
    assert_eq!(config.listen.token.as_ref().map(Token::as_str), Some("s3cret"));
    assert!(!format!("{config:?}").contains("s3cret"));
    assert!(of("  ").is_err(), "an empty one is none");
    assert!(Config::from_toml_str("[listen]\napi = \"[::1]:7070\"").is_ok());
    let grpc = told("[listen]\ngrpc = \"0.0.0.0:7071\"");
    assert!(grpc.contains("2: listen.grpc: found \"0.0.0.0:7071\", which others can reach"));
}

#[test]
fn a_min_over_its_max_is_told_where_it_was_typed() {
    for (text, expected) in [
        ("[poll]\nmin = \"2h\"\nmax = \"1h\"", "3: poll.max: poll.min is \"2h\" and poll.max is"),
        ("[poll]\nmin = \"8d\"", "2: poll.min: poll.min is \"8d\" and poll.max is \"7d\""),
        (
            "[poll]\nfirst = \"8d\"",
            "2: poll.first: found \"8d\", allowed is a duration from poll.min to poll.max: 10m to 7d",
        ),
        ("[recrawl]\nmax = \"1m\"", "2: recrawl.max: recrawl.min is \"1h\""),
    ] {
        let told = told(text);
        assert!(told.contains(expected), "{text}\n{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn a_secret_is_in_no_fault() {
    let token = with_site("") + "headers = { A = \"s3cret\\u0001\", Host = \"s3cret\" }";
    let user = "[[site]]\nname = \"a\"\nurl = \"https://me:s3cret@a.example/\"";
    let proxy = "[fetch]\nproxy = \"socks5://me:s3cret@p.example\"";
    let listed = |url: &str| with_site("") + &format!("sitemaps = [\"/s.xml\", \"{url}\"]");
    let sitemap = listed("https://me:s3cret@a.example/s.xml");
    let relative = listed("//me:s3cret@a.example/s.xml");
    let terse = listed("http:me:s3cret@a.example/s.xml");
    let servers = "[egress.nats]\nservers = [\"nats://a:4222\", \"nats://me:s3cret@b:4222\"]";
    let mut texts = vec![&token, user, proxy, &sitemap, &relative, &terse, servers];
    // What is not escaped as a URL wants it.
    let slash = "[store]\nurl = \"postgres://sitemapd:ab/s3cret@db/s\"";
    let hash = "[store]\nurl = \"postgres://sitemapd:ab#s3cret@db/s\"";
    let query = "[fetch]\nproxy = \"http://me:ab?s3cret@p.example:x\"";
    let named = "[store]\nurl = \"postgres://db/s?user=me&Password=s3cret&sslmode=verify-full\"";
    texts.extend([slash, hash, query, named]);
    for text in texts {
        assert!(!told(text).contains("s3cret"), "{}", told(text));
    }
    assert!(told(slash).contains("\"postgres://***@db/s\""), "{}", told(slash));
    assert!(told(&relative).contains("\"//***@a.example/s.xml\""), "{}", told(&relative));
    assert!(told(named).contains("Password=***&sslmode"), "{}", told(named));
    let env = Env::from([("SITEMAPD__STORE__URL", "postgres://sitemapd:ab/s3cret@db/s")]);
    let told = Config::from_env(&env).expect_err("no URL").to_string();
    assert!(!told.contains("s3cret"), "{told}");
}

#[test]
fn a_database_that_no_connection_can_be_made_to_is_a_fault() {
    for (more, why) in [
        ("sslmode=verify-full", "invalid value for option `sslmode`"),
        ("sslmod=require", "unknown option `sslmod`"),
        ("sslrootcert=ca.pem", "unknown option `sslrootcert`"),
    ] {
        let told = told(&format!("[store]\nurl = \"postgres://u@db/s?{more}\""));
        assert!(told.contains("2: store.url: ") && told.contains(why), "{told}");
    }
    assert!(told("[store]\nurl = \"postgres:///s\"").contains("names no host"));
    let socket = "[store]\nurl = \"postgres:///s?host=/run/postgresql\"";
    assert!(Config::from_toml_str(socket).is_ok());
}
