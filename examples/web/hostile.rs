//! Sites that misbehave: each in a way of its own, over raw sockets.
//!
//! Every second one serves a sound robots.txt and home page, so that its
//! misbehaviour meets the reading of sitemaps; the others misbehave at once.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use async_compression::Level;
use async_compression::tokio::bufread::GzipEncoder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Time between two bytes of who drips.
const DRIP: Duration = Duration::from_secs(1);
/// Who hangs does so for longer than anybody waits.
const FOR_EVER: Duration = Duration::from_secs(3_600);
/// Bytes of zeros that are packed into a bomb.
const BOMB: u64 = 512 << 20;

/// Ways to misbehave.
#[derive(Debug, Clone, Copy)]
enum Manner {
    Hang,
    CloseAtOnce,
    Garbage,
    DripHeader,
    DripBody,
    EndlessHeader,
    HugeHeader,
    EndlessBody,
    ResetInBody,
    ShorterThanSaid,
    ChunkOfAllBytes,
    ExtraAnswer,
    Bomb,
    UnknownCoding,
    RedirectLoop,
    RedirectForEver,
    RedirectInwards,
    Broken,
    Overloaded,
    TooMany,
    Html,
    Empty,
    Truncated,
    DeepNesting,
    EntityBomb,
    IndexOfItself,
    IndexForEver,
    RandomBytes,
}

const MANNERS: [Manner; 28] = [
    Manner::Hang,
    Manner::CloseAtOnce,
    Manner::Garbage,
    Manner::DripHeader,
    Manner::DripBody,
    Manner::EndlessHeader,
    Manner::HugeHeader,
    Manner::EndlessBody,
    Manner::ResetInBody,
    Manner::ShorterThanSaid,
    Manner::ChunkOfAllBytes,
    Manner::ExtraAnswer,
    Manner::Bomb,
    Manner::UnknownCoding,
    Manner::RedirectLoop,
    Manner::RedirectForEver,
    Manner::RedirectInwards,
    Manner::Broken,
    Manner::Overloaded,
    Manner::TooMany,
    Manner::Html,
    Manner::Empty,
    Manner::Truncated,
    Manner::DeepNesting,
    Manner::EntityBomb,
    Manner::IndexOfItself,
    Manner::IndexForEver,
    Manner::RandomBytes,
];

/// The loopback address of a hostile site.
pub(crate) fn address(site: u32) -> Ipv4Addr {
    let [_, _, high, low] = (site + 1).to_be_bytes();
    Ipv4Addr::new(127, 2, high, low)
}

/// Serves so many hostile sites until the process ends.
pub(crate) async fn serve(sites: u32, port: u16) -> anyhow::Result<()> {
    let bomb = Arc::new(bomb().await);
    for (number, manner) in (0..sites).zip(MANNERS.iter().cycle()) {
        let listener = TcpListener::bind((address(number), port)).await?;
        let bomb = Arc::clone(&bomb);
        // Once around the manners sound at first, once not.
        let polite = (number as usize / MANNERS.len()).is_multiple_of(2);
        let base = format!("http://{}:{port}", address(number));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (bomb, base) = (Arc::clone(&bomb), base.clone());
                tokio::spawn(answer(stream, *manner, polite, base, bomb));
            }
        });
    }
    Ok(())
}

async fn bomb() -> Vec<u8> {
    let mut packed = Vec::new();
    let zeros = tokio::io::BufReader::new(tokio::io::repeat(b' ').take(BOMB));
    // Reading from memory into memory does not fail.
    let _ = GzipEncoder::with_quality(zeros, Level::Fastest).read_to_end(&mut packed).await;
    packed
}

async fn answer(
    mut stream: TcpStream,
    manner: Manner,
    polite: bool,
    base: String,
    bomb: Arc<Vec<u8>>,
) -> std::io::Result<()> {
    if matches!(manner, Manner::CloseAtOnce) && !polite {
        return Ok(());
    }
    let Some(path) = request(&mut stream).await? else { return Ok(()) };
    if polite && path == "/robots.txt" {
        let body = format!("User-agent: *\nAllow: /\nSitemap: {base}/sitemap.xml\n");
        return whole(&mut stream, "200 OK", None, body.as_bytes()).await;
    }
    if polite && path == "/" {
        return whole(&mut stream, "200 OK", None, b"<!doctype html>").await;
    }
    misbehave(stream, manner, &path, &base, &bomb).await
}

/// Reads one request; its path.
async fn request(stream: &mut TcpStream) -> std::io::Result<Option<String>> {
    let mut read = Vec::new();
    let mut part = [0; 4_096];
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part).await? {
            0 => return Ok(None),
            n => read.extend_from_slice(&part[..n]),
        }
    }
    let text = String::from_utf8_lossy(&read).into_owned();
    Ok(text.split(' ').nth(1).map(str::to_owned))
}

async fn whole(
    stream: &mut TcpStream,
    status: &str,
    header: Option<String>,
    body: &[u8],
) -> std::io::Result<()> {
    let header = header.map(|header| header + "\r\n").unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status}\r\n{header}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await
}

async fn misbehave(
    mut stream: TcpStream,
    manner: Manner,
    path: &str,
    base: &str,
    bomb: &[u8],
) -> std::io::Result<()> {
    const XML: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n";
    const URLSET: &str = "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">";
    let stream = &mut stream;
    let redirect = |to: String| Some(format!("Location: {to}"));
    match manner {
        Manner::Hang => tokio::time::sleep(FOR_EVER).await,
        Manner::CloseAtOnce => {}
        Manner::Garbage => stream.write_all(&[0x16, 3, 1, 0, 0xff, 7, 9, 0].repeat(64)).await?,
        Manner::DripHeader => {
            for byte in XML.bytes().cycle() {
                stream.write_all(&[byte]).await?;
                tokio::time::sleep(DRIP).await;
            }
        }
        Manner::DripBody => {
            stream.write_all(format!("{XML}\r\n{URLSET}").as_bytes()).await?;
            loop {
                stream.write_all(b"<url><loc>").await?;
                tokio::time::sleep(DRIP).await;
            }
        }
        Manner::EndlessHeader => {
            stream.write_all(XML.as_bytes()).await?;
            loop {
                stream.write_all(&b"X-More: and more of it\r\n".repeat(512)).await?;
            }
        }
        Manner::HugeHeader => {
            let header = format!("X-Huge: {}", "x".repeat(2 << 20));
            whole(stream, "200 OK", Some(header), b"").await?;
        }
        Manner::EndlessBody => {
            stream.write_all(format!("{XML}\r\n{URLSET}").as_bytes()).await?;
            let entry = format!("<url><loc>{base}/a</loc></url>").repeat(512);
            loop {
                stream.write_all(entry.as_bytes()).await?;
            }
        }
        Manner::ResetInBody => {
            stream
                .write_all(format!("{XML}Content-Length: 100000\r\n\r\n{URLSET}").as_bytes())
                .await?;
            stream.set_zero_linger()?;
        }
        Manner::ShorterThanSaid => {
            let entry = format!("{URLSET}<url><loc>{base}/a</loc></url>");
            let head = format!("{XML}Content-Length: {}\r\n\r\n{entry}", entry.len() + 1_000);
            stream.write_all(head.as_bytes()).await?;
        }
        Manner::ChunkOfAllBytes => {
            let head =
                format!("{XML}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{URLSET}");
            stream.write_all(head.as_bytes()).await?;
        }
        Manner::ExtraAnswer => {
            let body = format!("{URLSET}</urlset>");
            let answer = format!("{XML}Content-Length: {}\r\n\r\n{body}", body.len());
            let extra = format!("{XML}Content-Length: 9\r\n\r\nINJECTED!");
            stream.write_all(format!("{answer}{extra}").as_bytes()).await?;
        }
        Manner::Bomb => {
            let header = Some("Content-Encoding: gzip".to_owned());
            whole(stream, "200 OK", header, bomb).await?;
        }
        Manner::UnknownCoding => {
            let header = Some("Content-Encoding: x-unheard-of".to_owned());
            whole(stream, "200 OK", header, b"whatever").await?;
        }
        Manner::RedirectLoop => {
            whole(stream, "301 Moved", redirect(format!("{base}{path}")), b"").await?;
        }
        Manner::RedirectForEver => {
            whole(stream, "302 Found", redirect(format!("{base}{path}x")), b"").await?;
        }
        Manner::RedirectInwards => {
            let to = redirect("http://169.254.169.254/latest/meta-data/".to_owned());
            whole(stream, "302 Found", to, b"").await?;
        }
        Manner::Broken => whole(stream, "500 Broken", None, b"").await?,
        Manner::Overloaded => {
            let header = Some("Retry-After: 1".to_owned());
            whole(stream, "503 Busy", header, b"").await?;
        }
        Manner::TooMany => whole(stream, "429 Slowly", None, b"").await?,
        Manner::Html => whole(stream, "200 OK", None, b"<!doctype html><h1>Not found</h1>").await?,
        Manner::Empty => whole(stream, "200 OK", None, b"").await?,
        Manner::Truncated => {
            let body = format!("{URLSET}<url><loc>{base}/a</loc></url><url><loc>{base}/b");
            whole(stream, "200 OK", None, body.as_bytes()).await?;
        }
        Manner::DeepNesting => {
            let body = format!("{URLSET}{}", "<a>".repeat(1 << 20));
            whole(stream, "200 OK", None, body.as_bytes()).await?;
        }
        Manner::EntityBomb => {
            let body = format!(
                "<!DOCTYPE u [<!ENTITY a \"lol\"><!ENTITY b \"{}\"><!ENTITY c \"{}\">]>{URLSET}<url><loc>{base}/&c;</loc></url></urlset>",
                "&a;".repeat(1_000),
                "&b;".repeat(1_000),
            );
            whole(stream, "200 OK", None, body.as_bytes()).await?;
        }
        Manner::IndexOfItself => {
            let body =
                format!("<sitemapindex><sitemap><loc>{base}{path}</loc></sitemap></sitemapindex>");
            whole(stream, "200 OK", None, body.as_bytes()).await?;
        }
        Manner::IndexForEver => {
            let child = |n| format!("<sitemap><loc>{base}{path}-{n}.xml</loc></sitemap>");
            let body = format!("<sitemapindex>{}{}{}</sitemapindex>", child(1), child(2), child(3));
            whole(stream, "200 OK", None, body.as_bytes()).await?;
        }
        Manner::RandomBytes => {
            let body: Vec<u8> =
                (0..200_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
            whole(stream, "200 OK", None, &body).await?;
        }
    }
    Ok(())
}
