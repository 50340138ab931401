//! Namespaces and the prefixes in scope.
//!
//! Prefixes are looked at only where an element carries `xmlns`, so a document
//! that declares them on its root pays once. The number kept is bounded.

/// What a namespace is to us, whatever spelling its URI has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ns {
    /// No namespace.
    None,
    /// A prefix that nobody declared and that is no usual one.
    Undeclared,
    /// Sitemaps 0.9 in any of its spellings.
    Sitemap,
    /// Google image extension.
    Image,
    /// Google video extension.
    Video,
    /// Google news extension.
    News,
    /// XHTML, for hreflang links.
    Xhtml,
    /// Atom 1.0 or 0.3.
    Atom,
    /// RSS 0.90 or 1.0.
    Rss,
    /// RDF itself.
    Rdf,
    /// Dublin Core elements.
    Dc,
    /// Dublin Core terms.
    DcTerms,
    /// RSS content module.
    Content,
    /// RSS syndication module (`sy:`).
    Syndication,
    /// `FeedBurner`.
    FeedBurner,
    /// The namespace of XML itself.
    Xml,
    /// Any other, by the order in which they appear.
    Other(u8),
}

/// Declarations kept at one time; further ones are not resolved.
const MAX_BINDINGS: usize = 128;
/// Other namespaces told apart.
const MAX_OTHERS: usize = 64;
/// Bytes of a namespace URI that are kept.
const MAX_URI: usize = 512;

#[derive(Debug)]
struct Binding {
    prefix: String,
    ns: Ns,
    depth: usize,
}

/// The prefixes in scope, innermost last.
#[derive(Debug)]
pub(super) struct Scopes {
    bindings: Vec<Binding>,
    default: Ns,
    others: Vec<String>,
}

impl Scopes {
    pub(super) fn new() -> Self {
        Self { bindings: Vec::new(), default: Ns::None, others: Vec::new() }
    }

    /// Binds `prefix` (empty for the default) for the element at `depth`. `false`
    /// where a prefix of sitemaps (`sitemap` says that this is one) was taken
    /// for what it usually means, since its URI is no known one.
    pub(super) fn bind(&mut self, prefix: &str, uri: &str, depth: usize, sitemap: bool) -> bool {
        if self.bindings.len() >= MAX_BINDINGS {
            return true;
        }
        let mut ns = self.classify(uri);
        let told = !matches!(ns, Ns::Other(_) | Ns::Sitemap | Ns::None);
        let meant = sitemap && !told && matches!(prefix, "image" | "video" | "news" | "xhtml");
        if meant {
            ns = usual(prefix);
        }
        self.bindings.push(Binding { prefix: prefix.to_owned(), ns, depth });
        if prefix.is_empty() {
            self.default = ns;
        }
        !meant
    }

    /// Leaves the element at `depth`.
    #[inline]
    pub(super) fn leave(&mut self, depth: usize) {
        if self.bindings.last().is_none_or(|b| b.depth < depth) {
            return;
        }
        while self.bindings.last().is_some_and(|b| b.depth >= depth) {
            self.bindings.pop();
        }
        let default = self.bindings.iter().rev().find(|b| b.prefix.is_empty());
        self.default = default.map_or(Ns::None, |b| b.ns);
    }

    /// The namespace of a prefix; `false` where it was only guessed.
    pub(super) fn resolve(&self, prefix: Option<&str>) -> (Ns, bool) {
        let Some(prefix) = prefix else { return (self.default, true) };
        if let Some(binding) = self.bindings.iter().rev().find(|b| b.prefix == prefix) {
            return (binding.ns, true);
        }
        if prefix == "xml" {
            return (Ns::Xml, true);
        }
        (usual(prefix), false)
    }

    fn classify(&mut self, uri: &str) -> Ns {
        let uri = uri.trim();
        if uri.is_empty() {
            return Ns::None;
        }
        if let Some(ns) = known(uri) {
            return ns;
        }
        let uri = uri.get(..MAX_URI).unwrap_or(uri);
        let at = self.others.iter().position(|other| other == uri).unwrap_or(self.others.len());
        if at == self.others.len() && at < MAX_OTHERS {
            self.others.push(uri.to_owned());
        }
        Ns::Other(u8::try_from(at).unwrap_or(u8::MAX))
    }
}

/// Is this the sitemap namespace exactly as the protocol gives it?
pub(super) fn is_exact_sitemap(uri: &str) -> bool {
    uri == "http://www.sitemaps.org/schemas/sitemap/0.9"
}

/// A namespace by its URI: any scheme, with or without `www.` and end slash.
fn known(uri: &str) -> Option<Ns> {
    let lower = uri.to_ascii_lowercase();
    let bare = lower.split_once("//").map_or(lower.as_str(), |(_, rest)| rest);
    let bare = bare.strip_prefix("www.").unwrap_or(bare).trim_end_matches(['/', '#']);
    let version = |prefix: &str| bare.strip_prefix(prefix).is_some();
    Some(match bare {
        // The others were copied from site to site; all mean hreflang links.
        "w3.org/1999/xhtml"
        | "w3.org/tr/xhtml11/xhtml11_schema.html"
        | "w3.org/2002/08/xhtml/xhtml1-strict.xsd" => Ns::Xhtml,
        "w3.org/2005/atom" | "purl.org/atom/ns" => Ns::Atom,
        "purl.org/rss/1.0"
        | "my.netscape.com/rdf/simple/0.9"
        | "channel.netscape.com/rdf/simple/0.9" => Ns::Rss,
        "w3.org/1999/02/22-rdf-syntax-ns" => Ns::Rdf,
        "purl.org/dc/elements/1.1" | "purl.org/dc/elements/1.0" => Ns::Dc,
        "purl.org/dc/terms" => Ns::DcTerms,
        "purl.org/rss/1.0/modules/content" => Ns::Content,
        "purl.org/rss/1.0/modules/syndication" => Ns::Syndication,
        "rssnamespace.org/feedburner/ext/1.0" => Ns::FeedBurner,
        "w3.org/xml/1998/namespace" => Ns::Xml,
        _ if version("google.com/schemas/sitemap-image/") => Ns::Image,
        _ if version("google.com/schemas/sitemap-video/") => Ns::Video,
        _ if version("google.com/schemas/sitemap-news/") => Ns::News,
        _ if version("sitemaps.org/schemas/sitemap/") || version("google.com/schemas/sitemap/") => {
            Ns::Sitemap
        }
        _ if version("sitemaps.org/schemas/sitemap-image/") => Ns::Image,
        _ if version("sitemaps.org/schemas/sitemap-video/") => Ns::Video,
        _ if version("sitemaps.org/schemas/sitemap-news/") => Ns::News,
        _ => return None,
    })
}

/// What a prefix usually stands for, where a document forgot to say.
fn usual(prefix: &str) -> Ns {
    match prefix {
        "image" => Ns::Image,
        "video" => Ns::Video,
        "news" | "n" => Ns::News,
        "xhtml" => Ns::Xhtml,
        "atom" | "atom10" | "a10" => Ns::Atom,
        "rdf" => Ns::Rdf,
        "dc" => Ns::Dc,
        "dcterms" | "dct" => Ns::DcTerms,
        "content" => Ns::Content,
        "sy" => Ns::Syndication,
        "feedburner" => Ns::FeedBurner,
        "sitemap" | "sm" => Ns::Sitemap,
        _ => Ns::Undeclared,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_known_in_every_spelling_of_the_field() {
        let table = [
            ("http://www.sitemaps.org/schemas/sitemap/0.9", Ns::Sitemap),
            ("https://www.sitemaps.org/schemas/sitemap/0.9/", Ns::Sitemap),
            ("http://sitemaps.org/schemas/sitemap/0.84", Ns::Sitemap),
            ("//www.sitemaps.org/schemas/sitemap/0.9", Ns::Sitemap),
            ("http://www.google.com/schemas/sitemap/0.84", Ns::Sitemap),
            ("https://www.google.com/schemas/sitemap-image/1.1/", Ns::Image),
            ("http://www.google.com/schemas/sitemap-news/0.84", Ns::News),
            ("http://www.w3.org/TR/xhtml11/xhtml11_schema.html", Ns::Xhtml),
            ("http://www.w3.org/2002/08/xhtml/xhtml1-strict.xsd", Ns::Xhtml),
            ("http://www.w3.org/2005/Atom", Ns::Atom),
            ("http://purl.org/atom/ns#", Ns::Atom),
            ("http://my.netscape.com/rdf/simple/0.9/", Ns::Rss),
            ("http://example.org/", Ns::Other(0)),
            ("", Ns::None),
        ];
        for (uri, ns) in table {
            assert_eq!(Scopes::new().classify(uri), ns, "{uri}");
        }
    }

    #[test]
    fn an_inner_declaration_ends_with_its_element() {
        let mut scopes = Scopes::new();
        scopes.bind("", "http://www.sitemaps.org/schemas/sitemap/0.9", 1, true);
        scopes.bind("", "", 2, true);
        assert_eq!(scopes.resolve(None), (Ns::None, true));
        scopes.leave(2);
        assert_eq!(scopes.resolve(None), (Ns::Sitemap, true));
        assert_eq!(scopes.resolve(Some("image")), (Ns::Image, false));
    }

    #[test]
    fn a_wrong_uri_of_a_usual_prefix_is_what_the_prefix_means_in_a_sitemap() {
        let sitemap = "http://www.google.com/schemas/sitemap/1.1";
        let video = "http://www.google.com/schemas/sitemap-video/1.1";
        let table = [
            ("image", sitemap, true, (Ns::Image, false)),
            ("image", "", true, (Ns::Image, false)),
            ("xhtml", "http://www.w3.org/TR/xhtml1", true, (Ns::Xhtml, false)),
            ("image", video, true, (Ns::Video, true)),
            ("image", "urn:x", false, (Ns::Other(0), true)),
            ("n", "urn:x", true, (Ns::Other(0), true)),
            ("content", "urn:x", true, (Ns::Other(0), true)),
            ("", sitemap, true, (Ns::Sitemap, true)),
        ];
        for (prefix, uri, in_sitemap, (ns, good)) in table {
            let mut scopes = Scopes::new();
            assert_eq!(scopes.bind(prefix, uri, 1, in_sitemap), good, "{prefix} {uri}");
            let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
            assert_eq!(scopes.resolve(prefix), (ns, true), "{uri}");
        }
    }

    #[test]
    fn declarations_beyond_the_limit_are_not_kept() {
        let mut scopes = Scopes::new();
        for i in 0..10_000 {
            scopes.bind(&format!("p{i}"), "http://example.org/x", i, true);
        }
        assert_eq!(scopes.bindings.len(), MAX_BINDINGS);
    }
}
