//! Reads one typed value: its type, its range, and the words for both.
//!
//! Each reader is given the value as typed and answers with what it means, or
//! with a clause that says what is wrong and what is allowed. [`Reader`] adds
//! the place and collects, so that one run tells everything.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::tz::TimeZone;
use toml::{Spanned, Value};
use url::Url;

use super::AllowedAddress;
use super::document::Document;
use super::error::{Fault, MAX_FAULTS, Place};
use super::raw::Leaf;
use super::resolve::MAX_SOURCE_BYTES;
use super::units::{format_duration, format_size, parse_duration, parse_size};

/// Longest value shown in a fault, in characters.
const MAX_SHOWN: usize = 80;

/// Collects the faults of one file while its values are read.
pub(super) struct Reader<'a> {
    document: &'a Document,
    /// Relative paths are relative to this folder.
    pub(super) base: &'a Path,
    faults: Vec<Fault>,
    /// Where values begin that mean nothing: they are not held against others.
    unread: Vec<usize>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(document: &'a Document, base: &'a Path) -> Self {
        Self { document, base, faults: Vec::new(), unread: Vec::new() }
    }

    /// What `leaf` means; `None` where it is not there, or is wrong, which is
    /// then noted.
    pub(super) fn read<T>(
        &mut self,
        leaf: &Leaf,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        let leaf = leaf.as_ref()?;
        match read(leaf.get_ref()) {
            Ok(value) => Some(value),
            Err(message) => {
                let found = show(leaf.get_ref());
                self.fault(&leaf.span(), format!("found {found}, {message}"));
                self.unread.push(leaf.span().start);
                None
            }
        }
    }

    /// Sets `target` to what `leaf` means, where it is there.
    pub(super) fn set<T>(
        &mut self,
        target: &mut T,
        leaf: &Leaf,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) {
        if let Some(value) = self.read(leaf, read) {
            *target = value;
        }
    }

    /// Notes a fault at a place.
    pub(super) fn fault(&mut self, span: &Range<usize>, message: String) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(self.document.fault(span, message));
        }
    }

    /// Notes a fault of an option of the command line.
    pub(super) fn fault_of_option(&mut self, name: &'static str, key: &str, message: String) {
        let place = Place::Option(name);
        self.faults.push(Fault { place, key: key.to_owned(), message });
    }

    /// Notes a fault at the first of `leaves` that is there.
    pub(super) fn fault_at(&mut self, leaves: &[&Leaf], message: String) {
        let span = leaves.iter().find_map(|leaf| leaf.as_ref()).map_or(0..0, Spanned::span);
        self.fault(&span, message);
    }

    /// The faults in the order of their lines, variables last.
    pub(super) fn into_faults(mut self) -> Vec<Fault> {
        self.faults.sort_by_key(|fault| match fault.place {
            Place::File { line, .. } => line,
            Place::Variable(_) | Place::Option(_) => usize::MAX,
        });
        self.faults
    }

    /// Was something typed here that means nothing, which has been noted?
    pub(super) fn is_unread(&self, leaf: &Leaf) -> bool {
        leaf.as_ref().is_some_and(|leaf| self.unread.contains(&leaf.span().start))
    }

    /// Notes `min` over `max`, at the one of the two that was typed.
    pub(super) fn ordered(&mut self, min: (&Leaf, Duration), max: (&Leaf, Duration), key: &str) {
        if min.1 > max.1 && !self.is_unread(min.0) && !self.is_unread(max.0) {
            let (min_text, max_text) = (format_duration(min.1), format_duration(max.1));
            let message = format!(
                "{key}.min is \"{min_text}\" and {key}.max is \"{max_text}\", \
                 allowed is a min up to the max"
            );
            self.fault_at(&[max.0, min.0], message);
        }
    }

    /// A path, made relative to the folder of the config file.
    pub(super) fn path(&self) -> impl Fn(&Value) -> Result<PathBuf, String> + use<> {
        let base = self.base.to_owned();
        move |value| {
            let text = string(value)?;
            if text.is_empty() { Err(allowed("a path")) } else { Ok(base.join(text)) }
        }
    }

    /// A path at which a file is.
    pub(super) fn file(&self) -> impl Fn(&Value) -> Result<PathBuf, String> + use<> {
        let path = self.path();
        move |value| {
            let path = path(value)?;
            if path.is_file() {
                return Ok(path);
            }
            Err(no_file(&path))
        }
    }
}

/// What is said of a path at which no file is.
pub(super) fn no_file(path: &Path) -> String {
    format!("and there is no file {}; allowed is the path of a file", path.display())
}

/// A value as it is shown in a fault: short, on one line, without userinfo.
fn show(value: &Value) -> String {
    let text = match value {
        Value::String(text) => masked(text),
        Value::Table(_) => "a table".to_owned(),
        Value::Array(list) => {
            // One more character than is shown each has at least.
            let shown: Vec<String> = list.iter().take(MAX_SHOWN).map(show).collect();
            format!("[{}]", shown.join(", "))
        }
        other => other.to_string(),
    };
    if text.chars().count() <= MAX_SHOWN {
        return text;
    }
    text.chars().take(MAX_SHOWN).chain(['…']).collect()
}

/// A string as a fault quotes it; the Debug form escapes quotes and control
/// characters. What could be a password is masked.
pub(super) fn masked(text: &str) -> String {
    format!("{:?}", without_parameters(&without_user(text)))
}

/// Without all from the scheme of a URL to the last `@`, since a password that is not
/// escaped may hold any character.
fn without_user(text: &str) -> Cow<'_, str> {
    let scheme = if text.starts_with("//") { Some(0) } else { text.find(':').map(|at| at + 1) };
    let (Some(scheme), Some(end)) = (scheme, text.rfind('@')) else { return text.into() };
    let slashes = if text[scheme..].starts_with("//") { 2 } else { 0 };
    match text.get(scheme + slashes..end) {
        Some(hidden) if !hidden.trim().is_empty() => {
            format!("{}***{}", &text[..scheme + slashes], &text[end..]).into()
        }
        _ => text.into(),
    }
}

/// Without the values of parameters of that name.
fn without_parameters(text: &str) -> String {
    const NAME: &str = "password=";
    let (mut shown, mut rest) = (String::new(), text);
    while let Some(at) = rest.to_ascii_lowercase().find(NAME) {
        let (before, hidden) = rest.split_at(at + NAME.len());
        shown.push_str(before);
        shown.push_str("***");
        rest = hidden.find('&').map_or("", |end| &hidden[end..]);
    }
    shown + rest
}

fn allowed(what: &str) -> String {
    format!("allowed is {what}")
}

/// A string.
pub(super) fn string(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| allowed("a string in quotes"))
}

/// `true` or `false`.
pub(super) fn flag(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| allowed("true or false"))
}

/// A list of strings.
pub(super) fn strings(value: &Value) -> Result<Vec<&str>, String> {
    let list = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    list.ok_or_else(|| allowed("a list of strings: [\"…\", \"…\"]"))
}

/// A list of strings, each of which `read` turns into what it means.
pub(super) fn list<T>(
    read: impl Fn(&str) -> Result<T, String>,
) -> impl Fn(&Value) -> Result<Vec<T>, String> {
    move |value| {
        let one =
            |text: &str| read(text).map_err(|e| format!("of which {} is wrong: {e}", masked(text)));
        strings(value)?.into_iter().map(one).collect()
    }
}

/// One of a few words.
pub(super) fn one_of<T: Copy>(
    words: &'static [(&'static str, T)],
) -> impl Fn(&Value) -> Result<T, String> {
    move |value| {
        let found = value.as_str().and_then(|text| words.iter().find(|(word, _)| *word == text));
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let words: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
            allowed(&words.join(" or "))
        })
    }
}

/// A whole number within a range.
pub(super) fn whole<T>(range: RangeInclusive<T>) -> impl Fn(&Value) -> Result<T, String>
where
    T: TryFrom<i64> + PartialOrd + std::fmt::Display,
{
    move |value| {
        let number = value.as_integer().and_then(|n| T::try_from(n).ok());
        number.filter(|n| range.contains(n)).ok_or_else(|| {
            allowed(&format!("a whole number from {} to {}", range.start(), range.end()))
        })
    }
}

/// A number within a range; whole ones may be written without a point.
pub(super) fn number(range: RangeInclusive<f64>) -> impl Fn(&Value) -> Result<f64, String> {
    move |value| {
        let number = match value {
            Value::Float(number) => Some(*number),
            // Small whole numbers only: the range refuses the rest.
            Value::Integer(number) => i32::try_from(*number).ok().map(f64::from),
            _ => None,
        };
        number
            .filter(|n| range.contains(n))
            .ok_or_else(|| allowed(&format!("a number from {} to {}", range.start(), range.end())))
    }
}

/// A duration within a range.
pub(super) fn duration(
    range: RangeInclusive<Duration>,
) -> impl Fn(&Value) -> Result<Duration, String> {
    move |value| {
        let (min, max) = (format_duration(*range.start()), format_duration(*range.end()));
        let allowed = format!("allowed is a duration from {min} to {max}");
        let text = value.as_str().ok_or_else(|| format!("{allowed}, such as \"1h 30m\""))?;
        let duration = parse_duration(text).map_err(|e| format!("{allowed}: {e}"))?;
        if range.contains(&duration) { Ok(duration) } else { Err(allowed) }
    }
}

/// A size in bytes within a range.
pub(super) fn size(range: RangeInclusive<u64>) -> impl Fn(&Value) -> Result<u64, String> {
    move |value| {
        let (min, max) = (format_size(*range.start()), format_size(*range.end()));
        let allowed = format!("allowed is a size from {min} to {max}");
        let size = match value {
            Value::String(text) => parse_size(text).map_err(|e| format!("{allowed}: {e}"))?,
            Value::Integer(bytes) => u64::try_from(*bytes).map_err(|_| allowed.clone())?,
            _ => return Err(format!("{allowed}, such as \"50MiB\"")),
        };
        if range.contains(&size) { Ok(size) } else { Err(allowed) }
    }
}

/// A time zone by its name in the IANA database.
pub(super) fn timezone(value: &Value) -> Result<TimeZone, String> {
    let allowed = || allowed("a name of the IANA database: \"UTC\", \"Europe/Berlin\"");
    TimeZone::get(string(value)?).map_err(|_| allowed())
}

/// An address and port to listen on.
pub(super) fn listener(value: &Value) -> Result<SocketAddr, String> {
    let address = string(value)?.parse();
    address.map_err(|_| allowed("an address and port: \"127.0.0.1:7070\", \"[::1]:7070\""))
}

/// What is said of a URL with a user or a password.
pub(super) const BARE: &str = "allowed is a URL without user and password";

/// An http or https URL with a host and without userinfo.
pub(super) fn web_url(text: &str) -> Result<Url, String> {
    let allowed = || allowed("an http or https URL: \"https://example.org/\"");
    let url = Url::parse(text).map_err(|e| format!("{} ({e})", allowed()))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(allowed());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(BARE.to_owned());
    }
    if url.as_str().len() > MAX_SOURCE_BYTES {
        return Err("allowed is a URL of at most 2,048 bytes as it is sent".to_owned());
    }
    Ok(url)
}

/// One exception to the private-address guard: `127.0.0.1`, `[::1]:8081`,
/// `10.0.0.0/8`, `10.0.0.0/8:8080`.
pub(super) fn allowed_address(text: &str) -> Result<AllowedAddress, String> {
    let allowed = "allowed is an address or network with or without a port: \
                   \"127.0.0.1:8081\", \"[::1]:80\", \"10.0.0.0/8\"";
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(AllowedAddress { net: address.ip().into(), port: Some(address.port()) });
    }
    if let Ok(address) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Ok(AllowedAddress { net: address.into(), port: None });
    }
    let (address, prefix) = text.split_once('/').ok_or(allowed)?;
    let (prefix, port) = match prefix.split_once(':') {
        Some((prefix, port)) => (prefix, Some(port.parse().map_err(|_| allowed)?)),
        None => (prefix, None),
    };
    let net = format!("{address}/{prefix}").parse::<ipnet::IpNet>().map_err(|_| allowed)?;
    Ok(AllowedAddress { net: net.trunc(), port })
}
