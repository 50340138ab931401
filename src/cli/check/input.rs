//! Gets the document: from a file, from stdin, or from its origin.
//!
//! All three are bounded by the `max_wire_bytes` of the site that the document
//! belongs to. An address that the guard would refuse is asked only when it is
//! exactly what the user typed, and then that host and port only: a redirect or
//! a listed URL gets nowhere.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;

use anyhow::{Context as _, anyhow};
use url::{Host, Url};

use super::Args;
use super::scope::{headers_for, site_at};
use crate::cli::{Failure, humane};
use crate::config::{AllowedAddress, Config, FetchLimits};
use crate::fetch::spool::Spool;
use crate::fetch::{Answer, Fetched, Fetcher, Gate, Refusal, Request, Validators, WireBody};
use crate::parse::NO_BASE;

/// Bytes read at once from what is no regular file.
const PIECE: usize = 64 * 1024;

/// A document as it came, not decoded.
#[derive(Debug)]
pub struct Document {
    /// What to call it: a file name, a URL, `stdin`.
    pub name: String,
    /// What relative URLs resolve against.
    pub base: Url,
    /// What was asked for, where that redirects to another URL.
    pub moved_from: Option<Url>,
    /// `Content-Type`, if known.
    pub content_type: Option<String>,
    /// `Content-Encoding`, in the order applied.
    pub content_encoding: Vec<String>,
    /// The bytes as sent.
    pub body: WireBody,
    /// Were there more bytes than the limit?
    pub cut: bool,
    /// `Link` headers, verbatim.
    pub links: Vec<String>,
}

impl Document {
    /// A document that an origin answered with.
    pub fn fetched(fetched: Fetched) -> Self {
        Self {
            name: fetched.head.final_url.to_string(),
            base: fetched.head.final_url,
            moved_from: fetched.head.redirects.into_iter().next().map(|(from, _)| from),
            content_type: fetched.head.content_type,
            content_encoding: fetched.content_encoding,
            body: fetched.body,
            cut: fetched.cut,
            links: fetched.head.links,
        }
    }

    /// Is it known which URL the document has?
    pub fn has_url(&self) -> bool {
        self.base.as_str() != NO_BASE
    }

    /// Was this URL resolved against a base that we made up?
    pub fn is_made_up(&self, url: &Url) -> bool {
        !self.has_url() && url.host_str() == self.base.host_str()
    }
}

/// Gets the document that the arguments mean.
pub(super) async fn open(args: &Args, config: &Config) -> Result<Document, Failure> {
    let base = args.url.as_deref().map(parse_base).transpose()?;
    if let Some(url) = as_url(&args.input) {
        let mut document = fetch(&url, config).await?;
        if let Some(base) = base {
            document.base = base;
        }
        if args.content_type.is_some() {
            document.content_type.clone_from(&args.content_type);
        }
        return Ok(document);
    }
    if args.input.contains("://") && !std::path::Path::new(&args.input).exists() {
        return Err(Failure::Usage(format!(
            "{}: neither a file nor an http or https URL",
            humane::safe(&args.input)
        )));
    }
    let site = base.as_ref().and_then(|url| site_at(url, config));
    let limits = site.map_or(&config.fetch.limits, |site| &site.limits);
    let (name, (body, cut)) = if args.input == "-" {
        ("stdin".to_owned(), bounded(std::io::stdin().lock(), limits).context("stdin")?)
    } else {
        let body = std::fs::File::open(&args.input).and_then(|file| of_file(file, limits));
        (args.input.clone(), body.with_context(|| args.input.clone())?)
    };
    let base = match base {
        Some(base) => base,
        None => parse_base(NO_BASE)?,
    };
    Ok(Document {
        name,
        base,
        moved_from: None,
        content_type: args.content_type.clone(),
        content_encoding: Vec::new(),
        body,
        cut,
        links: Vec::new(),
    })
}

/// A URL to fetch, if it is meant as one; anything else is a file name.
pub(super) fn as_url(input: &str) -> Option<Url> {
    let url = Url::parse(input).ok()?;
    matches!(url.scheme(), "http" | "https").then_some(url)
}

fn parse_base(text: &str) -> Result<Url, Failure> {
    as_url(text).ok_or_else(|| {
        Failure::Usage(format!(
            "--url {text}: not an absolute http or https URL, such as https://example.org/sitemap.xml"
        ))
    })
}

/// A file up to the limit, and whether there is more. A regular one is read
/// where it lies; a pipe or a device has no place to come back to.
fn of_file(file: File, limits: &FetchLimits) -> std::io::Result<(WireBody, bool)> {
    let about = file.metadata()?;
    if !about.is_file() {
        return bounded(file, limits);
    }
    let max = limits.max_wire_bytes;
    Ok((WireBody::of_file(file, about.len().min(max)), about.len() > max))
}

/// Reads up to the limit; says whether there was more.
fn bounded(mut reader: impl Read, limits: &FetchLimits) -> std::io::Result<(WireBody, bool)> {
    let folder = std::env::temp_dir();
    let (mut spool, mut piece) = (Spool::new(&folder), vec![0; PIECE]);
    let mut left = limits.max_wire_bytes;
    loop {
        let read = match reader.read(&mut piece) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        let taken = read.min(usize::try_from(left).unwrap_or(usize::MAX));
        spool.write(piece.get(..taken).unwrap_or_default())?;
        left -= taken as u64;
        if taken < read || read == 0 {
            return Ok((spool.finish(), taken < read));
        }
    }
}

async fn fetch(url: &Url, config: &Config) -> Result<Document, Failure> {
    let door = fetcher_for(url, config)?;
    let mut request = fetch_request(url.clone(), config);
    if let Some(site) = site_at(url, config) {
        request.headers = headers_for(site, url);
        request.max_wire_bytes = site.limits.max_wire_bytes;
    }
    match door.fetch(request, &OneHost).await {
        Ok(Answer::Document(fetched)) => Ok(Document::fetched(fetched)),
        Ok(Answer::Same(head) | Answer::NotModified(head) | Answer::Refused(head)) => {
            Err(Failure::Runtime(anyhow!(
                "{}: HTTP error {}: there is nothing to read",
                head.final_url,
                head.status
            )))
        }
        Err(error) => Err(anyhow!(error).context(url.to_string()).into()),
    }
}

/// An unconditional request for a document.
pub fn fetch_request(url: Url, config: &Config) -> Request {
    Request {
        url,
        validators: Validators::default(),
        headers: Vec::new(),
        known: None,
        max_wire_bytes: config.fetch.limits.max_wire_bytes,
        max_redirects: config.fetch.max_redirects,
    }
}

/// A fetcher as configured, that may also ask the host and port that the user
/// typed where that is an address of this machine.
pub fn fetcher_for(typed: &Url, config: &Config) -> Result<Fetcher, Failure> {
    let mut fetch = config.fetch.clone();
    for ip in loopback_of(typed) {
        fetch.allow.push(AllowedAddress { net: ip.into(), port: typed.port_or_known_default() });
    }
    Fetcher::new(&fetch, &config.daemon, config.politeness.per_address)
        .map_err(|error| anyhow!(error).into())
}

/// The loopback addresses that a typed URL names in so many words.
fn loopback_of(url: &Url) -> Vec<IpAddr> {
    let named: Vec<IpAddr> = match url.host() {
        Some(Host::Ipv4(ip)) => vec![ip.into()],
        Some(Host::Ipv6(ip)) => vec![ip.into()],
        Some(Host::Domain("localhost")) => {
            vec![std::net::Ipv4Addr::LOCALHOST.into(), std::net::Ipv6Addr::LOCALHOST.into()]
        }
        _ => Vec::new(),
    };
    named.into_iter().filter(IpAddr::is_loopback).collect()
}

/// A gate that lets one request by one person through: there is no queue of
/// polls to be fair to, and what is checked may be what robots.txt forbids.
#[derive(Debug)]
struct OneHost;

impl Gate for OneHost {
    async fn admit(&self, _url: &Url) -> Result<(), Refusal> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    #[test]
    fn only_a_loopback_address_that_was_typed_is_excepted_from_the_guard() {
        assert_eq!(loopback_of(&url("http://127.0.0.1:8081/")).len(), 1);
        assert_eq!(loopback_of(&url("http://[::1]/")).len(), 1);
        assert_eq!(loopback_of(&url("http://localhost:1/")).len(), 2);
        for other in ["http://10.0.0.1/", "http://example.org/", "http://169.254.169.254/"] {
            assert_eq!(loopback_of(&url(other)), Vec::<IpAddr>::new(), "{other}");
        }
    }

    #[test]
    fn a_file_name_is_no_url() {
        for name in ["sitemap.xml", "./http", "-", "C:\\a.xml", "mailto:a@example.org"] {
            assert_eq!(as_url(name), None, "{name}");
        }
        assert!(as_url("HTTPS://Example.org/x").is_some());
    }
}
