//! A scripted client of a daemon that polls a small site: each of its deeds, as
//! soon as it is answered, is one that the database must show from then on.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension as _};
use serde_json::{Value, json};
use sitemapd::fetch::api::{ApiClient, ApiError};
use tempfile::TempDir;

use crate::support::daemon::sitemap;
use crate::support::disk::Disk;
use crate::support::process::{DEADLINE, write_config};
use crate::support::record::Kept;
use crate::support::{Origin, Reply};

/// Something that was answered with a 2xx.
#[derive(Debug, Clone)]
pub(super) enum Deed {
    Leased {
        id: i64,
        token: String,
    },
    Extended {
        id: i64,
        token: String,
    },
    Released {
        id: i64,
        token: String,
    },
    Settled {
        id: i64,
        token: String,
    },
    Blocked {
        prefix: String,
    },
    Submitted {
        url: String,
    },
    /// A poll of this number is listed.
    Polled {
        id: i64,
    },
}

impl Deed {
    /// Does the database show it?
    pub(super) fn stands(&self, conn: &Connection) -> bool {
        let found = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
            conn.query_row(sql, values, |_| Ok(())).optional().unwrap().is_some()
        };
        // A token is the row's number and 32 hexadecimal digits.
        let secret = |token: &str| token[..32].to_uppercase();
        let ended =
            |id: &i64, token: &str| Some(Kept::of(conn, *id)).filter(|kept| kept.ended(token));
        match self {
            Self::Leased { id, token } => {
                let held = "SELECT 1 FROM leases WHERE url_id = ?1 AND hex(token) = ?2";
                found(held, &[id, &secret(token)]) || ended(id, token).is_some()
            }
            Self::Extended { id, token } => {
                let longer = "SELECT 1 FROM leases WHERE url_id = ?1 AND hex(token) = ?2
                              AND expires_at - leased_at > 3000000";
                found(longer, &[id, &secret(token)]) || ended(id, token).is_some()
            }
            Self::Released { id, token } => ended(id, token).is_some_and(|kept| kept.how == 2),
            Self::Settled { id, token } => {
                let seen = |kept: Kept| (kept.how, kept.fetches, kept.outcome) == (0, 1, 0);
                ended(id, token).is_some_and(seen)
            }
            Self::Blocked { prefix } => found("SELECT 1 FROM blocks WHERE pattern = ?1", &[prefix]),
            Self::Submitted { url } => found("SELECT 1 FROM sources WHERE url = ?1", &[url]),
            Self::Polled { id } => found("SELECT 1 FROM polls WHERE id = ?1", &[id]),
        }
    }
}

/// A folder, an origin and a client that writes down what it was answered.
pub(super) struct Script {
    pub(super) folder: TempDir,
    pub(super) config: PathBuf,
    pub(super) origin: Origin,
    /// Each deed, and how much had happened on the disk when it was answered.
    pub(super) deeds: Vec<(Deed, u64)>,
    /// Statuses of the answers that were no success.
    pub(super) refusals: Vec<u16>,
    version: u32,
}

impl Script {
    /// A site of `urls` pages, and no store yet.
    pub(super) async fn new(durability: &str) -> Self {
        let origin = Origin::start().await;
        let base = origin.base();
        let folder = TempDir::new().unwrap();
        let text = format!(
            "[fetch]\nallow = [\"{}\"]\n[politeness]\nhost_delay = \"0s\"\n\
             [store]\ndurability = \"{durability}\"\nmin_free_disk = \"0\"\n\
             [[site]]\nname = \"a\"\nurl = \"{base}/\"\nsitemaps = [\"{base}/sitemap.xml\"]\n\
             feeds = []\nobey_robots = false\npoll = \"1h\"\n",
            origin.addr(),
        );
        let config = write_config(folder.path(), &text);
        let mut script =
            Self { folder, config, origin, deeds: Vec::new(), refusals: Vec::new(), version: 0 };
        script.publish();
        script
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// As it was in the beginning: no store, and the first version.
    pub(super) fn begin_anew(&mut self) {
        // There may be none yet.
        let _ = std::fs::remove_dir_all(self.data());
        self.deeds.clear();
        self.refusals.clear();
        self.version = 0;
        self.publish();
    }

    /// How many pages the sitemap lists now.
    pub(super) fn pages(&self) -> u32 {
        150 + self.version * 10
    }

    /// The next version of the sitemap: some pages changed, some are new.
    pub(super) fn publish(&mut self) {
        self.version += 1;
        let entries: Vec<_> = (0..self.pages())
            .map(|n| {
                // Those that come first are leased once and never again, so
                // that each deed stays to be seen.
                let day = if n >= 100 && n % 7 == 0 { self.version } else { 1 };
                (format!("/page/{n}"), format!("2026-11-{:02}", day.min(20)))
            })
            .collect();
        let entries: Vec<_> = entries.iter().map(|(p, d)| (p.as_str(), d.as_str())).collect();
        self.origin.set("/sitemap.xml", Reply::xml(sitemap(&self.origin.base(), &entries)));
    }

    /// Asks once; what is no success is written down and yields nothing.
    async fn ask(&mut self, api: &ApiClient, path: &str, body: Value) -> Option<Value> {
        match api.post::<Value>(path, &body).await {
            Ok(answer) => Some(answer),
            Err(ApiError::Refused { status, .. }) => {
                self.refusals.push(status);
                None
            }
            // It has ended, or is about to.
            Err(_) => None,
        }
    }

    fn did(&mut self, deed: Deed, disk: Option<&Disk>) {
        self.deeds.push((deed, disk.map_or(0, Disk::happened)));
    }

    /// Waits until the sitemap was polled once more since poll `before`; `None`
    /// where the daemon ends first, or cannot.
    pub(super) async fn polled(
        &mut self,
        api: &ApiClient,
        disk: Option<&Disk>,
        before: i64,
    ) -> Option<i64> {
        let deadline = Instant::now() + DEADLINE;
        let mut misses = 0;
        loop {
            let url = self.origin.url("/sitemap.xml");
            let after = before.to_string();
            let query = [("after", after.as_str()), ("limit", "100")];
            let answer: Result<Value, _> = api.get("/v1/polls", &query).await;
            let Ok(answer) = answer else {
                misses += 1;
                if misses > 3 {
                    return None;
                }
                continue;
            };
            let newest = answer["polls"].as_array().unwrap().iter();
            let newest = newest.clone().find(|poll| poll["url"] == url.as_str());
            if let Some(poll) = newest {
                let id = poll["id"].as_i64().unwrap();
                self.did(Deed::Polled { id }, disk);
                return Some(id);
            }
            if Instant::now() > deadline {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// One round of everything that a client and an operator do.
    pub(super) async fn round(&mut self, api: &ApiClient, disk: Option<&Disk>, number: u32) {
        let body = json!({ "max": 4, "ttl": "5m", "per_host": 100 });
        let answer = self.ask(api, "/v1/lease", body).await;
        let mut held = Vec::new();
        for leased in answer.iter().flat_map(|answer| answer["urls"].as_array().unwrap()) {
            let id = leased["id"].as_i64().unwrap();
            let token = leased["token"].as_str().unwrap().to_owned();
            held.push((id, token.clone()));
            self.did(Deed::Leased { id, token }, disk);
        }
        for (index, (id, token)) in held.into_iter().enumerate() {
            let (path, body) = match index {
                0 | 1 => {
                    ("/v1/settle", json!({ "results": [{ "token": token, "outcome": "changed" }] }))
                }
                2 => ("/v1/extend", json!({ "tokens": [token], "ttl": "1h" })),
                _ => ("/v1/release", json!({ "tokens": [token], "after": "1h" })),
            };
            let Some(answer) = self.ask(api, path, body).await else { continue };
            assert_eq!(answer["results"][0]["result"], "ok", "{answer}");
            let deed = match index {
                0 | 1 => Deed::Settled { id, token },
                2 => Deed::Extended { id, token },
                _ => Deed::Released { id, token },
            };
            self.did(deed, disk);
        }
        let prefix = format!("{}/never/{number}/", self.origin.base());
        if self.ask(api, "/v1/queue/block", json!({ "prefix": prefix })).await.is_some() {
            self.did(Deed::Blocked { prefix }, disk);
        }
        let url = self.origin.url(&format!("/submitted-{number}.xml"));
        if self.ask(api, "/v1/sources", json!({ "site": "a", "url": url })).await.is_some() {
            self.did(Deed::Submitted { url: url.into() }, disk);
        }
    }

    /// Asks for a poll of the sitemap now.
    pub(super) async fn poll(&mut self, api: &ApiClient) {
        let Ok(answer) = api.get::<Value>("/v1/sources", &[("site", "a")]).await else { return };
        let url = self.origin.url("/sitemap.xml");
        let sources = answer["sources"].as_array().unwrap();
        let source = sources.iter().find(|source| source["url"] == url.as_str()).unwrap();
        let path = format!("/v1/sources/{}/poll", source["id"]);
        let _ = self.ask(api, &path, json!({})).await;
    }
}

/// A database of a folder, opened as the next start would.
pub(super) fn open(folder: &Path) -> Connection {
    Connection::open(folder.join("sitemapd.db")).unwrap()
}
