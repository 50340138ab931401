//! The trail of redirects of one request: where it is, where it has been.
//!
//! Pure. A trail ends: it counts its hops and never visits a URL twice. It
//! knows what may be sent where: validators belong to the first URL only, a
//! site's own headers to the first authority only.

use reqwest::header::HeaderValue;
use url::Url;

use super::{FetchError, outside};

/// Bytes of a `Location` header that are read at all.
const MAX_LOCATION: usize = 8 * 1024;

/// Hops of one request.
pub(super) struct Trail {
    current: Url,
    followed: Vec<(Url, u16)>,
    max: u32,
    home: url::Origin,
    at_home: bool,
}

impl Trail {
    /// Starts at this URL; a fragment is never sent and so is none of it.
    pub(super) fn new(mut start: Url, max: u32) -> Self {
        start.set_fragment(None);
        let home = start.origin();
        Self { current: start, followed: Vec::new(), max, home, at_home: true }
    }

    /// The URL to ask now.
    pub(super) fn current(&self) -> &Url {
        &self.current
    }

    /// From where, with which status.
    pub(super) fn followed(&self) -> &[(Url, u16)] {
        &self.followed
    }

    /// Is this the URL that was asked for?
    pub(super) fn is_first(&self) -> bool {
        self.followed.is_empty()
    }

    /// Has every hop so far stayed at the first authority? Once left, a
    /// redirect back does not make us say what was meant for it: another
    /// authority would have chosen the URL.
    pub(super) fn is_at_home(&self) -> bool {
        self.at_home
    }

    /// Goes on to where the answer points.
    pub(super) fn follow(&mut self, status: u16, location: &HeaderValue) -> Result<(), FetchError> {
        let next = target(&self.current, location)?;
        if self.followed.len() >= usize::try_from(self.max).unwrap_or(usize::MAX) {
            return Err(FetchError::Redirects(format!(
                "more than {} (max_redirects), the last one to {}",
                self.max,
                outside::url(&next)
            )));
        }
        if next == self.current || self.followed.iter().any(|(seen, _)| *seen == next) {
            let shown = outside::url(&next);
            return Err(FetchError::Redirects(format!("a loop that comes back to {shown}")));
        }
        self.at_home = self.at_home && next.origin() == self.home;
        let left = std::mem::replace(&mut self.current, next);
        self.followed.push((left, status));
        Ok(())
    }
}

/// The error for a redirect that points nowhere.
pub(super) fn without_location(status: u16) -> FetchError {
    FetchError::Protocol(format!("status {status} without a Location"))
}

/// `Location` resolved against the URL it came from. Its bytes are read as
/// UTF-8, as browsers do, since unescaped paths are common.
fn target(from: &Url, location: &HeaderValue) -> Result<Url, FetchError> {
    let raw = location.as_bytes();
    if raw.len() > MAX_LOCATION {
        let len = raw.len();
        return Err(FetchError::Protocol(format!(
            "a Location of {len} bytes (at most {MAX_LOCATION} are read)"
        )));
    }
    let text = String::from_utf8_lossy(raw);
    let mut next = from.join(text.trim()).map_err(|error| {
        // The text may hold a password, so it is not repeated.
        FetchError::Protocol(format!("a Location that is no URL: {error}"))
    })?;
    next.set_fragment(None);
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trail(start: &str, max: u32) -> Trail {
        Trail::new(Url::parse(start).unwrap(), max)
    }

    fn follow(trail: &mut Trail, location: &str) -> Result<(), FetchError> {
        trail.follow(302, &HeaderValue::from_bytes(location.as_bytes()).unwrap())
    }

    #[test]
    fn a_location_is_resolved_against_the_hop_it_came_from() {
        for (location, want) in [
            ("/b", "http://a.example/b"),
            ("b", "http://a.example/x/b"),
            ("../b", "http://a.example/b"),
            ("?q", "http://a.example/x/y?q"),
            ("//b.example/c", "http://b.example/c"),
            ("https://b.example", "https://b.example/"),
            ("/b#fragment", "http://a.example/b"),
            (" /b ", "http://a.example/b"),
            ("/é", "http://a.example/%C3%A9"),
            ("\\\\b.example\\c", "http://b.example/c"),
        ] {
            let mut trail = trail("http://a.example/x/y", 1);
            follow(&mut trail, location).unwrap();
            assert_eq!(trail.current().as_str(), want, "{location}");
        }
    }

    #[test]
    fn a_trail_ends_at_its_limit_and_at_the_first_url_seen_again() {
        let mut short = trail("http://a.example/0", 2);
        follow(&mut short, "/1").unwrap();
        follow(&mut short, "/2").unwrap();
        let error = follow(&mut short, "/3").unwrap_err().to_string();
        assert!(error.contains("max_redirects"), "{error}");

        for location in ["/0", "/0#again", "", "http://a.example/0"] {
            let mut looping = trail("http://a.example/0#x", 9);
            let error = follow(&mut looping, location).unwrap_err();
            assert!(matches!(error, FetchError::Redirects(_)), "{location}: {error}");
        }
        let mut circle = trail("http://a.example/0", 9);
        follow(&mut circle, "http://b.example/0").unwrap();
        assert!(follow(&mut circle, "http://a.example/0").is_err());
    }

    #[test]
    fn no_error_of_a_trail_repeats_a_secret_of_its_urls() {
        let looping = follow(&mut trail("http://a.example/0?token=S3CRET", 9), "?token=S3CRET");
        let over = follow(&mut trail("http://a.example/0", 0), "/1?api_key=S3CRET");
        for error in [looping.unwrap_err(), over.unwrap_err()] {
            let shown = error.to_string();
            assert!(shown.contains("=***") && !shown.contains("S3CRET"), "{shown}");
        }
    }

    #[test]
    fn what_is_meant_for_the_first_authority_is_never_said_after_leaving_it() {
        let mut trail = trail("https://a.example/0", 9);
        assert!(trail.is_first() && trail.is_at_home());
        follow(&mut trail, "/1").unwrap();
        assert!(!trail.is_first() && trail.is_at_home());
        follow(&mut trail, "http://a.example/1").unwrap();
        assert!(!trail.is_at_home());
        follow(&mut trail, "https://a.example/2").unwrap();
        assert!(!trail.is_at_home());
    }

    #[test]
    fn a_location_that_is_no_url_is_a_protocol_error_without_its_text() {
        let long = format!("/{}", "x".repeat(MAX_LOCATION));
        for location in ["http://", "http://[::1", "http://u:hunter2@a b/", long.as_str()] {
            let error = follow(&mut trail("http://a.example/", 9), location).unwrap_err();
            let shown = error.to_string();
            assert!(matches!(error, FetchError::Protocol(_)), "{shown}");
            assert!(!shown.contains("hunter2") && shown.len() < 500, "{shown}");
        }
    }
}
