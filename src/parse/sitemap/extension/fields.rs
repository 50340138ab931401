//! The fields of one extension element, from text to what they mean.
//!
//! Read leniently: blanks, letter case, a comma for a point and thousands
//! separators do not matter. What cannot be read, or is out of the protocol's
//! range, is noted and absent. Of a field that may come once the first counts.
//! An attribute comes as `field@attribute`, before the text of its field; what one
//! element says is never added to what another one of its name says.

use super::language::is_country;
use crate::date;
use crate::model::Lastmod;
use crate::model::extension::{
    Image, News, Platform, Price, Publication, Relationship, Restriction, TvShow, Uploader, Video,
};
use crate::parse::issue::IssueCode;
use crate::parse::loc;

/// Where defects are noted: their code and a sample.
pub(super) type Note<'a> = dyn FnMut(IssueCode, &str) + 'a;

/// Tags of one video, says Google.
const MAX_TAGS: usize = 32;
/// Characters of the description of a video, says Google.
const MAX_DESCRIPTION: usize = 2_048;
/// Seconds of a video, says Google.
const DURATION: std::ops::RangeInclusive<u32> = 1..=28_800;
/// Words of one list (genres, keywords, countries) that are kept.
const MAX_WORDS: usize = 300;

/// One thing that is said inside an image, video or news element.
#[derive(Debug)]
pub(super) struct Said {
    /// The name of the element, or `element@attribute`.
    pub(super) name: String,
    pub(super) value: String,
    /// The number of the element that says it.
    pub(super) element: usize,
}

/// All of it, in document order.
pub(super) type Fields = Vec<Said>;

/// Elements with attributes of which a video has one.
const SINGLE: [&str; 5] = ["player_loc", "gallery_loc", "uploader", "restriction", "platform"];

/// Leaves out what elements say that come again: of each kind the first with a text
/// counts, with its attributes and no others.
fn without_repeated(mut fields: Fields, note: &mut Note<'_>) -> Fields {
    for single in SINGLE {
        let is_of = |said: &Said| said.name.split('@').next() == Some(single);
        let with_text = fields.iter().find(|said| said.name == single);
        let counts = with_text.or_else(|| fields.iter().find(|said| is_of(said)));
        let Some(counts) = counts.map(|said| said.element) else { continue };
        fields.retain(|said| {
            let again = is_of(said) && said.element != counts;
            if again {
                note(IssueCode::DuplicateTag, &said.value);
            }
            !again
        });
    }
    fields
}

/// `image:image`
pub(super) fn image(fields: Fields, note: &mut Note<'_>) -> Image {
    let mut image = Image::default();
    for Said { name, value, .. } in fields {
        match name.as_str() {
            "loc" => once(&mut image.loc, value, note),
            "title" => once(&mut image.title, value, note),
            "caption" => once(&mut image.caption, value, note),
            "geo_location" => once(&mut image.geo_location, value, note),
            "license" => once(&mut image.license, value, note),
            _ => {}
        }
    }
    if image.loc.is_none() {
        note(IssueCode::MissingTag, "image:loc");
    }
    whole_url(image.loc.as_ref(), note);
    image
}

/// `video:video`
pub(super) fn video(fields: Fields, note: &mut Note<'_>) -> Video {
    let mut video = Video::default();
    let mut priced = None;
    for Said { name, value, element } in without_repeated(fields, note) {
        match name.as_str() {
            "thumbnail_loc" => once(&mut video.thumbnail_loc, value, note),
            "title" => once(&mut video.title, value, note),
            "description" => once(&mut video.description, value, note),
            "content_loc" => once(&mut video.content_loc, value, note),
            "player_loc" => once(&mut video.player_loc, value, note),
            "player_loc@allow_embed" => read(&mut video.allow_embed, &value, flag, note),
            "player_loc@autoplay" => once(&mut video.autoplay, value, note),
            "duration" => read(&mut video.duration, &value, duration, note),
            "expiration_date" => day(&mut video.expiration_date, &value, note),
            "rating" => read(&mut video.rating, &value, rating, note),
            "view_count" => read(&mut video.view_count, &value, whole, note),
            "publication_date" => day(&mut video.publication_date, &value, note),
            "family_friendly" => read(&mut video.family_friendly, &value, flag, note),
            "requires_subscription" => read(&mut video.requires_subscription, &value, flag, note),
            "live" => read(&mut video.live, &value, flag, note),
            "category" => once(&mut video.category, value, note),
            "gallery_loc" => once(&mut video.gallery_loc, value, note),
            "gallery_loc@title" => once(&mut video.gallery_title, value, note),
            "tag" if video.tags.len() < MAX_TAGS => video.tags.push(value),
            "tag" => note(IssueCode::TooManyExtensions, &value),
            "uploader" => once(&mut uploader(&mut video).name, value, note),
            "uploader@info" => once(&mut uploader(&mut video).info, value, note),
            "restriction" | "restriction@relationship" => {
                restriction(&mut video, &name, &value, note);
            }
            "platform" | "platform@relationship" => platform(&mut video, &name, &value, note),
            "price" | "price@currency" | "price@type" | "price@resolution" => {
                if priced.replace(element) != Some(element) {
                    video.prices.push(Price::default());
                }
                price(&mut video.prices, &name, value, note);
            }
            _ => tv_show(&mut video, &name, value, note),
        }
    }
    leave_out_what_says_nothing(&mut video);
    check_video(&video, note);
    video
}

/// What an element says that could not be read is absent.
fn leave_out_what_says_nothing(video: &mut Video) {
    video.prices.retain(|price| *price != Price::default());
    video.restriction.take_if(|rule| *rule == Restriction::default());
    video.platform.take_if(|rule| *rule == Platform::default());
    video.tvshow.take_if(|show| *show == TvShow::default());
}

/// `news:news`
pub(super) fn news(fields: Fields, note: &mut Note<'_>) -> News {
    let mut news = News::default();
    for Said { name, value, .. } in fields {
        match name.as_str() {
            "name" => once(&mut publication(&mut news).name, value, note),
            "language" => once(&mut publication(&mut news).language, value, note),
            "publication_date" => day(&mut news.publication_date, &value, note),
            "title" => once(&mut news.title, value, note),
            "access" => once(&mut news.access, value, note),
            "genres" => news.genres = words(&value, &[',', ';'], news.genres),
            "keywords" => news.keywords = words(&value, &[',', ';'], news.keywords),
            "stock_tickers" => news.stock_tickers = words(&value, &[',', ';'], news.stock_tickers),
            _ => {}
        }
    }
    if news.publication.as_ref().is_none_or(|publication| publication.name.is_none()) {
        note(IssueCode::MissingPublication, "news:publication");
    } else if news.publication.as_ref().is_some_and(|publication| publication.language.is_none()) {
        note(IssueCode::MissingDetail, "news:language");
    }
    if news.publication_date.is_none() {
        note(IssueCode::MissingDetail, "news:publication_date");
    }
    if news.title.is_none() {
        note(IssueCode::MissingDetail, "news:title");
    }
    news
}

fn check_video(video: &Video, note: &mut Note<'_>) {
    if video.thumbnail_loc.is_none() {
        note(IssueCode::MissingThumbnail, "video:thumbnail_loc");
    }
    if video.title.is_none() {
        note(IssueCode::MissingVideoTitle, "video:title");
    }
    if video.description.is_none() {
        note(IssueCode::MissingDetail, "video:description");
    }
    for place in [&video.thumbnail_loc, &video.content_loc, &video.player_loc] {
        whole_url(place.as_ref(), note);
    }
    if video.content_loc.is_none() && video.player_loc.is_none() {
        note(IssueCode::MissingTag, "video:content_loc or video:player_loc");
    }
    let long =
        |text: &String| text.len() > MAX_DESCRIPTION && text.chars().count() > MAX_DESCRIPTION;
    if let Some(text) = video.description.as_ref().filter(|text| long(text)) {
        note(IssueCode::InvalidTagValue, text);
    }
    let listed = video.restriction.as_ref().map(|rule| rule.relationship);
    let listed = listed.into_iter().chain(video.platform.as_ref().map(|rule| rule.relationship));
    for relationship in listed {
        if relationship.is_none() {
            note(IssueCode::MissingAttribute, "relationship");
        }
    }
}

/// Where something lies is told by a whole URL. It is not parsed: there may be a thousand
/// of a page, and whoever follows them does.
fn whole_url(place: Option<&String>, note: &mut Note<'_>) {
    let Some(place) = place else { return };
    match place.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => {
            let is_web =
                scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
            if !is_web || !rest.starts_with("//") || rest.len() == 2 {
                note(IssueCode::InvalidTagValue, place);
            }
        }
        _ => note(IssueCode::RelativeUrl, place),
    }
}

/// An alternate may be that of an app, which has a scheme of its own.
pub(super) fn whole_reference(href: &str, note: &mut Note<'_>) {
    if !href.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme)) {
        note(IssueCode::RelativeUrl, href);
    }
}

/// Is this a whole URL, and none of the web?
pub(super) fn is_of_app(href: &str) -> bool {
    !loc::is_web(href) && href.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// RFC 3986 section 3.1.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

fn restriction(video: &mut Video, name: &str, value: &str, note: &mut Note<'_>) {
    let rule = video.restriction.get_or_insert_with(Restriction::default);
    match name {
        "restriction" => {
            for code in words(value, &[',', ';', ' ', '\t', '\n'], Vec::new()) {
                if !is_country(&code) {
                    note(IssueCode::InvalidTagValue, &code);
                } else if rule.countries.len() < MAX_WORDS {
                    rule.countries.push(code.to_ascii_uppercase());
                }
            }
        }
        "restriction@relationship" => attribute(&mut rule.relationship, value, note),
        _ => {}
    }
}

fn platform(video: &mut Video, name: &str, value: &str, note: &mut Note<'_>) {
    let rule = video.platform.get_or_insert_with(Platform::default);
    match name {
        "platform" => {
            for word in words(value, &[',', ';', ' ', '\t', '\n'], Vec::new()) {
                let word = word.to_ascii_lowercase();
                if matches!(word.as_str(), "web" | "mobile" | "tv") {
                    rule.platforms.push(word);
                } else {
                    note(IssueCode::InvalidTagValue, &word);
                }
            }
            rule.platforms.truncate(MAX_WORDS);
        }
        "platform@relationship" => attribute(&mut rule.relationship, value, note),
        _ => {}
    }
}

/// Prices come again; what is said is of the last one.
fn price(prices: &mut [Price], name: &str, value: String, note: &mut Note<'_>) {
    let Some(price) = prices.last_mut() else { return };
    match name {
        "price" => read(&mut price.amount, &value, number, note),
        "price@currency" => once(&mut price.currency, value, note),
        "price@type" => once(&mut price.kind, value, note),
        "price@resolution" => once(&mut price.resolution, value, note),
        _ => {}
    }
}

fn tv_show(video: &mut Video, name: &str, value: String, note: &mut Note<'_>) {
    let known = [
        "show_title",
        "video_type",
        "episode_title",
        "season_number",
        "episode_number",
        "premier_date",
    ];
    if !known.contains(&name) {
        return;
    }
    let show = video.tvshow.get_or_insert_with(TvShow::default);
    match name {
        "show_title" => once(&mut show.show_title, value, note),
        "video_type" => once(&mut show.video_type, value, note),
        "episode_title" => once(&mut show.episode_title, value, note),
        "season_number" => read(&mut show.season_number, &value, small, note),
        "episode_number" => read(&mut show.episode_number, &value, small, note),
        _ => day(&mut show.premier_date, &value, note),
    }
}

fn uploader(video: &mut Video) -> &mut Uploader {
    video.uploader.get_or_insert_with(Uploader::default)
}

fn publication(news: &mut News) -> &mut Publication {
    news.publication.get_or_insert_with(Publication::default)
}

/// Of a field that comes again the first counts.
fn once(field: &mut Option<String>, value: String, note: &mut Note<'_>) {
    if field.is_some() {
        note(IssueCode::DuplicateTag, &value);
    } else {
        *field = Some(value);
    }
}

fn read<T>(
    field: &mut Option<T>,
    value: &str,
    reader: impl Fn(&str) -> Option<T>,
    note: &mut Note<'_>,
) {
    if field.is_some() {
        return note(IssueCode::DuplicateTag, value);
    }
    *field = reader(value);
    if field.is_none() && !value.is_empty() {
        note(IssueCode::InvalidTagValue, value);
    }
}

fn day(field: &mut Option<Lastmod>, value: &str, note: &mut Note<'_>) {
    if field.is_some() {
        return note(IssueCode::DuplicateTag, value);
    }
    *field = date::lastmod(value);
    if field.is_none() && !value.is_empty() {
        note(IssueCode::InvalidDate, value);
    }
}

fn attribute(field: &mut Option<Relationship>, value: &str, note: &mut Note<'_>) {
    let known = match value.trim().to_ascii_lowercase().as_str() {
        "allow" => Some(Relationship::Allow),
        "deny" => Some(Relationship::Deny),
        _ => None,
    };
    if known.is_none() {
        note(IssueCode::InvalidAttributeValue, value);
    }
    *field = field.or(known);
}

fn flag(value: &str) -> Option<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "yes" | "true" | "1" | "y" => Some(true),
        "no" | "false" | "0" | "n" => Some(false),
        _ => None,
    }
}

fn number(value: &str) -> Option<f64> {
    let value = value.trim();
    let number: f64 = value.parse().or_else(|_| value.replace(',', ".").parse()).ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

fn rating(value: &str) -> Option<f64> {
    number(value).filter(|rating| *rating <= 5.0)
}

/// A count: `1234`, `1,234`, `1 234`, `1234.0`. What stands behind a separator is three
/// digits (in India two, but for the last ones), or a fraction of nothing.
fn whole(value: &str) -> Option<u64> {
    let value = value.trim();
    if value.len() > 40 {
        return None;
    }
    let is_separator = |c: char| matches!(c, ',' | '.' | '_' | '\'') || c.is_whitespace();
    let value = match value.rsplit_once(['.', ',']) {
        Some((whole, "0" | "00")) => whole,
        _ => value,
    };
    let groups: Vec<&str> = value.split(is_separator).collect();
    let (first, rest) = groups.split_first()?;
    let (last, between) = rest.split_last().unzip();
    let grouped = first.len() <= 3
        && last.is_none_or(|last| last.len() == 3)
        && between.is_none_or(|all| all.iter().all(|group| matches!(group.len(), 2 | 3)));
    let is_number = groups.iter().all(|g| !g.is_empty() && g.bytes().all(|b| b.is_ascii_digit()));
    ((rest.is_empty() || grouped) && is_number).then(|| groups.concat().parse().ok())?
}

fn small(value: &str) -> Option<u32> {
    whole(value)?.try_into().ok()
}

/// Seconds, whole or not, or `h:mm:ss`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // in range by the check before
fn duration(value: &str) -> Option<u32> {
    let seconds = if value.contains(':') {
        let mut seconds = 0_u32;
        for part in value.split(':') {
            seconds = seconds.checked_mul(60)?.checked_add(part.trim().parse().ok()?)?;
        }
        seconds
    } else {
        number(value).filter(|seconds| *seconds < 1e9)?.round() as u32
    };
    DURATION.contains(&seconds).then_some(seconds)
}

/// The words of a list, added to those that were there.
fn words(value: &str, separators: &[char], mut known: Vec<String>) -> Vec<String> {
    let words = value.split(separators).map(str::trim).filter(|word| !word.is_empty());
    let room = MAX_WORDS.saturating_sub(known.len());
    known.extend(words.take(room).map(str::to_owned));
    known
}

#[cfg(test)]
mod tests;
