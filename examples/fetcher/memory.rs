//! What pages said of themselves, for conditional requests; outlives a restart.
//!
//! Written whole when the fetcher ends; losing it costs a full request a page.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use reqwest::header::{ETAG, HeaderMap, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use serde::{Deserialize, Serialize};

use super::api::Lease;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Page {
    hash: String,
    etag: Option<String>,
    modified: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Memory {
    path: PathBuf,
    pages: Mutex<HashMap<String, Page>>,
}

impl Memory {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let pages = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => HashMap::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { path: path.to_owned(), pages: Mutex::new(pages) })
    }

    /// Headers that ask for the page only if it changed since the daemon heard of it.
    pub(crate) fn conditions(&self, lease: &Lease) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(page) = pages.get(&lease.url) else { return headers };
        if lease.content_hash.as_ref() != Some(&page.hash) {
            return headers;
        }
        for (name, said) in [(IF_NONE_MATCH, &page.etag), (IF_MODIFIED_SINCE, &page.modified)] {
            if let Some(value) = said.as_deref().and_then(|text| text.try_into().ok()) {
                headers.insert(name, value);
            }
        }
        headers
    }

    pub(crate) fn learn(&self, url: &str, hash: &str, headers: &HeaderMap) {
        let said = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let page = Page { hash: hash.to_owned(), etag: said(ETAG), modified: said(LAST_MODIFIED) };
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).insert(url.to_owned(), page);
    }

    /// Writes it all, whole or not at all.
    pub(crate) fn save(&self) -> anyhow::Result<()> {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let part = self.path.with_extension("part");
        std::fs::write(&part, serde_json::to_vec(&*pages)?)?;
        Ok(std::fs::rename(part, &self.path)?)
    }
}
