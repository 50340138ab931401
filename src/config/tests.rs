//! What a person sees: defaults, what is accepted, and each kind of fault
//! with its place.

mod example;
mod faults;
mod files;
mod reload;

use std::time::Duration;

use super::*;

/// A file with one site and `text` in front of it.
fn with_site(text: &str) -> String {
    format!("{text}\n[[site]]\nname = \"a\"\nurl = \"https://a.example/\"\n")
}

/// The one site of a file in which `keys` follow its name and URL.
fn site_with(keys: &str) -> Site {
    let config = Config::from_toml_str(&format!("{}{keys}\n", with_site(""))).expect(keys);
    (*config.sites["a"]).clone()
}

#[test]
fn an_empty_file_means_the_defaults() {
    assert_eq!(Config::from_toml_str("").expect("a config"), Config::default());
}

#[test]
fn a_key_that_is_set_is_used_and_the_others_keep_their_defaults() {
    let text = "[fetch]\nmax_body_bytes = \"50MB\"\nmax_redirects = 2\nallow = [\"127.0.0.1:8081\", \
                \"10.1.2.3/8\", \"[::1]:9\", \"::1\", \"192.168.0.0/16:80\"]\n[poll]\nmin = \"1s\"\n";
    let config = Config::from_toml_str(text).expect("a config");
    assert_eq!(config.fetch.limits.max_body_bytes, 50_000_000);
    assert_eq!(config.fetch.max_redirects, 2);
    assert_eq!(config.poll.min, Duration::from_secs(1));
    let allow = |net: &str, port| AllowedAddress { net: net.parse().expect("a net"), port };
    assert_eq!(
        config.fetch.allow,
        [
            allow("127.0.0.1/32", Some(8081)),
            allow("10.0.0.0/8", None),
            allow("::1/128", Some(9)),
            allow("::1/128", None),
            allow("192.168.0.0/16", Some(80)),
        ]
    );
    assert_eq!(config.queue, Config::default().queue);
}

#[test]
fn the_first_interval_stays_within_min_and_max_when_it_is_left_out() {
    let config = Config::from_toml_str("[poll]\nmax = \"30m\"").expect("a config");
    assert_eq!(config.poll.first, Duration::from_secs(1_800));
    let config = Config::from_toml_str("[poll]\nmin = \"2h\"").expect("a config");
    assert_eq!(config.poll.first, Duration::from_secs(7_200));
}

#[test]
fn a_site_takes_over_what_it_does_not_say() {
    let text = "[daemon]\nuser_agent = \"my-bot/2.0 (x)\"\ntimezone = \"Europe/Berlin\"\n\
                [politeness]\nhost_delay = \"3s\"\n[fetch]\nmax_urls = 7\n[recrawl]\nmin = \"2h\"";
    let config = Config::from_toml_str(&with_site(text)).expect("a config");
    let site = &config.sites["a"];
    assert_eq!(site.robots_agent, "my-bot");
    assert_eq!(site.timezone.iana_name(), Some("Europe/Berlin"));
    assert_eq!(site.host_delay, Duration::from_secs(3));
    assert_eq!(site.limits.max_urls, 7);
    assert_eq!(site.recrawl_min, Duration::from_secs(7_200));
    assert_eq!(site.max_urls, 1_000_000);
}

#[test]
fn a_robots_agent_may_have_digits_and_is_the_whole_name_of_the_user_agent() {
    let cases = [
        ("web3bot/1.0 (+https://w.example/)", "web3bot"),
        ("360Spider", "360Spider"),
        ("a2 3", "a2"),
    ];
    for (user_agent, token) in cases {
        let text = format!("[daemon]\nuser_agent = \"{user_agent}\"");
        let config = Config::from_toml_str(&with_site(&text)).expect(user_agent);
        assert_eq!(config.sites["a"].robots_agent, token);
        assert_eq!(site_with(&format!("robots_agent = \"{token}\"")).robots_agent, token);
    }
}

#[test]
fn a_lease_may_be_as_long_as_the_api_lets_one_be() {
    let config = Config::from_toml_str("[queue]\nlease = \"12h\"").expect("a config");
    assert_eq!(config.queue.lease, crate::queue::MAX_TTL);
}

#[test]
fn a_site_may_override_limits_delay_and_recrawl() {
    let site = site_with(
        "host_delay = \"500ms\"\nlimits = { max_urls = 9 }\n[site.recrawl]\nmax = \"9d\"",
    );
    assert_eq!(site.host_delay, Duration::from_millis(500));
    assert_eq!((site.limits.max_urls, site.limits.max_sitemaps), (9, 50_000));
    assert_eq!(site.recrawl_max, Duration::from_secs(9 * 86_400));
    assert_eq!(site.recrawl_min, Duration::from_secs(3_600));
}

#[test]
fn a_poll_rule_is_auto_a_duration_or_a_cron_line() {
    assert_eq!(site_with("").poll, PollRule::Adaptive);
    assert_eq!(site_with("poll = \"auto\"").poll, PollRule::Adaptive);
    assert_eq!(site_with("poll = \"15m\"").poll, PollRule::Every(Duration::from_secs(900)));
    let PollRule::Cron(line) = site_with("poll = \"cron: */10 * * * *\"").poll else {
        panic!("not a cron line")
    };
    assert_eq!(line.to_string(), "*/10 * * * *");
}

#[test]
fn sources_may_be_listed_relative_to_the_site() {
    let site = site_with("sitemaps = [\"/s.xml\", \"https://cdn.example/s.xml\"]\nfeeds = []");
    let urls = ["https://a.example/s.xml", "https://cdn.example/s.xml"];
    let urls = urls.map(|url| Url::parse(url).expect("a URL")).to_vec();
    assert_eq!(site.sitemaps, SourceList::Listed(urls));
    assert_eq!(site.feeds, SourceList::Listed(Vec::new()));
}

#[test]
fn hosts_are_written_as_urls_have_them() {
    let site = site_with("hosts = [\"WWW.Bücher.example\", \"b.example:8443\", \"[::1]:80\"]");
    assert_eq!(site.hosts, ["www.xn--bcher-kva.example", "b.example:8443", "[::1]:80"]);
}

#[test]
fn a_number_of_bytes_is_a_size_too() {
    let config = Config::from_toml_str("[store]\nmin_free_disk = 4096").expect("a config");
    assert_eq!(config.store.min_free_disk, 4_096);
}

#[test]
fn an_empty_contact_sends_none() {
    let config = Config::from_toml_str("[daemon]\ncontact = \"\"").expect("a config");
    assert_eq!(config.daemon.contact, None);
}

#[test]
fn headers_are_filled_in_and_never_shown() {
    let proxy = "[fetch]\nproxy = \"http://me:s3cret@p.example:3128\"";
    let text = with_site(proxy) + "headers = { Authorization = \"Bearer ${TOKEN}!\", X-A = \"1\" }";
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.toml");
    std::fs::write(&path, text).expect("written");
    let config = Config::load(&path, &Env::from([("TOKEN", "s3cret")])).expect("a config");
    let headers = &config.sites["a"].headers;
    assert!(headers.contains(&("Authorization".to_owned(), "Bearer s3cret!".to_owned())));
    let shown = resolved_toml(&config);
    assert!(shown.contains("Authorization = \"***\"") && !shown.contains("s3cret"), "{shown}");
    let debug = format!("{config:?}");
    assert!(debug.contains("Authorization") && !debug.contains("s3cret"), "{debug}");
}

#[test]
fn what_is_shown_can_be_read_back() {
    let text = with_site(
        "[listen]\napi = \"127.0.0.1:0\"\n[fetch]\nallow = [\"127.0.0.1:1\", \"10.0.0.0/8:2\", \
         \"[::1]:3\", \"fc00::/7\"]\n[log]\nlevel = \"info,sitemapd=debug\"",
    ) + "poll = \"cron: 0 4 * * mon\"\nsitemaps = [\"/s.xml\"]\nweight = 2.5\n\
         timezone = \"Asia/Tokyo\"\nscope = \"domain\"\nexclude = [\"*?x=*\"]\n";
    for text in [String::new(), text] {
        let config = Config::from_toml_str(&text).expect("a config");
        let shown = resolved_toml(&config);
        assert_eq!(Config::from_toml_str(&shown).expect(&shown), config, "{shown}");
    }
}

#[test]
fn a_proxy_is_shown_without_its_password() {
    let text = "[fetch]\nproxy = \"http://user:s3cret@proxy.example:3128\"";
    let config = Config::from_toml_str(text).expect("a config");
    assert_eq!(config.fetch.proxy.as_ref().and_then(Url::password), Some("s3cret"));
    let shown = resolved_toml(&config);
    assert!(shown.contains("http://proxy.example:3128") && !shown.contains("s3cret"), "{shown}");
}

#[test]
fn the_example_name_on_a_public_site_is_a_warning() {
    let config = |url: &str, daemon: &str| {
        let site = format!("{daemon}\n[[site]]\nname = \"a\"\nurl = \"{url}\"");
        Config::from_toml_str(&site).expect("a config")
    };
    let named = "[daemon]\nuser_agent = \"me/1\"\ncontact = \"me@a.example\"";
    let of = |url, daemon| warnings(&config(url, daemon)).join("\n");
    assert!(of("https://blog.rust-lang.org/", "").contains("site a would be polled under"));
    assert!(of("https://1.1.1.1/", "").contains("name of the example"));
    assert_eq!(of("https://blog.rust-lang.org/", named), "");
    for url in [
        "http://127.0.0.1:81/",
        "http://[::1]/",
        "http://nas/",
        "http://a.test/",
        "https://example.org/",
        "http://10.0.0.1/",
        "http://[::ffff:10.0.0.1]/",
    ] {
        assert_eq!(of(url, ""), "", "{url}");
    }
}

#[test]
fn callbacks_are_below_a_url_that_others_reach() {
    let config = |url: &str, public: &str| {
        let site = "[[site]]\nname = \"a\"\nurl = \"https://example.org/\"";
        Config::from_toml_str(&format!("[listen]\n{public}\npublic_url = \"{url}\"\n{site}"))
    };
    let public = "public = \"127.0.0.1:0\"";
    for (url, expected, warned) in [
        ("https://push.example.org", "https://push.example.org/", false),
        ("https://push.rust-lang.org/hooks", "https://push.rust-lang.org/hooks/", false),
        ("http://127.0.0.1:7080/", "http://127.0.0.1:7080/", false),
        ("http://push.rust-lang.org/", "http://push.rust-lang.org/", true),
    ] {
        let config = config(url, public).expect(url);
        assert_eq!(config.listen.public_url.as_ref().map(Url::as_str), Some(expected));
        assert_eq!(warnings(&config).join("").contains("plain http"), warned, "{url}");
    }
    for url in ["push.example.org", "ftp://a.example/", "https://a.example/?a=b", "https://u:p@a/"]
    {
        assert!(config(url, public).is_err(), "{url}");
    }
    let alone = config("https://push.example.org/", "").expect_err("no listener");
    assert!(alone.to_string().contains("listen.public is reached from outside"), "{alone}");
}

#[test]
fn only_of_urls_of_a_site_it_is_said_that_its_headers_take_a_password() {
    let site =
        |url: &str, keys: &str| format!("[[site]]\nname = \"a\"\nurl = \"https://{url}/\"\n{keys}");
    let listed = site("a.example", "sitemaps = [\"https://u:s3cret@a.example/s.xml\"]");
    let public = "[listen]\npublic = \"127.0.0.1:0\"\npublic_url = \"https://u:s3cret@a/\"";
    for (text, is_of_site) in
        [(site("u:s3cret@a.example", ""), true), (listed, true), (public.to_owned(), false)]
    {
        let told = Config::from_toml_str(&text).expect_err(&text).to_string();
        assert!(told.contains("without user and password"), "{told}");
        assert_eq!(told.contains("site.headers"), is_of_site, "{told}");
        assert!(!told.contains("s3cret"), "{told}");
    }
}

#[test]
fn hasty_rude_and_double_sites_are_warnings() {
    let text = "[daemon]\nuser_agent = \"me/1\"\ncontact = \"\"\n[fetch]\nallow = [\"0.0.0.0/0\"]\n\
        [[site]]\nname = \"a\"\nurl = \"https://rust-lang.org/\"\npoll = \"5s\"\n\
        [[site]]\nname = \"b\"\nurl = \"https://rust-lang.org/\"\nobey_robots = false\n";
    let warnings = warnings(&Config::from_toml_str(text).expect("a config"));
    assert_eq!(
        warnings,
        [
            "site a may be polled more often than once a minute",
            "site b is polled without regard to robots.txt",
            "fetch.allow lets every private address be fetched",
            "sites a and b are the same url in the same crawl",
        ]
    );
    assert!(super::warnings(&Config::default()).join("").contains("nothing to poll"));
}

#[test]
fn a_cron_line_is_hasty_where_two_of_its_times_are_within_a_minute() {
    for (line, is_hasty) in [
        ("*/10 * * * * *", true),
        ("0,59 * * * * *", true),
        ("1,2 0 3 * * *", true),
        ("30 * * * * *", false),
        ("* * * * *", false),
        ("@daily", false),
    ] {
        let text = "[daemon]\nuser_agent = \"me/1\"\ncontact = \"\"\n[[site]]\nname = \"a\"\n\
            url = \"https://rust-lang.org/\"\npoll = \"cron: LINE\"\n";
        let config = Config::from_toml_str(&text.replace("LINE", line)).expect(line);
        let told = warnings(&config).iter().any(|told| told.contains("once a minute"));
        assert_eq!(told, is_hasty, "{line}");
    }
}

#[test]
fn a_crawl_to_be_published_that_is_no_sites_is_a_warning() {
    let told = |nats: &str, listen: &str| {
        let text = format!(
            "[listen]\n{listen}\n[egress.nats]\n{nats}\n\
             [[site]]\nname = \"a\"\nurl = \"http://a.test/\"\ncrawl = \"news\"\n"
        );
        warnings(&Config::from_toml_str(&text).expect("a config")).join("\n")
    };
    let on = "servers = [\"nats://127.0.0.1\"]";
    assert!(told(on, "").contains("names default, which is no site's crawl"), "{}", told(on, ""));
    // A client of the frontier may bring it.
    assert_eq!(told(on, "grpc = \"127.0.0.1:0\""), "");
    assert_eq!(told("", ""), "");
    assert_eq!(told(&format!("{on}\ncrawls = [\"news\"]"), ""), "");
}
