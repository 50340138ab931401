//! What holds where the file says nothing.
//!
//! `config.example.toml` shows the same values, and a test keeps the two equal.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::{
    Budget, ChangeFreqIntervals, Config, Daemon, Durability, Egress, Fetch, FetchLimits, Listen,
    Log, LogFormat, Order, Politeness, Poll, Queue, Recrawl, Store, UrlFrontier,
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// The `user_agent` of the example: a public site polled with it is a warning.
pub(super) const EXAMPLE_USER_AGENT: &str = "sitemapd/0.1 (+https://example.org/bot)";
/// The `contact` of the example.
pub(super) const EXAMPLE_CONTACT: &str = "bot@example.org";

/// Query parameters that only say where a visitor came from: the campaign
/// tags of analytics, advertising and mailing systems. Parameters that some
/// site uses for content (`ref`, `source`, `id`) are not in it.
pub(super) const TRACKING_PARAMS: [&str; 16] = [
    "utm_*", "gclid", "gclsrc", "gbraid", "wbraid", "dclid", "fbclid", "msclkid", "yclid",
    "twclid", "ttclid", "igshid", "mc_cid", "mc_eid", "_hsenc", "_hsmi",
];

impl Default for Config {
    /// The built-in values, without any site; paths are relative.
    fn default() -> Self {
        Self {
            daemon: Daemon {
                data_dir: PathBuf::from("data"),
                user_agent: EXAMPLE_USER_AGENT.to_owned(),
                contact: Some(EXAMPLE_CONTACT.to_owned()),
                timezone: TimeZone::UTC,
            },
            listen: Listen {
                api: SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
                token_file: None,
                public: None,
                public_url: None,
                grpc: None,
                internal: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                token: None,
            },
            fetch: Fetch::default(),
            politeness: Politeness {
                host_delay: Duration::from_secs(1),
                per_host: 10,
                per_address: 4,
            },
            poll: Poll {
                min: 10 * MINUTE,
                max: 7 * DAY,
                first: HOUR,
                jitter: 0.1,
                removal_polls: 3,
                removal_after: DAY,
            },
            recrawl: Recrawl {
                min: HOUR,
                max: 180 * DAY,
                budget: Budget::Auto,
                price: 0.5,
                changefreq: ChangeFreqIntervals::default(),
            },
            queue: Queue { order: Order::Learned, lease: 5 * MINUTE, max_attempts: 8 },
            urlfrontier: UrlFrontier { trust_dates: false },
            store: Store {
                url: None,
                durability: Durability::Full,
                keep_changes: 30 * DAY,
                keep_polls: 30 * DAY,
                min_free_disk: 1 << 30,
            },
            log: Log { format: LogFormat::Text, level: "info".to_owned() },
            egress: Egress::default(),
            sites: BTreeMap::new(),
        }
    }
}

impl Default for Fetch {
    fn default() -> Self {
        Self {
            concurrency: 64,
            connect_timeout: Duration::from_secs(10),
            total_timeout: 2 * MINUTE,
            limits: FetchLimits::default(),
            max_index_depth: 3,
            max_redirects: 5,
            proxy: None,
            ca_file: None,
            allow: Vec::new(),
        }
    }
}

impl Default for FetchLimits {
    /// The limits of the Sitemaps protocol: 50 MiB, 50,000 entries, and
    /// locations under 2,048 characters.
    fn default() -> Self {
        Self {
            max_wire_bytes: 50 << 20,
            max_body_bytes: 50 << 20,
            max_urls: 50_000,
            max_sitemaps: 50_000,
            max_url_chars: 2_048,
        }
    }
}

impl Default for ChangeFreqIntervals {
    /// What each word says, with `never` and `yearly` looked at twice a year
    /// all the same, and a fortnight where a URL has none.
    fn default() -> Self {
        Self {
            by_word: [HOUR, HOUR, DAY, 7 * DAY, 30 * DAY, 180 * DAY, 180 * DAY],
            absent: 14 * DAY,
        }
    }
}
