//! The name by which a robots.txt knows whoever asks.
//!
//! One rule for the configuration, which takes it from `daemon.user_agent`,
//! and for whoever reads a robots.txt: were theirs two, a group could be for
//! us to the one and for nobody to the other.

/// The product token that `name` begins with: letters, `_` and `-` (RFC 9309
/// section 2.2.1), and digits, which crawlers have in their names.
pub(crate) fn product_token(name: &str) -> &str {
    let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')));
    end.map_or(name, |end| &name[..end])
}
