//! The web: a process that serves the files, in the version and the manner that
//! it is told to.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_compression::Level;
use async_compression::tokio::write::GzipEncoder;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::input::{Shape, front_pages, name};

/// Front pages listed in one file.
const FRONT_PAGES: usize = 50_000;

/// How a file is served that has not changed.
pub(crate) mod manner {
    /// The indexes list nothing yet; only the front pages of further hosts.
    pub(crate) const HOSTS: u64 = 0;
    /// As it is, with a remark behind it that is another each time, so that no
    /// hash is equal and every body has to be read.
    pub(crate) const REMARK: u64 = 1;
    /// Byte for byte, without validators.
    pub(crate) const EQUAL: u64 = 2;
    /// With an entity tag, so that it need not be sent.
    pub(crate) const TAG: u64 = 3;
}

struct Web {
    folder: PathBuf,
    shape: Shape,
    port: u16,
    version: AtomicU64,
    manner: AtomicU64,
    requests: AtomicU64,
}

/// Serves until its input ends; prints a line when it does.
pub(crate) async fn serve(folder: PathBuf, shape: Shape, port: u16) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let web = Arc::new(Web {
        folder,
        shape,
        port,
        version: AtomicU64::new(1),
        manner: AtomicU64::new(manner::HOSTS),
        requests: AtomicU64::new(0),
    });
    crate::say(&format!("{port}"));
    std::thread::spawn(|| {
        // Whoever started the web has gone: nobody polls it any more.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let app = Router::new()
        .route("/set/{version}/{manner}", post(set))
        .fallback(get(page))
        .with_state(web);
    Ok(axum::serve(listener, app).await?)
}

async fn set(State(web): State<Arc<Web>>, Path((version, manner)): Path<(u64, u64)>) {
    web.version.store(version, Ordering::Relaxed);
    web.manner.store(manner, Ordering::Relaxed);
}

async fn page(State(web): State<Arc<Web>>, uri: Uri, headers: HeaderMap) -> Response {
    match uri.path() {
        "/robots.txt" => "User-agent: *\nAllow: /\n".into_response(),
        "/" => ([(header::CONTENT_TYPE, "text/html")], "<!doctype html>").into_response(),
        path => web.document(path, &headers).await,
    }
}

impl Web {
    async fn document(&self, path: &str, headers: &HeaderMap) -> Response {
        if let Some(part) = number_in(path, "/front-", ".xml") {
            let all = self.shape.further_hosts();
            let skip = usize::try_from(part).unwrap_or(0) * FRONT_PAGES;
            return xml(front_pages(all.skip(skip).take(FRONT_PAGES), self.port));
        }
        if let Some(site) = number_in(path, "/index-", ".xml") {
            return xml(self.index(site));
        }
        let Some(file) = number_in(path, "/map-", ".xml.gz") else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let version = self.version.load(Ordering::Relaxed);
        let manner = self.manner.load(Ordering::Relaxed);
        let tag = format!("\"{version}\"");
        let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|sent| *sent == *tag);
        if manner == manner::TAG && is_known {
            return StatusCode::NOT_MODIFIED.into_response();
        }
        let path = self.folder.join(format!("{version}-{file}.xml.gz"));
        let Ok(mut body) = tokio::fs::read(path).await else {
            return StatusCode::NOT_FOUND.into_response();
        };
        if manner == manner::REMARK {
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            body.extend(packed(format!("<!-- answer {number} -->\n").as_bytes()).await);
        }
        let mut answer = ([(header::CONTENT_TYPE, "application/gzip")], body).into_response();
        if let (manner::TAG, Ok(tag)) = (manner, tag.parse()) {
            answer.headers_mut().insert(header::ETAG, tag);
        }
        answer
    }

    fn index(&self, site: u64) -> String {
        let mut text = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <sitemapindex xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n",
        );
        let host = format!("http://{}:{}", name(site), self.port);
        let child = |place: String| format!("<sitemap><loc>{host}{place}</loc></sitemap>\n");
        if self.manner.load(Ordering::Relaxed) != manner::HOSTS {
            text.extend(self.shape.files_of(site).map(|n| child(format!("/map-{n}.xml.gz"))));
        } else if site == 0 {
            let files = self.shape.further_hosts().count().div_ceil(FRONT_PAGES);
            text.extend((0..files).map(|n| child(format!("/front-{n}.xml"))));
        }
        text.push_str("</sitemapindex>\n");
        text
    }
}

fn number_in(path: &str, before: &str, after: &str) -> Option<u64> {
    path.strip_prefix(before)?.strip_suffix(after)?.parse().ok()
}

fn xml(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/xml")], text).into_response()
}

/// A gzip member of its own: members behind one another are one file.
async fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzipEncoder::with_quality(Vec::new(), Level::Fastest);
    // Writing into memory does not fail.
    let _ = packed.write_all(bytes).await;
    let _ = packed.shutdown().await;
    packed.into_inner()
}
