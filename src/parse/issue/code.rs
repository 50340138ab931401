//! The kinds of defects: stable code, the name webmasters know, advice, severity.

use std::fmt;

/// How much a defect matters.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Tolerated without loss.
    Warning,
    /// Something of the document was lost.
    Error,
    /// Nothing of the document could be used.
    Fatal,
}

/// What kind of defect. The kebab-case name is stable: it is stored and shown.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum IssueCode {
    /// Markup that is not well-formed: a stray `<`, an unclosed quote, bad JSON.
    ParsingError,
    /// A `&` or `<` that should have been written `&amp;` or `&lt;`.
    UnescapedCharacter,
    /// A named reference that neither XML nor HTML 4 knows.
    UnknownEntity,
    /// An end tag without its start, or a start tag without its end.
    MismatchedTag,
    /// The document ends inside an open element.
    Truncated,
    /// The body broke off, could not be decompressed or exceeded its limit.
    IncompleteBody,
    /// Compressed data that is broken or stops before its end.
    CompressionError,
    /// A body larger than its limit, as sent or as decoded.
    FileTooLarge,
    /// Bytes that are wrong in the document's encoding.
    EncodingError,
    /// A sitemap or index in another encoding than UTF-8, which was decoded.
    NotUtf8,
    /// Control characters that the format forbids, or half of a surrogate pair;
    /// they were taken out.
    IllegalCharacter,
    /// Blanks, a comment or other text before the XML declaration.
    LeadingWhitespace,
    /// Text after the end of the root element, or of a URL in its place.
    TrailingContent,
    /// A namespace other than the protocol's, or a prefix never declared.
    IncorrectNamespace,
    /// A document type declaration with entities; they are never expanded.
    DoctypeIgnored,
    /// Elements nested deeper than 64.
    TooDeep,
    /// A tag, attribute list or field longer than its limit; it was dropped.
    OversizedMarkup,
    /// An entry without a URL.
    MissingTag,
    /// A tag that may occur once occurs again; the first counts.
    DuplicateTag,
    /// A tag that the protocol does not know.
    UnknownTag,
    /// A URL that is not http or https, or no URL at all; it was dropped.
    InvalidUrl,
    /// A URL without scheme or host; it was resolved against the document's.
    RelativeUrl,
    /// A URL longer than the limit; it was dropped.
    UrlTooLong,
    /// A date that cannot be read.
    InvalidDate,
    /// A `changefreq`, `priority` or polling hint out of the protocol's range.
    InvalidTagValue,
    /// An attribute whose value makes no sense, such as an `hreflang`.
    InvalidAttributeValue,
    /// An attribute is missing, such as the `href` of an alternate link.
    MissingAttribute,
    /// More entries than the limit; the rest was cut.
    TooManyUrls,
    /// More children than the limit; the rest was cut.
    TooManySitemaps,
    /// More than 1,000 news entries.
    TooManyNews,
    /// More extension data on one entry than is kept.
    TooManyExtensions,
    /// A `news:news` without a `publication`.
    MissingPublication,
    /// A `video:video` without a thumbnail.
    MissingThumbnail,
    /// A `video:video` without a title.
    MissingVideoTitle,
    /// A video or a news article without something else that search engines require.
    MissingDetail,
    /// A `video:video` whose content or player is the page itself.
    SameVideoLocation,
    /// A page that does not name, as an alternate, a page of the same document
    /// that names it; or the other way round.
    HreflangNoReturn,
    /// A page with alternates that does not name itself among them.
    HreflangNoSelf,
    /// Pages and child sitemaps in one file.
    MixedContent,
    /// Read well, but it lists nothing.
    EmptySitemap,
    /// No content at all.
    EmptyDocument,
    /// HTML, JSON that is no feed, random bytes.
    UnsupportedFormat,
    /// More of robots.txt than is read.
    RobotsTooLarge,
    /// A line of robots.txt that is neither a rule nor a comment.
    SyntaxNotUnderstood,
    /// Rules of robots.txt before any `User-agent`: they bind nobody.
    NoUserAgent,
    /// Far fewer entries than the time before; removals are held.
    Shrunk,
    /// A date more than a day ahead: it counts as none.
    FutureDate,
    /// A URL that the same document lists before.
    DuplicateUrl,
    /// A URL outside of what the sitemap may list.
    UrlNotAllowed,
    /// A URL that the robots.txt of its host forbids to fetch; it waits until that allows it.
    UrlBlocked,
    /// A URL without `www.` in a sitemap that is found with it.
    MissingWww,
    /// A URL with `www.` in a sitemap that is found without it.
    IncludesWww,
    /// A feed that lists nothing of what it listed last time: entries may have
    /// come and gone unseen.
    FeedGap,
    /// An index too deep below other indexes; its children are not followed.
    NestedIndexes,
    /// More images, videos and alternates than are followed of one document.
    TooManyFollowed,
}

impl IssueCode {
    /// Every code that a document shows by itself, in the order of a report.
    /// Others show only beside what is known otherwise: see [`Self::BESIDE`].
    pub const ALL: [Self; 43] = [
        Self::ParsingError,
        Self::UnescapedCharacter,
        Self::UnknownEntity,
        Self::MismatchedTag,
        Self::Truncated,
        Self::IncompleteBody,
        Self::EncodingError,
        Self::NotUtf8,
        Self::IllegalCharacter,
        Self::LeadingWhitespace,
        Self::TrailingContent,
        Self::IncorrectNamespace,
        Self::DoctypeIgnored,
        Self::TooDeep,
        Self::OversizedMarkup,
        Self::MissingTag,
        Self::DuplicateTag,
        Self::UnknownTag,
        Self::InvalidUrl,
        Self::RelativeUrl,
        Self::UrlTooLong,
        Self::InvalidDate,
        Self::InvalidTagValue,
        Self::InvalidAttributeValue,
        Self::MissingAttribute,
        Self::TooManyUrls,
        Self::TooManySitemaps,
        Self::TooManyNews,
        Self::TooManyExtensions,
        Self::MissingPublication,
        Self::MissingThumbnail,
        Self::MissingVideoTitle,
        Self::MissingDetail,
        Self::SameVideoLocation,
        Self::HreflangNoReturn,
        Self::HreflangNoSelf,
        Self::MixedContent,
        Self::EmptySitemap,
        Self::EmptyDocument,
        Self::UnsupportedFormat,
        Self::RobotsTooLarge,
        Self::SyntaxNotUnderstood,
        Self::NoUserAgent,
    ];

    /// Codes that a document does not show by itself: they need to know its
    /// transport, the time, its site or what it was before.
    pub const BESIDE: [Self; 12] = [
        Self::CompressionError,
        Self::FileTooLarge,
        Self::FutureDate,
        Self::DuplicateUrl,
        Self::UrlNotAllowed,
        Self::UrlBlocked,
        Self::MissingWww,
        Self::IncludesWww,
        Self::Shrunk,
        Self::FeedGap,
        Self::NestedIndexes,
        Self::TooManyFollowed,
    ];

    /// The stable code as it is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ParsingError => "parsing-error",
            Self::UnescapedCharacter => "unescaped-character",
            Self::UnknownEntity => "unknown-entity",
            Self::MismatchedTag => "mismatched-tag",
            Self::Truncated => "truncated",
            Self::IncompleteBody => "incomplete-body",
            Self::CompressionError => "compression-error",
            Self::FileTooLarge => "file-too-large",
            Self::EncodingError => "encoding-error",
            Self::NotUtf8 => "not-utf8",
            Self::IllegalCharacter => "illegal-character",
            Self::LeadingWhitespace => "leading-whitespace",
            Self::TrailingContent => "trailing-content",
            Self::IncorrectNamespace => "incorrect-namespace",
            Self::DoctypeIgnored => "doctype-ignored",
            Self::TooDeep => "too-deep",
            Self::OversizedMarkup => "oversized-markup",
            Self::MissingTag => "missing-tag",
            Self::DuplicateTag => "duplicate-tag",
            Self::UnknownTag => "unknown-tag",
            Self::InvalidUrl => "invalid-url",
            Self::RelativeUrl => "relative-url",
            Self::UrlTooLong => "url-too-long",
            Self::InvalidDate => "invalid-date",
            Self::InvalidTagValue => "invalid-tag-value",
            Self::InvalidAttributeValue => "invalid-attribute-value",
            Self::MissingAttribute => "missing-attribute",
            Self::TooManyUrls => "too-many-urls",
            Self::TooManySitemaps => "too-many-sitemaps",
            Self::TooManyNews => "too-many-news",
            Self::TooManyExtensions => "too-many-extensions",
            Self::MissingPublication => "missing-publication",
            Self::MissingThumbnail => "missing-thumbnail",
            Self::MissingVideoTitle => "missing-video-title",
            Self::MissingDetail => "missing-detail",
            Self::SameVideoLocation => "same-video-location",
            Self::HreflangNoReturn => "hreflang-no-return",
            Self::HreflangNoSelf => "hreflang-no-self",
            Self::MixedContent => "mixed-content",
            Self::EmptySitemap => "empty-sitemap",
            Self::EmptyDocument => "empty-document",
            Self::UnsupportedFormat => "unsupported-format",
            Self::RobotsTooLarge => "robots-too-large",
            Self::SyntaxNotUnderstood => "syntax-not-understood",
            Self::NoUserAgent => "no-user-agent",
            Self::FutureDate => "future-date",
            Self::DuplicateUrl => "duplicate-url",
            Self::UrlNotAllowed => "url-not-allowed",
            Self::UrlBlocked => "url-blocked",
            Self::MissingWww => "missing-www",
            Self::IncludesWww => "includes-www",
            Self::Shrunk => "shrunk",
            Self::FeedGap => "feed-gap",
            Self::NestedIndexes => "nested-indexes",
            Self::TooManyFollowed => "too-many-followed",
        }
    }

    /// The name that webmasters know from Search Console, else from Yandex
    /// Webmaster; where neither has one, ours. Where several codes share a name,
    /// what tells them apart follows a colon.
    pub fn title(self) -> &'static str {
        match self {
            Self::ParsingError => "Parsing error",
            Self::UnescapedCharacter => "Parsing error: unescaped character",
            Self::UnknownEntity => "Parsing error: unknown entity",
            Self::MismatchedTag => "Parsing error: mismatched tag",
            Self::Truncated => "Parsing error: the file is cut off",
            Self::IllegalCharacter => "Parsing error: control character",
            Self::TrailingContent => "Parsing error: text after the end",
            Self::IncompleteBody => "Connection lost",
            Self::CompressionError => "Compression error",
            Self::FileTooLarge => "Sitemap file size error",
            Self::EncodingError => "Encoding error",
            Self::NotUtf8 => "Encoding error: not UTF-8",
            Self::LeadingWhitespace => "Leading whitespace",
            Self::IncorrectNamespace => "Incorrect namespace",
            Self::DoctypeIgnored => "Document type declaration ignored",
            Self::TooDeep => "Invalid XML: too many tags inside each other",
            Self::OversizedMarkup => "Invalid XML: a tag or field is too long",
            Self::TooManyExtensions => "Invalid XML: too many tags in one entry",
            Self::MissingTag => "Missing XML tag",
            Self::DuplicateTag => "Tag found more than once",
            Self::UnknownTag => "Unknown tag",
            Self::InvalidUrl => "Invalid URL",
            Self::UrlTooLong => "Invalid URL: too long",
            Self::RelativeUrl => "Invalid URL: incomplete URL",
            Self::InvalidDate => "Invalid date",
            Self::InvalidTagValue => "Invalid tag value",
            Self::InvalidAttributeValue => "Invalid attribute value",
            Self::MissingAttribute => "Missing XML attribute",
            Self::TooManyUrls => "Too many URLs",
            Self::TooManyFollowed => "Too many URLs to follow",
            Self::TooManySitemaps => "Too many sitemaps",
            Self::TooManyNews => "Too many News URLs",
            Self::MissingPublication => "Missing <publication> tag",
            Self::MissingThumbnail => "Missing thumbnail URL",
            Self::MissingVideoTitle => "Missing video title",
            Self::MissingDetail => "Missing XML tag: of a video or news article",
            Self::SameVideoLocation => "Video location and play page location are the same",
            Self::HreflangNoReturn => "Your site has no return tags",
            Self::HreflangNoSelf => "No self-referencing hreflang tag",
            Self::MixedContent => "Incorrect sitemap index format",
            Self::EmptySitemap => "Empty sitemap",
            Self::EmptyDocument => "Response contains no data",
            Self::UnsupportedFormat => "Unsupported format",
            Self::RobotsTooLarge => "robots.txt file size error",
            Self::SyntaxNotUnderstood => "Syntax not understood",
            Self::NoUserAgent => "No user-agent specified",
            Self::FutureDate => "Invalid date: in the future",
            Self::DuplicateUrl => "Duplicate URL",
            Self::UrlNotAllowed => "URL not allowed",
            Self::UrlBlocked => "URLs blocked by robots.txt",
            Self::MissingWww => "Path mismatch: Missing www",
            Self::IncludesWww => "Path mismatch: Includes www",
            Self::Shrunk => "Sitemap shrank to less than half",
            Self::FeedGap => "Feed window overflowed",
            Self::NestedIndexes => "Incorrect sitemap index format: Nested sitemap indexes",
        }
    }

    /// One plain sentence: what to do about it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::ParsingError => {
                "Make the file well-formed; an XML or JSON checker shows the place."
            }
            Self::UnescapedCharacter => "Write & as &amp; and < as &lt; in text and in URLs.",
            Self::UnknownEntity => {
                "Use the character itself, or a numeric reference such as &#233;."
            }
            Self::MismatchedTag => "Close every tag that is opened, in the reverse order.",
            Self::Truncated => {
                "Find out why the file is cut off: a time limit, a memory limit or a full disk."
            }
            Self::IncompleteBody => {
                "Check that the server sends the whole file and that its compression is intact."
            }
            Self::CompressionError => {
                "Compress the file anew and check it with gzip -t; what was intact is kept."
            }
            Self::FileTooLarge => {
                "Split the file: at most 50 MB (52,428,800 bytes) before compression."
            }
            Self::EncodingError => {
                "Save the file as UTF-8, or declare the encoding it is really in."
            }
            Self::NotUtf8 => {
                "Save the file as UTF-8: sitemaps must be, and not all readers know others."
            }
            Self::IllegalCharacter => "Remove control characters before writing the file.",
            Self::LeadingWhitespace => {
                "Let the XML declaration be the very first thing in the file."
            }
            Self::TrailingContent => {
                "End the file after the closing tag of its root element, and a line after its URL."
            }
            Self::IncorrectNamespace => {
                "Use the namespace exactly as the protocol gives it, and declare every prefix."
            }
            Self::DoctypeIgnored => {
                "Remove the document type declaration; its entities are not expanded."
            }
            Self::TooDeep => "Nest elements as the protocol shows; deeper ones are not read.",
            Self::OversizedMarkup => "Shorten the tag, attribute list or field; it was not read.",
            Self::MissingTag => {
                "Add the tag that is named here; an entry without a URL is left out."
            }
            Self::DuplicateTag => "Give each tag once per entry, and one entry per URL.",
            Self::UnknownTag => "Use the tags of the protocol only, or give your own a namespace.",
            Self::InvalidUrl => "List only complete http or https URLs.",
            Self::RelativeUrl => "Write the whole URL, with scheme and host.",
            Self::UrlTooLong => "Keep URLs under 2,048 characters.",
            Self::InvalidDate => "Write dates as 2026-11-21 or 2026-11-21T08:30:00+00:00.",
            Self::InvalidTagValue => "Use a value that the protocol allows, or leave the tag out.",
            Self::InvalidAttributeValue => {
                "Use a value that the protocol allows, such as an ISO 639-1 language code."
            }
            Self::MissingAttribute => "Give the tag all of its attributes.",
            Self::TooManyUrls => "Split the sitemap: at most 50,000 URLs in one file.",
            Self::TooManySitemaps => "Split the index: at most 50,000 sitemaps in one file.",
            Self::TooManyNews => "Keep a news sitemap to 1,000 articles of the last two days.",
            Self::TooManyExtensions => "Keep to 1,000 images per page and to short texts.",
            Self::MissingPublication => {
                "Name the publication and its language in every news entry."
            }
            Self::MissingThumbnail => "Give every video a thumbnail URL.",
            Self::MissingDetail => {
                "Say all that search engines require of it, the tag that is named here too."
            }
            Self::MissingVideoTitle => "Give every video a title.",
            Self::SameVideoLocation => {
                "Point to the video file or player, not to the page that shows it."
            }
            Self::HreflangNoReturn => {
                "Let every language version of a page list all versions, in both directions."
            }
            Self::HreflangNoSelf => "List the page itself among its language versions.",
            Self::MixedContent => "Keep pages and child sitemaps in separate files.",
            Self::EmptySitemap => "List at least one URL, or remove the file.",
            Self::EmptyDocument => "Serve the file with its content.",
            Self::UnsupportedFormat => {
                "Serve a sitemap, a feed or a list of URLs here, not another kind of file."
            }
            Self::RobotsTooLarge => "Keep robots.txt under 500 KiB; what follows is not read.",
            Self::SyntaxNotUnderstood => {
                "Write each line of robots.txt as a key, a colon and a value, or begin it with #."
            }
            Self::NoUserAgent => {
                "Put a User-agent line before the rules; without one they bind nobody."
            }
            Self::FutureDate => {
                "Give the date of the last change of the page; one to come counts as none."
            }
            Self::DuplicateUrl => "List each URL once; of several dates the newest counts.",
            Self::UrlNotAllowed => {
                "List only URLs of the sitemap's own site: same host, or name this sitemap in \
                 robots.txt of the other host."
            }
            Self::UrlBlocked => {
                "Let robots.txt of their host allow these URLs, or leave them out of the sitemap."
            }
            Self::MissingWww | Self::IncludesWww => {
                "Write all URLs in the one form that the site redirects to."
            }
            Self::Shrunk => {
                "If so many pages are really gone, leave it: it is believed after a week."
            }
            Self::FeedGap => {
                "Let the feed hold more entries, or link its older pages (RFC 5005); poll it more often."
            }
            Self::NestedIndexes => "List sitemaps in an index, not further indexes.",
            Self::TooManyFollowed => {
                "Split the sitemap: of one file 50,000 images, videos and alternates are followed."
            }
        }
    }

    /// How much a defect of this kind matters.
    pub fn severity(self) -> Severity {
        match self {
            Self::UnescapedCharacter
            | Self::UnknownEntity
            | Self::MismatchedTag
            | Self::IllegalCharacter
            | Self::LeadingWhitespace
            | Self::TrailingContent
            | Self::IncorrectNamespace
            | Self::DoctypeIgnored
            | Self::NotUtf8
            | Self::DuplicateTag
            | Self::UnknownTag
            | Self::RelativeUrl
            | Self::InvalidTagValue
            | Self::InvalidAttributeValue
            | Self::MissingAttribute
            | Self::TooManyNews
            | Self::MissingPublication
            | Self::MissingThumbnail
            | Self::MissingVideoTitle
            | Self::MissingDetail
            | Self::SameVideoLocation
            | Self::HreflangNoReturn
            | Self::HreflangNoSelf
            | Self::MixedContent
            | Self::EmptySitemap
            | Self::FutureDate
            | Self::FeedGap
            | Self::DuplicateUrl
            | Self::UrlBlocked
            | Self::MissingWww
            | Self::IncludesWww
            | Self::SyntaxNotUnderstood
            | Self::NoUserAgent => Severity::Warning,
            Self::ParsingError
            | Self::Truncated
            | Self::IncompleteBody
            | Self::CompressionError
            | Self::FileTooLarge
            | Self::UrlNotAllowed
            | Self::EncodingError
            | Self::TooDeep
            | Self::OversizedMarkup
            | Self::MissingTag
            | Self::InvalidUrl
            | Self::UrlTooLong
            | Self::InvalidDate
            | Self::TooManyUrls
            | Self::TooManySitemaps
            | Self::TooManyExtensions
            | Self::RobotsTooLarge
            | Self::Shrunk
            | Self::NestedIndexes
            | Self::TooManyFollowed => Severity::Error,
            Self::EmptyDocument | Self::UnsupportedFormat => Severity::Fatal,
        }
    }
}

impl fmt::Display for IssueCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_stable_name_a_title_and_advice() {
        let all = [&IssueCode::ALL[..], &IssueCode::BESIDE[..]].concat();
        for (i, code) in all.iter().copied().enumerate() {
            assert!(all[i + 1..].iter().all(|c| c.as_str() != code.as_str()), "{code}");
            let json = serde_json::to_string(&code).expect("a string");
            assert_eq!(json, format!("\"{code}\""));
            assert!(all[i + 1..].iter().all(|c| c.title() != code.title()), "{code}");
            assert!(!code.title().is_empty());
            assert!(code.advice().ends_with('.'), "{code}");
        }
    }
}
