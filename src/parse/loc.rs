//! A URL as a document writes it, made fit to be an entry.
//!
//! What comes out begins with `http:` or `https:`, has a host, is short enough,
//! and has no control character and no U+FFFD in it. It is parsed as a URL only
//! where a look at its characters does not settle that; normalisation and scope
//! are left to others.

use url::Url;

use super::issue::IssueCode;
use super::xml::Cx;

/// Stands for the URL of a document where none is known. `.invalid` never resolves
/// (RFC 6761 section 6.4), so what is relative to it is of no use.
pub const NO_BASE: &str = "http://no-base.invalid/";

/// Writes the URL in `raw` into `out` and returns whether it may be used.
/// Defects are noted; one that costs the URL leaves `out` empty.
pub(crate) fn admit(
    raw: &str,
    base: &Url,
    max_chars: usize,
    out: &mut String,
    cx: &mut Cx<'_>,
) -> bool {
    let kept = take(raw, base, max_chars, out, cx);
    if matches!(kept, Some(Kept::Resolved | Kept::Completed)) {
        cx.note(IssueCode::RelativeUrl, trim(raw));
    }
    kept.is_some()
}

/// The same for a place where a relative reference is as good (RFC 4287 section 2), if
/// there is a base that it can be resolved against.
pub(crate) fn admit_reference(
    raw: &str,
    base: &Url,
    max_chars: usize,
    out: &mut String,
    cx: &mut Cx<'_>,
) -> bool {
    let kept = take(raw, base, max_chars, out, cx);
    let is_whole = match kept {
        Some(Kept::AsWritten) | None => true,
        Some(Kept::Resolved) => base.as_str() != NO_BASE,
        Some(Kept::Completed) => false,
    };
    if !is_whole {
        cx.note(IssueCode::RelativeUrl, trim(raw));
    }
    kept.is_some()
}

/// Says how the URL was kept; nothing of one that may not be used.
fn take(
    raw: &str,
    base: &Url,
    max_chars: usize,
    out: &mut String,
    cx: &mut Cx<'_>,
) -> Option<Kept> {
    out.clear();
    let trimmed = trim(raw);
    // No early exit, so that it is vectorised: nearly every URL is graphic ASCII.
    let plain = trimmed.bytes().fold(true, |all, b| all & b.is_ascii_graphic());
    let plain = plain && !trimmed.ends_with(SECTION_END);
    if plain && trimmed.len() <= max_chars && is_web(trimmed) && plain_host(trimmed) {
        out.push_str(trimmed);
        return Some(Kept::AsWritten);
    }
    let (one, more) = if is_web(trimmed) { first(trimmed) } else { (trimmed, "") };
    if !more.is_empty() {
        cx.note(IssueCode::TrailingContent, more);
    }
    if clean(one, out) {
        cx.note(IssueCode::IllegalCharacter, trimmed);
        // What is left may be seen for two URLs, or for one and a blank, only now.
        let left = trim(out);
        let (one, more) = if is_web(left) { first(left) } else { (left, "") };
        if !more.is_empty() {
            cx.note(IssueCode::TrailingContent, more);
        }
        if one.len() < out.len() {
            *out = one.to_owned();
        }
    }
    match check(base, max_chars, out) {
        Ok(kept) => Some(kept),
        Err(code) => {
            cx.note(code, trimmed);
            out.clear();
            None
        }
    }
}

/// Bytes of a base that a document names. It is joined with every relative link in its
/// scope, and a URL longer than this is hardly one (Sitemaps protocol: 2,048).
const MAX_BASE: usize = 2_048;

/// What the base that a document names comes to: one of the web, or none.
/// `Err` where it is too long.
pub(crate) fn base(named: &str, outer: &Url) -> Result<Option<Url>, IssueCode> {
    let Ok(base) = outer.join(trim(named)) else { return Ok(None) };
    match base.as_str().len() {
        0..=MAX_BASE => Ok(is_web(base.as_str()).then_some(base)),
        _ => Err(IssueCode::UrlTooLong),
    }
}

/// The URL that `raw` stands for by the same rules, of whatever length.
pub(crate) fn resolve(raw: &str, base: &Url) -> Option<Url> {
    let mut url = String::new();
    clean(trim(raw), &mut url);
    check(base, usize::MAX, &mut url).ok()?;
    Url::parse(&url).ok()
}

/// The first of several URLs in a place for one, and what is behind it. Blanks may be
/// in a URL, but the next absolute one is no part of it.
pub(crate) fn first(text: &str) -> (&str, &str) {
    // One of many URLs is not looked through for each.
    let Some(odd) = text.bytes().position(|b| !b.is_ascii_graphic()) else { return (text, "") };
    let mut blank = false;
    for (at, c) in text.get(odd..).unwrap_or_default().char_indices() {
        let at = odd + at;
        let begins = blank && !c.is_whitespace();
        blank = c.is_whitespace();
        let (one, more) = text.split_at(at);
        if begins && is_web(more) && more.get(..8).is_some_and(|start| start.contains("://")) {
            return (one.trim_end().trim_end_matches([',', ';']), more);
        }
    }
    (text, "")
}

/// Does this text begin like a URL of the web?
pub(crate) fn is_web(text: &str) -> bool {
    ["http:", "https:"].iter().any(|scheme| {
        text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    })
}

/// Takes off blanks of every kind, control characters and invisible marks.
#[inline]
pub(crate) fn trim(raw: &str) -> &str {
    let plain = |b: &u8| b.is_ascii_graphic();
    if raw.as_bytes().first().is_some_and(plain) && raw.as_bytes().last().is_some_and(plain) {
        return raw;
    }
    raw.trim_matches(shows_nothing)
}

/// Bytes that [`trim`] takes off the start.
pub(crate) fn lead(raw: &str) -> usize {
    raw.len() - raw.trim_start_matches(shows_nothing).len()
}

/// Blanks, controls, and marks without a width: of joins, of directions (dialogs and
/// editors put them around what is copied), soft hyphens and byte order marks.
fn shows_nothing(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
        )
}

/// How a URL was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    AsWritten,
    /// It was relative.
    Resolved,
    /// It lacked its scheme, and would be a path by the rules.
    Completed,
}

fn check(base: &Url, max_chars: usize, url: &mut String) -> Result<Kept, IssueCode> {
    if url.is_empty() {
        return Err(IssueCode::MissingTag);
    }
    // What begins with a reference is no path: an entity that the document declares,
    // and that nobody expands, stands for it.
    if url.contains(char::REPLACEMENT_CHARACTER) || url.starts_with('&') {
        return Err(IssueCode::InvalidUrl);
    }
    too_long(url, max_chars)?;
    let no_host = after_no_host(url, base).map(str::to_owned);
    if is_web(url) && no_host.is_none() {
        // `http://https://…` would be a page of the host `https`.
        let is_host = |host: &str| !matches!(host, "http" | "https");
        let good =
            plain_host(url) || Url::parse(url).is_ok_and(|u| u.host_str().is_some_and(is_host));
        return if good { Ok(Kept::AsWritten) } else { Err(IssueCode::InvalidUrl) };
    }
    if is_no_path(url) && no_host.is_none() {
        return Err(IssueCode::InvalidUrl);
    }
    let (resolved, kept) = if let Some(path) = no_host {
        (base.join(&path), Kept::Completed)
    } else if lacks_scheme(url, base) {
        // Nobody has a directory of that name: the scheme was forgotten.
        (Url::parse(&format!("{}://{url}", base.scheme())), Kept::Completed)
    } else {
        (base.join(url), Kept::Resolved)
    };
    let resolved = resolved.map_err(|_| IssueCode::InvalidUrl)?;
    if !is_web(resolved.as_str()) || !resolved.has_host() {
        return Err(IssueCode::InvalidUrl);
    }
    url.clear();
    url.push_str(resolved.as_str());
    too_long(url, max_chars)?;
    Ok(kept)
}

/// The path of a URL whose host was left empty, as in `https:///page`: what filled it in
/// had none. A parser of URLs would take the path's first segment for it, which is right
/// only where that is a host.
fn after_no_host<'u>(url: &'u str, base: &Url) -> Option<&'u str> {
    if !is_web(url) {
        return None;
    }
    let path = url.split_once(':')?.1.strip_prefix("//")?;
    let first = path.strip_prefix('/')?.trim_start_matches('/');
    let path = path.get(path.len() - first.len() - 1..)?;
    let is_host = lacks_scheme(first, base) || is_web(first) || is_known_host(first);
    (!first.is_empty() && !is_host).then_some(path)
}

/// Is the first of several segments a host below a public suffix? The last one is none: as
/// `index.pl` it would be one of Poland.
fn is_known_host(path: &str) -> bool {
    let Some((first, _)) = path.split_once('/') else { return false };
    let host = first.split(':').next().unwrap_or_default().to_ascii_lowercase();
    psl::domain(host.as_bytes()).is_some_and(|domain| domain.suffix().is_known())
}

/// Is this markup, or an absolute URL with something before it or escaped? As a path
/// it would be a page that nobody has.
fn is_no_path(url: &str) -> bool {
    let first = url.split(['/', '?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    let absolute = ["http:", "https:"].iter().any(|scheme| first.ends_with(scheme));
    let escaped = ["http%3a", "https%3a"].iter().any(|scheme| first.starts_with(scheme));
    absolute || escaped || first.starts_with('<') || is_broken_scheme(&first, url)
}

/// Is the first segment of a URL what is left of a scheme, or of its colon alone? What
/// begins with `//` has none, and needs none.
fn is_broken_scheme(first: &str, url: &str) -> bool {
    let scheme = match first.trim_end_matches([':', ';', '.', ',']) {
        "" => first.starts_with([':', ';']),
        scheme => matches!(scheme, "http" | "https"),
    };
    scheme && url.get(first.len()..).is_some_and(|rest| rest.starts_with("//"))
}

/// Does a URL without a scheme begin with a host: `www.` and what follows, or
/// that of its document?
fn lacks_scheme(url: &str, base: &Url) -> bool {
    if url.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("www.")) {
        return true;
    }
    let Some(own) = base.domain().map(|own| own.strip_prefix("www.").unwrap_or(own)) else {
        return false;
    };
    let first = url.split(['/', '?', '#']).next().unwrap_or_default();
    own.contains('.') && first.eq_ignore_ascii_case(own)
}

fn too_long(url: &str, max_chars: usize) -> Result<(), IssueCode> {
    let long = url.len() > max_chars && url.chars().count() > max_chars;
    if long { Err(IssueCode::UrlTooLong) } else { Ok(()) }
}

/// Has an absolute URL a host that needs no parser to be believed?
fn plain_host(url: &str) -> bool {
    let scheme = url.bytes().position(|b| b == b':').map_or(0, |colon| colon + 1);
    let Some(rest) = url.get(scheme..).and_then(|s| s.strip_prefix("//")) else { return false };
    let mut last_label = 0;
    let mut hyphen = false;
    let mut end = rest.len();
    for (at, b) in rest.bytes().enumerate() {
        match b {
            b'/' | b'?' | b'#' => {
                end = at;
                break;
            }
            b'.' => last_label = at + 1,
            b':' if is_port(rest.get(at + 1..).unwrap_or_default()) => {
                end = at;
                break;
            }
            // What begins with `xn--` must be checked.
            b'-' if hyphen => return false,
            b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {}
            _ => return false,
        }
        hyphen = b == b'-';
    }
    // A last label that begins with a letter is no IPv4 address.
    last_label < end && rest.as_bytes().get(last_label).is_some_and(u8::is_ascii_alphabetic)
}

/// Does this begin with a port that needs no parser to be believed?
fn is_port(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (port, rest) = text.split_at_checked(digits).unwrap_or((text, ""));
    let ends = rest.bytes().next().is_none_or(|b| matches!(b, b'/' | b'?' | b'#'));
    // Four digits are always in range; no digit at all is for the parser.
    ends && (matches!(digits, 1..5) || digits == 5 && port.parse::<u16>().is_ok())
}

/// What ends a CDATA section.
const SECTION_END: &str = "]]>";

/// What a URL stands in where nothing should be around it; the first is a CDATA
/// section that was escaped.
const AROUND: [(&str, &str); 7] = [
    ("<![CDATA[", SECTION_END),
    ("<", ">"),
    ("(", ")"),
    ("[", "]"),
    ("\u{201c}", "\u{201d}"),
    ("\u{201e}", "\u{201c}"),
    ("\u{ab}", "\u{bb}"),
];

/// The absolute URL that stands in brackets or the like, or before the end of a CDATA
/// section that has no beginning.
fn unwrap(text: &str) -> &str {
    let inner = |(open, close): &(&str, &str)| {
        Some(trim(text.strip_prefix(open)?.strip_suffix(close)?)).filter(|inner| is_web(inner))
    };
    let cut = || text.strip_suffix(SECTION_END).map(trim).filter(|url| is_web(url));
    AROUND.iter().find_map(inner).or_else(cut).unwrap_or(text)
}

/// Takes off what a URL stands in, such as quotes, and joins one that was broken over
/// lines: a line end goes with the blanks around it, other control characters go
/// alone. Says whether any of these was no blank.
fn clean(text: &str, out: &mut String) -> bool {
    let text = unwrap(text);
    let quotes = ['"', '\''];
    let text = if text.starts_with(quotes) { trim(text.trim_matches(quotes)) } else { text };
    if !text.bytes().any(|b| b.is_ascii_control()) {
        out.push_str(text);
        return false;
    }
    for (i, line) in text.split(['\n', '\r']).enumerate() {
        let line = if i == 0 { line.trim_end() } else { line.trim() };
        out.extend(line.chars().filter(|c| !c.is_ascii_control()));
    }
    text.bytes().any(|b| b.is_ascii_control() && !matches!(b, b'\t' | b'\n' | b'\r'))
}

#[cfg(test)]
mod tests {
    use super::super::issue::{Issues, Place};
    use super::*;

    fn run(raw: &str) -> (String, Vec<IssueCode>) {
        let base = Url::parse("https://example.com/dir/sitemap.xml").expect("a url");
        let mut issues = Issues::default();
        let place = Place { text: "", at: 0, base_offset: 0, base_lines: 0, newline: b'\n' };
        let mut out = String::new();
        admit(raw, &base, 100, &mut out, &mut Cx { issues: &mut issues, place });
        (out, issues.into_list().into_iter().map(|i| i.code).collect())
    }

    #[test]
    fn the_end_of_a_section_is_taken_off_a_url_with_a_blank_before_it_or_none() {
        for raw in ["https://e.com/a ]]>", "https://e.com/a]]>", "<![CDATA[https://e.com/a]]>"] {
            assert_eq!(run(raw), ("https://e.com/a".to_owned(), vec![]), "{raw}");
        }
        assert_eq!(run("https://e.com/a[b[1]]").0, "https://e.com/a[b[1]]");
    }

    #[test]
    fn an_empty_host_is_that_of_the_document() {
        use IssueCode::{InvalidUrl, RelativeUrl};
        let table: &[(&str, &str, &[IssueCode])] = &[
            ("http:///a.xml", "https://example.com/a.xml", &[RelativeUrl]),
            ("HTTPS:////a/b?c", "https://example.com/a/b?c", &[RelativeUrl]),
            // Here the host is not missing, there is a slash too many.
            ("https:///example.com/a", "https:///example.com/a", &[]),
            ("https:///www.example.org/a", "https:///www.example.org/a", &[]),
            ("https:///cdn.example.net/a", "https:///cdn.example.net/a", &[]),
            ("http:///Example.co.uk:8080/", "http:///Example.co.uk:8080/", &[]),
            ("https:///index.pl", "https://example.com/index.pl", &[RelativeUrl]),
            ("https:///a.xml/b", "https://example.com/a.xml/b", &[RelativeUrl]),
            ("https:///v1.2/b", "https://example.com/v1.2/b", &[RelativeUrl]),
            ("https:///", "", &[InvalidUrl]),
            ("https:///?a", "https://example.com/?a", &[RelativeUrl]),
        ];
        for (raw, url, codes) in table {
            assert_eq!(run(raw), ((*url).to_owned(), codes.to_vec()), "{raw:?}");
        }
    }

    #[test]
    fn a_url_with_a_scheme_before_its_own_is_none() {
        for raw in ["http://https://e.com/a", "https:HTTPS://e.com/a", "http:https:/e.com/a"] {
            assert_eq!(run(raw), (String::new(), vec![IssueCode::InvalidUrl]), "{raw}");
        }
        for raw in ["https://e.com/http://e.com/", "http://https.e.com/", "https:e.com"] {
            assert_eq!(run(raw), (raw.to_owned(), vec![]), "{raw}");
        }
    }

    #[test]
    fn urls_are_kept_resolved_or_dropped_by_rule() {
        use IssueCode::{
            IllegalCharacter, InvalidUrl, MissingTag, RelativeUrl, TrailingContent, UrlTooLong,
        };
        let long = format!("https://example.com/{}", "x".repeat(100));
        let table: &[(&str, &str, &[IssueCode])] = &[
            ("https://example.com/a", "https://example.com/a", &[]),
            ("\u{a0}\u{2000}\n HTTP://example.com/a\u{202f}", "HTTP://example.com/a", &[]),
            ("\u{202a}https://example.com/a\u{202c}", "https://example.com/a", &[]),
            ("\u{2066}\u{ad}https://example.com/a\u{2069}", "https://example.com/a", &[]),
            ("\u{2067}/a\u{61c}", "https://example.com/a", &[RelativeUrl]),
            ("https://example.com/a\n      b", "https://example.com/ab", &[]),
            ("https://example.com/a\u{0}b", "https://example.com/ab", &[IllegalCharacter]),
            ("https://example.com:8080/a", "https://example.com:8080/a", &[]),
            ("https://example.com:65535", "https://example.com:65535", &[]),
            ("https://example.com:65536/a", "", &[InvalidUrl]),
            ("https://example.com:80@/a", "", &[InvalidUrl]),
            ("http://[::1]/a", "http://[::1]/a", &[]),
            ("/a", "https://example.com/a", &[RelativeUrl]),
            ("a?b", "https://example.com/dir/a?b", &[RelativeUrl]),
            ("//other.example/a", "https://other.example/a", &[RelativeUrl]),
            ("www.example.com/a", "https://www.example.com/a", &[RelativeUrl]),
            ("Example.com/a", "https://example.com/a", &[RelativeUrl]),
            ("example.com", "https://example.com/", &[RelativeUrl]),
            ("example.com.html", "https://example.com/dir/example.com.html", &[RelativeUrl]),
            ("example.org/a", "https://example.com/dir/example.org/a", &[RelativeUrl]),
            ("\"https://example.com/a\"", "https://example.com/a", &[]),
            ("' https://example.com/it's '", "https://example.com/it's", &[]),
            ("https://example.com/a'", "https://example.com/a'", &[]),
            ("\"/a\"", "https://example.com/a", &[RelativeUrl]),
            ("''", "", &[MissingTag]),
            ("https://e.com/a\n  https://e.com/b", "https://e.com/a", &[TrailingContent]),
            ("https://e.com/a, HTTP://e.com/b", "https://e.com/a", &[TrailingContent]),
            ("https://e.com/?u=https://e.com/b", "https://e.com/?u=https://e.com/b", &[]),
            ("https://e.com/a http: b", "https://e.com/a http: b", &[]),
            ("<![CDATA[ https://e.com/a ]]>", "https://e.com/a", &[]),
            ("https://e.com/a ]]>", "https://e.com/a", &[]),
            ("<https://e.com/a>", "https://e.com/a", &[]),
            ("(https://e.com/a_(b))", "https://e.com/a_(b)", &[]),
            ("“https://e.com/a”", "https://e.com/a", &[]),
            ("(https://e.com/a", "", &[InvalidUrl]),
            ("URL https://e.com/a", "", &[InvalidUrl]),
            ("https%3A%2F%2Fe.com/a", "", &[InvalidUrl]),
            ("https//example.com/a", "", &[InvalidUrl]),
            ("HTTP//example.com/a", "", &[InvalidUrl]),
            ("://example.com/a", "", &[InvalidUrl]),
            (";//example.com/a", "", &[InvalidUrl]),
            ("https;//example.com/a", "", &[InvalidUrl]),
            ("http.//example.com/a", "", &[InvalidUrl]),
            ("https/a", "https://example.com/dir/https/a", &[RelativeUrl]),
            ("/https//a", "https://example.com/https//a", &[RelativeUrl]),
            ("..//a", "https://example.com//a", &[RelativeUrl]),
            ("<a href='/a'>", "", &[InvalidUrl]),
            ("<![CDATA[/a]]>", "", &[InvalidUrl]),
            ("/go/https://e.com/", "https://example.com/go/https://e.com/", &[RelativeUrl]),
            ("(a)", "https://example.com/dir/(a)", &[RelativeUrl]),
            ("&s;/a", "", &[InvalidUrl]),
            ("\"&x;\"", "", &[InvalidUrl]),
            ("https://example.com/&x;", "https://example.com/&x;", &[]),
            ("a?b=1&c;", "https://example.com/dir/a?b=1&c;", &[RelativeUrl]),
            ("mailto:a@example.com", "", &[InvalidUrl]),
            ("javascript:alert(1)", "", &[InvalidUrl]),
            ("http://", "", &[InvalidUrl]),
            ("http://exa mple.com/", "", &[InvalidUrl]),
            ("http://1.2.3.999/", "", &[InvalidUrl]),
            ("https://example.com/\u{fffd}", "", &[InvalidUrl]),
            (&long, "", &[UrlTooLong]),
            (" \n ", "", &[MissingTag]),
        ];
        for (raw, url, codes) in table {
            assert_eq!(run(raw), ((*url).to_owned(), codes.to_vec()), "{raw:?}");
        }
    }
}
