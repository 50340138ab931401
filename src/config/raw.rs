//! The configuration as typed: every key that there is, and nothing read yet.
//!
//! Unknown keys are refused while this is filled in. Each value keeps the
//! place where it was typed; what it means is the business of `resolve` and
//! `site`. A key that belongs to a later version is listed here, so that it
//! is refused by name and not as a typing error.

use serde::Deserialize;
use serde::de::{Deserializer, Visitor, value::Error as SerdeError};
use toml::{Spanned, Value};

/// One value with its place, or nothing where the key is not there.
pub(super) type Leaf = Option<Spanned<Value>>;

/// The config file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawConfig {
    pub(super) include: Leaf,
    pub(super) daemon: RawDaemon,
    pub(super) listen: RawListen,
    pub(super) fetch: RawFetch,
    pub(super) politeness: RawPoliteness,
    pub(super) poll: RawPoll,
    pub(super) recrawl: RawRecrawl,
    pub(super) queue: RawQueue,
    pub(super) store: RawStore,
    pub(super) log: RawLog,
    pub(super) urlfrontier: RawUrlFrontier,
    pub(super) egress: RawEgress,
    pub(super) site: Vec<Spanned<RawSite>>,
}

/// A file that `include` names.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawInclude {
    pub(super) site: Vec<Spanned<RawSite>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawDaemon {
    pub(super) data_dir: Leaf,
    pub(super) user_agent: Leaf,
    pub(super) contact: Leaf,
    pub(super) timezone: Leaf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawListen {
    pub(super) api: Leaf,
    pub(super) token_file: Leaf,
    pub(super) public: Leaf,
    pub(super) public_url: Leaf,
    pub(super) grpc: Leaf,
    pub(super) internal: Leaf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawFetch {
    pub(super) concurrency: Leaf,
    pub(super) connect_timeout: Leaf,
    pub(super) total_timeout: Leaf,
    pub(super) max_wire_bytes: Leaf,
    pub(super) max_body_bytes: Leaf,
    pub(super) max_urls: Leaf,
    pub(super) max_sitemaps: Leaf,
    pub(super) max_url_chars: Leaf,
    pub(super) max_index_depth: Leaf,
    pub(super) max_redirects: Leaf,
    pub(super) proxy: Leaf,
    pub(super) ca_file: Leaf,
    pub(super) allow: Leaf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawPoliteness {
    pub(super) host_delay: Leaf,
    pub(super) per_host: Leaf,
    pub(super) per_address: Leaf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawPoll {
    pub(super) min: Leaf,
    pub(super) max: Leaf,
    pub(super) first: Leaf,
    pub(super) jitter: Leaf,
    pub(super) removal_polls: Leaf,
    pub(super) removal_after: Leaf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRecrawl {
    pub(super) budget: Leaf,
    pub(super) min: Leaf,
    pub(super) max: Leaf,
    pub(super) changefreq: RawChangeFreq,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawChangeFreq {
    pub(super) always: Leaf,
    pub(super) hourly: Leaf,
    pub(super) daily: Leaf,
    pub(super) weekly: Leaf,
    pub(super) monthly: Leaf,
    pub(super) yearly: Leaf,
    pub(super) never: Leaf,
    pub(super) absent: Leaf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawQueue {
    pub(super) order: Leaf,
    pub(super) lease: Leaf,
    pub(super) max_attempts: Leaf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawUrlFrontier {
    pub(super) trust_dates: Leaf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawStore {
    pub(super) url: Leaf,
    pub(super) durability: Leaf,
    pub(super) keep_changes: Leaf,
    pub(super) keep_polls: Leaf,
    pub(super) min_free_disk: Leaf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLog {
    pub(super) format: Leaf,
    pub(super) level: Leaf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawEgress {
    pub(super) nats: RawNats,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawNats {
    pub(super) servers: Leaf,
    pub(super) credentials_file: Leaf,
    pub(super) user: Leaf,
    pub(super) token_file: Leaf,
    pub(super) ca_file: Leaf,
    pub(super) crawls: Leaf,
    pub(super) stream: Leaf,
    pub(super) subject: Leaf,
    pub(super) results_stream: Leaf,
    pub(super) results: Leaf,
    pub(super) create: Leaf,
    pub(super) batch: Leaf,
    pub(super) in_flight: Leaf,
    pub(super) lease: Leaf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSite {
    pub(super) name: Leaf,
    pub(super) url: Leaf,
    pub(super) crawl: Leaf,
    pub(super) hosts: Leaf,
    pub(super) twins: Leaf,
    pub(super) sitemaps: Leaf,
    pub(super) feeds: Leaf,
    pub(super) poll: Leaf,
    pub(super) timezone: Leaf,
    pub(super) weight: Leaf,
    pub(super) scope: Leaf,
    pub(super) include: Leaf,
    pub(super) exclude: Leaf,
    pub(super) normalise: Leaf,
    pub(super) strip_params: Leaf,
    pub(super) follow: Leaf,
    pub(super) max_urls: Leaf,
    pub(super) max_sources: Leaf,
    pub(super) obey_robots: Leaf,
    pub(super) websub: Leaf,
    pub(super) robots_agent: Leaf,
    pub(super) headers: Leaf,
    pub(super) host_delay: Leaf,
    pub(super) limits: RawLimits,
    pub(super) recrawl: RawSiteRecrawl,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(clippy::struct_field_names)] // They are the keys.
pub(super) struct RawLimits {
    pub(super) max_wire_bytes: Leaf,
    pub(super) max_body_bytes: Leaf,
    pub(super) max_urls: Leaf,
    pub(super) max_sitemaps: Leaf,
    pub(super) max_url_chars: Leaf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSiteRecrawl {
    pub(super) min: Leaf,
    pub(super) max: Leaf,
}

/// The keys that one table may hold, and which of them are tables again.
pub(super) struct Shape {
    pub(super) keys: &'static [&'static str],
    pub(super) tables: Vec<(&'static str, Shape)>,
}

impl Shape {
    /// The keys of the config file.
    pub(super) fn of_config() -> Self {
        let changefreq = ("changefreq", Self::flat::<RawChangeFreq>());
        let recrawl = Self { tables: vec![changefreq], ..Self::flat::<RawRecrawl>() };
        let nats = ("nats", Self::flat::<RawNats>());
        let egress = Self { tables: vec![nats], ..Self::flat::<RawEgress>() };
        let tables = vec![
            ("daemon", Self::flat::<RawDaemon>()),
            ("listen", Self::flat::<RawListen>()),
            ("fetch", Self::flat::<RawFetch>()),
            ("politeness", Self::flat::<RawPoliteness>()),
            ("poll", Self::flat::<RawPoll>()),
            ("recrawl", recrawl),
            ("queue", Self::flat::<RawQueue>()),
            ("urlfrontier", Self::flat::<RawUrlFrontier>()),
            ("store", Self::flat::<RawStore>()),
            ("log", Self::flat::<RawLog>()),
            ("egress", egress),
            ("site", Self::of_site()),
        ];
        Self { tables, ..Self::flat::<RawConfig>() }
    }

    /// The keys of an included file.
    pub(super) fn of_include() -> Self {
        Self { tables: vec![("site", Self::of_site())], ..Self::flat::<RawInclude>() }
    }

    fn of_site() -> Self {
        let tables = vec![
            ("limits", Self::flat::<RawLimits>()),
            ("recrawl", Self::flat::<RawSiteRecrawl>()),
        ];
        Self { tables, ..Self::flat::<RawSite>() }
    }

    fn flat<'de, T: Deserialize<'de>>() -> Self {
        let mut names = FieldNames(&[]);
        // It has only asked for its fields: the error is how it is told that
        // there is nothing to read.
        let _ = T::deserialize(&mut names);
        Self { keys: names.0, tables: Vec::new() }
    }

    /// The shape of one table in this one.
    pub(super) fn table(&self, key: &str) -> Option<&Self> {
        self.tables.iter().find(|(name, _)| *name == key).map(|(_, shape)| shape)
    }
}

/// A deserializer that only notes which fields a struct asks for, so that the
/// list of known keys is never written down twice.
struct FieldNames(&'static [&'static str]);

impl<'de> Deserializer<'de> for &mut FieldNames {
    type Error = SerdeError;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, SerdeError> {
        Err(serde::de::Error::custom("not a struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SerdeError> {
        self.0 = fields;
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf
        option unit unit_struct newtype_struct seq tuple tuple_struct map enum
        identifier ignored_any
    }
}
