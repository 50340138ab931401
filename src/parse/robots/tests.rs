//! robots.txt as RFC 9309 reads it, and as people write it.

use super::*;

#[test]
fn groups_of_one_agent_are_merged_and_named_ones_beat_the_star() {
    let robots = Robots::parse(
        b"User-agent: *\nDisallow: /\n\nUser-agent: FooBot/2.0\nUser-agent: bar\nDisallow: /a\n\n\
          user-agent: foobot\nDisallow: /b\nAllow: /b/c\n",
    );
    assert!(!robots.allows("foobot", "/a"));
    assert!(!robots.allows("FooBot/1.0", "/b"));
    assert!(robots.allows("foobot", "/b/c"));
    assert!(robots.allows("foobot", "/z"));
    assert!(robots.allows("bar", "/b"));
    assert!(!robots.allows("other", "/z"));
    assert!(robots.allows("other", "/robots.txt"));
}

#[test]
fn a_sitemap_line_does_not_end_a_group_and_an_empty_disallow_allows_all() {
    let robots = Robots::parse(b"User-agent: a\nSitemap: /s.xml\nUser-agent: b\nDisallow:\n");
    assert!(robots.allows("a", "/x") && robots.allows("b", "/x"));
    let robots = Robots::parse(b"User-agent: a\nSitemap: /s.xml\nUser-agent: b\nDisallow: /x\n");
    assert!(!robots.allows("a", "/x") && !robots.allows("b", "/x"));
}

#[test]
fn only_a_star_by_itself_stands_for_everybody() {
    for (agent, is_allowed) in
        [("*", false), ("* x", false), ("*\t# all", false), ("*bot", true), ("**", true)]
    {
        let text = format!("User-agent: {agent}\nDisallow: /\n\nUser-agent: b\nAllow: /\n");
        let robots = Robots::parse(text.as_bytes());
        assert_eq!(robots.allows("a", "/x"), is_allowed, "{agent:?}");
        assert!(robots.allows("b", "/x"), "{agent:?}");
    }
}

#[test]
fn rules_before_any_agent_bind_nobody() {
    let robots = Robots::parse(b"Disallow: /\nUser-agent: *\nDisallow: /a\n");
    assert!(robots.allows("x", "/b"));
    assert!(!robots.allows("x", "/a"));
}

#[test]
fn sitemap_lines_are_found_in_every_shape_of_the_field() {
    let table: &[(&str, &[&str])] = &[
        ("Sitemap: https://e.com/s.xml", &["https://e.com/s.xml"]),
        ("\u{feff}sitemap:https://e.com/s.xml", &["https://e.com/s.xml"]),
        ("SITEMAP : https://e.com/s.xml # main", &["https://e.com/s.xml"]),
        ("Sitemap:\u{a0}https://e.com/s.xml", &["https://e.com/s.xml"]),
        ("Site-map: https://e.com/s.xml", &["https://e.com/s.xml"]),
        ("\tSitemap: /s.xml", &["/s.xml"]),
        ("Sitemap: s.xml", &["s.xml"]),
        ("Sitemap https://e.com/s.xml", &["https://e.com/s.xml"]),
        ("Sitemap:\nhttps://e.com/s.xml", &["https://e.com/s.xml"]),
        ("User-agent: *\rDisallow:\rSitemap: https://e.com/s.xml\r", &["https://e.com/s.xml"]),
        ("Sitemap: https://e.com/s.xml\nsitemap: https://e.com/s.xml", &["https://e.com/s.xml"]),
        ("Sitemap:", &[]),
        ("# Sitemap: https://e.com/s.xml", &[]),
        ("kjasSItemapsdmjfkl wekie;er :Ads", &[]),
        ("<a href=\"/sitemap\">Sitemap: x</a>", &[]),
        ("https://e.com/s.xml", &[]),
    ];
    for (text, want) in table {
        assert_eq!(Robots::parse(text.as_bytes()).sitemaps(), *want, "{text:?}");
    }
}

#[test]
fn a_line_with_several_urls_names_them_all_and_a_remark_names_none() {
    let table: &[(&str, &[&str])] = &[
        (
            "Sitemap: https://e.com/1.xml https://e.com/2.xml",
            &["https://e.com/1.xml", "https://e.com/2.xml"],
        ),
        (
            "Sitemap: https://e.com/1.xml, https://e.com/2.xml",
            &["https://e.com/1.xml", "https://e.com/2.xml"],
        ),
        (
            "Sitemap: https://e.com/1.xml,HTTPS://e.com/2.xml;http://e.com/a,b.xml",
            &["https://e.com/1.xml", "HTTPS://e.com/2.xml", "http://e.com/a,b.xml"],
        ),
        ("Sitemap: https://e.com/1.xml (the main one)", &["https://e.com/1.xml"]),
        ("Sitemap: <https://e.com/1.xml>", &["https://e.com/1.xml"]),
        ("Sitemap: \"/s.xml\"", &["/s.xml"]),
        ("Sitemap: //cdn.e.com/s.xml", &["//cdn.e.com/s.xml"]),
        ("Sitemap\u{a0}:\u{a0}https://e.com/s.xml\u{a0}#x", &["https://e.com/s.xml"]),
        ("Sitemap:\thttps://e.com/s.xml\t# x", &["https://e.com/s.xml"]),
        ("Sitemap:\r\n\r\n  https://e.com/s.xml", &["https://e.com/s.xml"]),
        ("sitemaps: https://e.com/s.xml", &["https://e.com/s.xml"]),
        ("Sitemap\nhttps://e.com/s.xml", &["https://e.com/s.xml"]),
        ("Sitemap\nDisallow: /x\nhttps://e.com/s.xml", &[]),
        ("# sitemap\nhttps://e.com/s.xml", &[]),
        ("Site map: https://e.com/s.xml", &["https://e.com/s.xml"]),
    ];
    for (text, want) in table {
        assert_eq!(Robots::parse(text.as_bytes()).sitemaps(), *want, "{text:?}");
    }
}

#[test]
fn a_line_of_nothing_but_commas_is_read_in_one_pass() {
    let began = std::time::Instant::now();
    for marks in [",", ";,", ",ttp:/"] {
        let url = format!("https://e.com/{}", marks.repeat(300_000 / marks.len()));
        let robots = Robots::parse(format!("Sitemap: {url}\n").as_bytes());
        assert_eq!(robots.sitemaps().len(), 1, "{marks}");
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn a_path_without_letters_is_one_where_a_blank_stands_for_the_colon() {
    let robots = Robots::parse(b"User-agent *\nDisallow /1:2\nDisallow /*:3\n");
    for (path, is_allowed) in [("/1:2", false), ("/x:3", false), ("/1", true)] {
        assert_eq!(robots.allows("a", path), is_allowed, "{path}");
    }
}

#[test]
fn a_file_of_nothing_but_sitemaps_is_read_in_one_pass() {
    let lines: Vec<String> = (0..40_000).map(|i| format!("sitemap:/{i}\n")).collect();
    let lines = lines.concat();
    let robots = Robots::parse(lines.as_bytes());
    assert!(robots.sitemaps().len() > 30_000 && robots.is_too_large());
}

#[test]
fn groups_are_told_apart_as_the_standard_says() {
    let table: &[(&str, &str, &str, bool)] = &[
        // RFC 9309 section 2.2.1: lines of one group may have blank lines between them.
        ("User-agent: a\n\nUser-agent: b\n\nDisallow: /\n", "a", "/x", false),
        ("User-agent: a\nDisallow: /\nUser-agent: b\nDisallow: /b\n", "b", "/x", true),
        ("User-agent: a\nDisallow: /\nUser-agent: *\nDisallow:\n", "a", "/x", false),
        ("User-agent: *\nDisallow: /\nUser-agent: a\nAllow: /\n", "a", "/x", true),
        // What is no rule does not end a group, nor begin one.
        ("User-agent: a\nHost: e.com\nUser-agent: b\nDisallow: /\n", "a", "/x", false),
        ("User-agent: a\nCrawl-delay: 1\nUser-agent: b\nDisallow: /\n", "a", "/x", false),
        // A name is its product token: version and comment do not count.
        ("User-agent: SiteMapD/2.0 (+x)\nDisallow: /\n", "sitemapd/0.1 (+y)", "/x", false),
        ("User-agent: sitemap\nDisallow: /\n", "sitemapd", "/x", true),
        ("User-agent: sitemapd-news\nDisallow: /\n", "sitemapd", "/x", true),
        ("User-agent: web3bot\nDisallow: /\n", "Web3Bot/1.0 (+y)", "/x", false),
        ("User-agent: web\nDisallow: /\n", "web3bot/1.0 (+y)", "/x", true),
        ("User-agent: web3bot\nDisallow: /\n", "web", "/x", true),
        // Keys in any case, blanks anywhere, all line ends.
        ("USER-AGENT:a\r\n  disallow :/p\r\n", "a", "/p", false),
        ("user-agent: a\rdisallow: /p\r", "a", "/p", false),
        ("\u{feff}User-agent: a\nDisallow: /p # not /q\n", "a", "/q", true),
        ("User-agent: a\nDisallow: /p # not /q\n", "a", "/p", false),
        // The most octets win; allow wins a tie; an empty rule says nothing.
        ("User-agent: *\nAllow: /p\nDisallow: /\n", "a", "/page", true),
        ("User-agent: *\nAllow: /folder\nDisallow: /folder\n", "a", "/folder/page", true),
        ("User-agent: *\nAllow: /page\nDisallow: /*.htm\n", "a", "/page.htm", false),
        ("User-agent: *\nAllow: /page\nDisallow: /*.ph\n", "a", "/page.php5", true),
        ("User-agent: *\nAllow: /$\nDisallow: /\n", "a", "/", true),
        ("User-agent: *\nAllow: /$\nDisallow: /\n", "a", "/page.htm", false),
        ("User-agent: *\nDisallow: /\nAllow:\n", "a", "/x", false),
        // Case counts in paths, escapes do not.
        ("User-agent: *\nDisallow: /Foo\n", "a", "/foo", true),
        ("User-agent: *\nDisallow: /%66oo\n", "a", "/foo", false),
        (
            "User-agent: *\nDisallow: /foo/bar?baz=https%3a//foo.bar\n",
            "a",
            "/foo/bar?baz=https%3A//foo.bar",
            false,
        ),
        ("User-agent: *\nDisallow: /ツ\n", "a", "/%e3%83%84", false),
    ];
    for (text, agent, path, allowed) in table {
        assert_eq!(
            Robots::parse(text.as_bytes()).allows(agent, path),
            *allowed,
            "{text:?} {agent} {path}"
        );
    }
}

/// RFC 9309 section 2.2.4: no other record may end a group. Sites that name an agent for
/// its delay alone hardly mean it so, but who reads it otherwise fetches what others do not.
#[test]
fn agents_named_for_a_delay_alone_have_the_rules_behind_unless_an_empty_rule_ends_the_list() {
    for (empty, is_allowed) in [("", false), ("Disallow:\n", true), ("Allow:\n", true)] {
        let text = format!("User-agent: a\nCrawl-delay: 10\n{empty}\nUser-agent: b\nDisallow: /\n");
        let robots = Robots::parse(text.as_bytes());
        assert_eq!(robots.allows("a", "/x"), is_allowed, "{text:?}");
        assert!(!robots.allows("b", "/x"));
        assert_eq!(robots.crawl_delay("a").map(|delay| delay.as_secs()), Some(10));
        assert_eq!(robots.crawl_delay("b"), None);
    }
}

#[test]
fn a_defect_of_the_file_is_at_its_line_and_byte() {
    let text = "\u{feff}Disallow: /a\r\nUser-agent: *\r\nnonsense here\r\nAllow: /b\r\n\
                Sitemap: https://e.com/1.xml\r\nSitemap: /rel.xml\r\nSitemap: ftp://e.com/x\r\n";
    let base = url::Url::parse("https://e.com/robots.txt").expect("a URL");
    let limits = crate::parse::Limits::default();
    let ctx = crate::parse::Context { base: &base, content_type: None, limits };
    let report = crate::parse::parse(&mut text.as_bytes(), &ctx, &mut |_| {
        std::ops::ControlFlow::Continue(())
    });
    // A byte order mark is not part of the text.
    let decoded = text.trim_start_matches('\u{feff}');
    for (code, needle, line) in [
        ("no-user-agent", "Disallow: /a", 1),
        ("syntax-not-understood", "nonsense", 3),
        ("relative-url", "Sitemap: /rel", 6),
        ("invalid-url", "Sitemap: ftp", 7),
    ] {
        let issue = report.issues.iter().find(|issue| issue.code.as_str() == code);
        let issue = issue.unwrap_or_else(|| panic!("{code}: {:?}", report.issues));
        let offset = decoded.find(needle).expect("it is there") as u64;
        assert_eq!((issue.line, issue.offset), (line, offset), "{code}");
    }
}

#[test]
fn utf16_files_are_read() {
    let text = "User-agent: *\nDisallow: /x\nSitemap: /s.xml\n";
    let mut bytes = vec![0xff, 0xfe];
    bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    let robots = Robots::parse(&bytes);
    assert_eq!(robots.sitemaps(), ["/s.xml"]);
    assert!(!robots.allows("a", "/x"));
}

#[test]
fn crawl_delay_is_per_group_bounded_and_never_nonsense() {
    let robots =
        Robots::parse(b"User-agent: a\nCrawl-delay: 2.5\n\nUser-agent: *\nCrawl-delay: 1e99\n");
    assert_eq!(robots.crawl_delay("a"), Some(Duration::from_millis(2_500)));
    assert_eq!(robots.crawl_delay("b"), Some(Duration::from_secs(86_400)));
    for value in ["-1", "NaN", "inf", "", "x"] {
        let robots = Robots::parse(format!("User-agent: *\nCrawl-delay: {value}\n").as_bytes());
        assert_eq!(robots.crawl_delay("a"), None, "{value}");
    }
}

#[test]
fn a_crawl_delay_is_of_the_agents_that_were_named_since_the_one_before() {
    let robots = Robots::parse(
        b"User-agent: a\nUser-agent: b\nCrawl-delay: 1\n\nUser-agent: c\nCrawl-delay: x\n\n\
          User-agent: d\nCrawl-delay: 2\nCrawl-delay: 3\n\nUser-agent: *\nDisallow: /x\n\
          Crawl-delay: 4\n",
    );
    for (agent, seconds) in
        [("a", Some(1)), ("b", Some(1)), ("c", None), ("d", Some(3)), ("e", Some(4))]
    {
        let delay = robots.crawl_delay(agent).map(|delay| delay.as_secs());
        assert_eq!(delay, seconds, "{agent}");
        assert!(!robots.allows(agent, "/x"), "{agent}");
    }
}

#[test]
fn a_blank_stands_for_a_colon_in_a_line_of_two_words_that_makes_sense() {
    let table = [
        ("User-agent *\nDisallow /x\n", false),
        ("User-agent: *\nDisallow\t*x:1\nAllow /x:2\n", true),
        ("User-agent: *\nDisallow\t*x\n", false),
        ("User-agent: *\nDisallow /x or not\n", true),
        ("User-agent: *\nDisallow x\n", true),
        ("User-agent for all\nDisallow /x\n", true),
    ];
    for (text, is_allowed) in table {
        assert_eq!(Robots::parse(text.as_bytes()).allows("a", "/x"), is_allowed, "{text}");
    }
    let robots = Robots::parse(b"User-agent a\nCrawl-delay 3\n");
    assert_eq!(robots.crawl_delay("a"), Some(Duration::from_secs(3)));
}

#[test]
fn signals_are_kept_per_group_and_for_the_file() {
    let robots = Robots::parse(
        b"License: https://e.com/license.xml\nUser-agent: *\nContent-Signal: search=yes, ai-train=no\n\
          Content-Usage: ai=n\nAllow: /\nUser-agent: a\nDisallow: /p\n",
    );
    let usage = robots.usage("other");
    assert_eq!(usage.content_signal.of("/"), Some("search=yes, ai-train=no"));
    assert_eq!(usage.content_usage.of("/"), Some("ai=n"));
    assert_eq!(usage.license.as_deref(), Some("https://e.com/license.xml"));
    assert_eq!(robots.usage("a").content_signal.of("/"), None);
    assert_eq!(robots.usage("a").license.as_deref(), Some("https://e.com/license.xml"));
}

#[test]
fn a_preference_for_some_paths_replaces_none_for_the_others() {
    let robots = Robots::parse(
        b"Content-Usage: search=n\nUser-agent: *\nContent-Usage: train-ai=n\n\
          Content-Usage: /free/ train-ai=y\nAllow: /\n\nUser-agent: *\n\
          Content-Usage: /free/x train-ai=n\nDisallow: /p\n\nUser-agent: b\nAllow: /\n",
    );
    let said = robots.usage("a").content_usage;
    for (path, want) in [("/", "train-ai=n"), ("/free/1", "train-ai=y"), ("/free/x1", "train-ai=n")]
    {
        assert_eq!(said.of(path), Some(want), "{path}");
    }
    assert_eq!(robots.usage("b").content_usage.of("/free/1"), Some("search=n"));
}

#[test]
fn a_license_is_of_the_file_wherever_it_stands_and_the_first_one_counts() {
    for file in [
        "User-agent: *\nDisallow: /admin/\n\nUser-agent: GPTBot\nDisallow: /\n\nLicense: /l.xml\n",
        "User-agent: sitemapd\nLicense: /l.xml\nDisallow: /\nUser-agent: *\nLicense: /m.xml\n",
        "License:\nLicense: /l.xml\nLicense: /m.xml\n",
    ] {
        let robots = Robots::parse(file.as_bytes());
        for agent in ["sitemapd", "GPTBot", "*"] {
            assert_eq!(robots.usage(agent).license.as_deref(), Some("/l.xml"), "{agent}: {file}");
        }
    }
}

#[test]
fn what_is_no_rule_ends_no_group() {
    for line in [
        "License: /l",
        "Content-Signal: ai-train=no",
        "Content-Usage: ai=n",
        "Host: e.com",
        "Crawl-delay: 1",
    ] {
        let file = format!("User-agent: a\n{line}\nUser-agent: b\nDisallow: /\n");
        let robots = Robots::parse(file.as_bytes());
        assert!(!robots.allows("a", "/x") && !robots.allows("b", "/x"), "{line}");
        // Behind a rule it ends none either, and begins none.
        let file = format!("User-agent: a\nDisallow: /\n{line}\nUser-agent: b\nAllow: /\n");
        let robots = Robots::parse(file.as_bytes());
        assert!(!robots.allows("a", "/x") && robots.allows("b", "/x"), "{line}");
    }
}

#[test]
fn what_is_beyond_the_limit_is_not_read() {
    let mut bytes = b"User-agent: *\nDisallow: /early\n".to_vec();
    bytes.extend("#".repeat(MAX_BYTES).into_bytes());
    bytes.extend(b"\nDisallow: /late\n");
    let robots = Robots::parse(&bytes);
    assert!(robots.is_too_large());
    assert!(!robots.allows("a", "/early"));
    assert!(robots.allows("a", "/late"));
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, path in "/\\PC{0,40}") {
        let robots = Robots::parse(&bytes);
        let _ = (robots.allows("sitemapd", &path), robots.crawl_delay("x"), robots.usage("y"));
    }

    #[test]
    fn no_rule_makes_it_panic(rules in "(((Dis)?allow|User-agent|Sitemap): ?[/*$a%0-9é]{0,12}\n){0,8}") {
        let robots = Robots::parse(rules.as_bytes());
        proptest::prop_assert!(robots.allows("a", "/robots.txt"));
        let _ = robots.allows("*", "/a%0");
    }
}
