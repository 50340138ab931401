//! The web itself: a process that serves every site on its own address, counts
//! what it is asked for, and changes when it is told to.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_compression::Level;
use async_compression::tokio::bufread::GzipEncoder;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::hostile;
use crate::site::{Shape, address};

/// What the web counts.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    not_modified: AtomicU64,
    bytes: AtomicU64,
}

struct Web {
    shape: Shape,
    port: u16,
    version: AtomicU64,
    counts: Counts,
}

/// Serves until it is killed; prints the port that all addresses share.
pub(crate) async fn serve(shape: Shape, hostile_sites: u32) -> anyhow::Result<()> {
    // Its own address is for the meter: it counts nothing there.
    let control = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = control.local_addr()?.port();
    let counts = Counts::default();
    let web = Arc::new(Web { shape, port, version: AtomicU64::new(0), counts });
    for number in 0..shape.sites {
        let listener = TcpListener::bind((address(number), port)).await?;
        let app = Router::new().fallback(get(page)).with_state((Arc::clone(&web), number));
        tokio::spawn(async move { axum::serve(listener, app).await });
    }
    hostile::serve(hostile_sites, port).await?;
    println!("{port}");
    std::thread::spawn(|| {
        // Whoever started the web has gone: nobody polls it any more.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let app = Router::new()
        .route("/version/{version}", post(set_version))
        .route("/counts", get(counts_so_far))
        .with_state(web);
    Ok(axum::serve(control, app).await?)
}

async fn set_version(State(web): State<Arc<Web>>, Path(version): Path<u64>) {
    web.version.store(version, Ordering::Relaxed);
}

async fn counts_so_far(State(web): State<Arc<Web>>) -> String {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let Counts { requests, not_modified, bytes } = &web.counts;
    format!("{} {} {}", count(requests), count(not_modified), count(bytes))
}

async fn page(
    State((web, number)): State<(Arc<Web>, u32)>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    web.counts.requests.fetch_add(1, Ordering::Relaxed);
    let site = web.shape.site(number, web.version.load(Ordering::Relaxed), web.port);
    let Some(file) = site.file(uri.path()) else { return StatusCode::NOT_FOUND.into_response() };
    let etag = format!("\"{}\"", file.changed);
    let has_validators = site.has_validators();
    if has_validators && headers.get(header::IF_NONE_MATCH).is_some_and(|sent| *sent == *etag) {
        web.counts.not_modified.fetch_add(1, Ordering::Relaxed);
        return StatusCode::NOT_MODIFIED.into_response();
    }
    let body = if file.gzip { gzip(file.body.as_bytes()).await } else { file.body.into_bytes() };
    web.counts.bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
    let kind = if file.gzip { "application/gzip" } else { file.content_type };
    let mut answer = ([(header::CONTENT_TYPE, kind)], body).into_response();
    if let (true, Ok(etag)) = (has_validators, etag.parse()) {
        answer.headers_mut().insert(header::ETAG, etag);
    }
    answer
}

async fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    // Reading from memory into memory does not fail.
    let _ = GzipEncoder::with_quality(bytes, Level::Fastest).read_to_end(&mut packed).await;
    packed
}
