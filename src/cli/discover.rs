//! `sitemapd discover`: a dry run for a new site.
//!
//! Asks the site as the daemon would (robots.txt, then the well-known places,
//! then the home page for feeds), reads what it finds, and says what would come
//! of it. Polite: one request at a time, with a delay, and robots.txt obeyed.
//! Nothing is stored.

mod explorer;
mod manners;
mod report;
mod sums;

use anyhow::anyhow;
use url::Url;

use super::output::Output;
use super::source_of_truth::load_config_to_ask;
use super::{Failure, Options};
use explorer::Explorer;

/// Which site.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Its home page; https:// may be left out
    url: String,
}

/// Explores the site and reports.
pub async fn run(args: &Args, options: &Options, out: &mut Output) -> Result<(), Failure> {
    let home = home_of(&args.url)?;
    let config = load_config_to_ask(options)?;
    let mut explorer = Explorer::new(&home, &config)?;
    let findings = explorer.explore(options, out).await?;
    if options.json {
        out.json(&report::json(&findings))?;
    } else {
        report::print(&findings, out)?;
    }
    out.flush()?;
    if findings.sources.iter().any(|source| source.error.is_none()) {
        return Ok(());
    }
    Err(anyhow!("no sitemap and no feed was found on {}", findings.home).into())
}

/// The home page that is meant: what is typed, as https where no scheme is.
fn home_of(typed: &str) -> Result<Url, Failure> {
    let with_scheme =
        if typed.contains("://") { typed.to_owned() } else { format!("https://{typed}") };
    let usable = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    let mut url = Url::parse(&with_scheme).ok().filter(usable).ok_or_else(|| {
        Failure::Usage(format!(
            "{typed}: not a site; give its home page, such as https://example.org/"
        ))
    })?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Failure::Usage(
            "a user name and a password in a URL are never sent; leave them out, and send them \
             in the headers of the [[site]]"
                .to_owned(),
        ));
    }
    url.set_fragment(None);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_may_be_typed_without_a_scheme() {
        let cases = [
            ("example.org", "https://example.org/"),
            ("http://example.org/de/#top", "http://example.org/de/"),
            ("127.0.0.1:8081", "https://127.0.0.1:8081/"),
        ];
        for (typed, home) in cases {
            assert_eq!(home_of(typed).expect("a site").as_str(), home);
        }
        for typed in ["ftp://example.org/", "", "http://", "http://me:s3cret@example.org/"] {
            let failure = home_of(typed).expect_err(typed);
            assert!(matches!(failure, Failure::Usage(_)), "{typed:?}");
            assert!(!failure.to_string().contains("s3cret"), "{failure}");
        }
    }
}
