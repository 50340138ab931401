//! What holds of the fields of extensions: images, videos, news, alternates.
//!
//! What was kept of them, written again without a fault, is kept as the same; and
//! what one element says is never taken for what another one of its name says.

use std::fmt::Write as _;

use sitemapd::model::Lastmod;
use sitemapd::model::extension::{
    Alternate, Extensions, Image, News, Price, Relationship, TvShow, Video,
};
use sitemapd::parse::IssueCode;

use super::Dice;
use super::again::as_written;
use super::document::{self, Found, Manner};

/// What a urlset with extensions begins with.
const ROOT: &str = "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
     xmlns:image=\"http://www.google.com/schemas/sitemap-image/1.1\" \
     xmlns:video=\"http://www.google.com/schemas/sitemap-video/1.1\" \
     xmlns:news=\"http://www.google.com/schemas/sitemap-news/0.9\" \
     xmlns:xhtml=\"http://www.w3.org/1999/xhtml\">";

/// What was kept is kept again.
pub(super) fn are_kept_again(found: &Found, plain: &Manner) {
    // What was cut at a limit may be cut elsewhere.
    if found.has(IssueCode::TooManyExtensions) {
        return;
    }
    let pages = found.listed.iter().filter(|item| !item.child);
    let told: Vec<_> = pages.filter_map(|i| Some((&i.loc, i.extensions.as_ref()?))).collect();
    if told.is_empty() {
        return;
    }
    let mut page = String::from(ROOT);
    for (loc, said) in &told {
        page.push_str("<url>");
        text(&mut page, "loc", Some(loc));
        write_all(&mut page, said);
        page.push_str("</url>");
    }
    page.push_str("</urlset>");
    // No reference stands for it.
    if page.contains('\0') {
        return;
    }
    let again = document::read(page.as_bytes(), plain);
    assert!(again.report.complete, "{page}");
    let read: Vec<_> = again.listed.iter().map(|i| i.extensions.clone()).collect();
    let want: Vec<_> = told.iter().map(|(_, said)| Some(with_dates_as_written(said))).collect();
    assert_eq!(read, want, "{page}");
}

fn with_dates_as_written(said: &Extensions) -> Extensions {
    let mut said = said.clone();
    let written = |date: &mut Option<Lastmod>| *date = date.map(as_written);
    for video in &mut said.videos {
        written(&mut video.expiration_date);
        written(&mut video.publication_date);
        if let Some(show) = &mut video.tvshow {
            written(&mut show.premier_date);
        }
    }
    said.news.iter_mut().for_each(|news| written(&mut news.publication_date));
    said
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' | '<' | '>' | '"' => write!(out, "&#{};", u32::from(c)).expect("a string"),
            c if c != '\0' && c != ' ' && (c.is_control() || c.is_whitespace()) => {
                write!(out, "&#x{:X};", u32::from(c)).expect("a string");
            }
            c => out.push(c),
        }
    }
    out
}

fn text(out: &mut String, tag: &str, value: Option<&String>) {
    if let Some(value) = value {
        write!(out, "<{tag}>{}</{tag}>", escaped(value)).expect("a string");
    }
}

fn shown(out: &mut String, tag: &str, value: Option<impl ToString>) {
    text(out, tag, value.map(|value| value.to_string()).as_ref());
}

fn flag(out: &mut String, tag: &str, value: Option<bool>) {
    shown(out, tag, value.map(|value| if value { "yes" } else { "no" }));
}

/// An element with attributes, unless it says nothing at all.
fn element(out: &mut String, tag: &str, attributes: &[(&str, Option<&str>)], text: Option<&str>) {
    if text.is_none() && attributes.iter().all(|(_, value)| value.is_none()) {
        return;
    }
    write!(out, "<{tag}").expect("a string");
    for (name, value) in attributes {
        if let Some(value) = value {
            write!(out, " {name}=\"{}\"", escaped(value)).expect("a string");
        }
    }
    write!(out, ">{}</{tag}>", escaped(text.unwrap_or_default())).expect("a string");
}

fn write_all(out: &mut String, said: &Extensions) {
    said.images.iter().for_each(|image| write_image(out, image));
    said.videos.iter().for_each(|video| write_video(out, video));
    said.news.iter().for_each(|news| write_news(out, news));
    for Alternate { hreflang, href, media } in &said.alternates {
        let attributes = [
            ("rel", Some("alternate")),
            ("hreflang", hreflang.as_deref()),
            ("media", media.as_deref()),
            ("href", Some(href.as_str())),
        ];
        element(out, "xhtml:link", &attributes, None);
    }
}

fn write_image(out: &mut String, image: &Image) {
    out.push_str("<image:image>");
    text(out, "image:loc", image.loc.as_ref());
    text(out, "image:title", image.title.as_ref());
    text(out, "image:caption", image.caption.as_ref());
    text(out, "image:geo_location", image.geo_location.as_ref());
    text(out, "image:license", image.license.as_ref());
    out.push_str("</image:image>");
}

fn write_video(out: &mut String, video: &Video) {
    out.push_str("<video:video>");
    text(out, "video:thumbnail_loc", video.thumbnail_loc.as_ref());
    text(out, "video:title", video.title.as_ref());
    text(out, "video:description", video.description.as_ref());
    text(out, "video:content_loc", video.content_loc.as_ref());
    let embed = video.allow_embed.map(|embed| if embed { "true" } else { "false" });
    let attributes = [("allow_embed", embed), ("autoplay", video.autoplay.as_deref())];
    element(out, "video:player_loc", &attributes, video.player_loc.as_deref());
    shown(out, "video:duration", video.duration);
    shown(out, "video:expiration_date", video.expiration_date);
    shown(out, "video:rating", video.rating);
    shown(out, "video:view_count", video.view_count);
    shown(out, "video:publication_date", video.publication_date);
    flag(out, "video:family_friendly", video.family_friendly);
    flag(out, "video:requires_subscription", video.requires_subscription);
    flag(out, "video:live", video.live);
    text(out, "video:category", video.category.as_ref());
    let attributes = [("title", video.gallery_title.as_deref())];
    element(out, "video:gallery_loc", &attributes, video.gallery_loc.as_deref());
    video.tags.iter().for_each(|tag| text(out, "video:tag", Some(tag)));
    if let Some(uploader) = &video.uploader {
        let attributes = [("info", uploader.info.as_deref())];
        element(out, "video:uploader", &attributes, uploader.name.as_deref());
    }
    let relationship = |said: Option<Relationship>| {
        said.map(|said| if said == Relationship::Allow { "allow" } else { "deny" })
    };
    if let Some(rule) = &video.restriction {
        let attributes = [("relationship", relationship(rule.relationship))];
        element(out, "video:restriction", &attributes, list(&rule.countries, " ").as_deref());
    }
    if let Some(rule) = &video.platform {
        let attributes = [("relationship", relationship(rule.relationship))];
        element(out, "video:platform", &attributes, list(&rule.platforms, " ").as_deref());
    }
    for price in &video.prices {
        let Price { amount, currency, kind, resolution } = price;
        let attributes = [
            ("currency", currency.as_deref()),
            ("type", kind.as_deref()),
            ("resolution", resolution.as_deref()),
        ];
        let amount = amount.map(|amount| amount.to_string());
        element(out, "video:price", &attributes, amount.as_deref());
    }
    if let Some(show) = &video.tvshow {
        write_show(out, show);
    }
    out.push_str("</video:video>");
}

fn write_show(out: &mut String, show: &TvShow) {
    out.push_str("<video:tvshow>");
    text(out, "video:show_title", show.show_title.as_ref());
    text(out, "video:video_type", show.video_type.as_ref());
    text(out, "video:episode_title", show.episode_title.as_ref());
    shown(out, "video:season_number", show.season_number);
    shown(out, "video:episode_number", show.episode_number);
    shown(out, "video:premier_date", show.premier_date);
    out.push_str("</video:tvshow>");
}

fn write_news(out: &mut String, news: &News) {
    out.push_str("<news:news>");
    if let Some(publication) = &news.publication {
        out.push_str("<news:publication>");
        text(out, "news:name", publication.name.as_ref());
        text(out, "news:language", publication.language.as_ref());
        out.push_str("</news:publication>");
    }
    shown(out, "news:publication_date", news.publication_date);
    text(out, "news:title", news.title.as_ref());
    text(out, "news:access", news.access.as_ref());
    text(out, "news:genres", list(&news.genres, ",").as_ref());
    text(out, "news:keywords", list(&news.keywords, ",").as_ref());
    text(out, "news:stock_tickers", list(&news.stock_tickers, ",").as_ref());
    out.push_str("</news:news>");
}

/// The words of a list, with a separator before the first of them too, so that nothing
/// is taken off it with what is around the text.
fn list(words: &[String], separator: &str) -> Option<String> {
    let joined = || format!("{separator}{}{separator}", words.join(separator));
    (!words.is_empty()).then(joined)
}

/// Elements of a video that say something beside their text.
const ELEMENTS: [(&str, &[&str]); 6] = [
    ("price", &["currency", "type", "resolution"]),
    ("price", &["currency", "type"]),
    ("restriction", &["relationship"]),
    ("platform", &["relationship"]),
    ("uploader", &["info"]),
    ("gallery_loc", &["title"]),
];

/// Texts of such elements: good, bad, and none.
const SAID: [&str; 14] = [
    "",
    "",
    "1",
    "2.50",
    "3,5",
    "free",
    "DE",
    "US FR",
    "XX",
    "web",
    "tv mobile",
    "fax",
    "Bob",
    "$1",
];

/// What is said together is what is said one by one: prices are all kept, of anything else
/// one element is, with all that it says and nothing of another.
pub(super) fn elements_are_not_mixed(bytes: &[u8], dice: &mut Dice) {
    let words = String::from_utf8_lossy(bytes);
    let fit = |c: &char| c.is_ascii_graphic() || c.is_alphabetic();
    let words: Vec<String> = words
        .split(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"'))
        .map(|word| word.chars().filter(fit).take(12).collect())
        .take(64)
        .collect();
    let mut drawn: Vec<String> = Vec::new();
    for number in 0..2 + dice.below(4) {
        let (name, attributes) = dice.pick(&ELEMENTS);
        let said = if dice.below(3) == 0 {
            words.get(dice.below(words.len().max(1))).map_or("", String::as_str)
        } else {
            dice.pick(&SAID)
        };
        let mut out = String::new();
        let values: Vec<String> = attributes
            .iter()
            .map(|attribute| match *attribute {
                "relationship" => dice.pick(&["allow", "deny", "maybe"]).to_owned(),
                _ => format!("v{number}"),
            })
            .collect();
        let named: Vec<(&str, Option<&str>)> = attributes
            .iter()
            .zip(&values)
            .map(|(name, value)| (*name, Some(value.as_str()).filter(|_| dice.below(3) > 0)))
            .collect();
        element(&mut out, &format!("video:{name}"), &named, Some(said));
        drawn.push(out);
    }
    let all = video_of(&drawn.concat());
    let each: Vec<Video> = drawn.iter().map(|element| video_of(element)).collect();
    let prices: Vec<Price> = each.iter().flat_map(|one| one.prices.clone()).collect();
    assert_eq!(all.prices, prices, "{drawn:?}");
    let is_of_one = each.iter().any(|one| one.restriction == all.restriction);
    assert!(is_of_one, "{drawn:?}: {:?}", all.restriction);
    let is_of_one = each.iter().any(|one| one.platform == all.platform);
    assert!(is_of_one, "{drawn:?}: {:?}", all.platform);
    let is_of_one = each.iter().any(|one| one.uploader == all.uploader);
    assert!(is_of_one, "{drawn:?}: {:?}", all.uploader);
    let gallery = |of: &Video| (of.gallery_loc.clone(), of.gallery_title.clone());
    let is_of_one = each.iter().any(|one| gallery(one) == gallery(&all));
    assert!(is_of_one, "{drawn:?}: {:?}", gallery(&all));
}

/// A count is read whatever separates its thousands, and nothing else is made of it.
pub(super) fn counts_are_exact(dice: &mut Dice) {
    let most = dice.pick(&[10, 1_000, 100_000, 10_000_000, 1_000_000_000]);
    let number = dice.below(most);
    let digits = number.to_string();
    let separator = dice.pick(&[",", ".", " ", "'", "_", "\u{a0}", "\u{202f}"]);
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push_str(separator);
        }
        grouped.push(digit);
    }
    let fraction = 1 + dice.below(99);
    let table = [
        (digits.clone(), Some(number as u64)),
        (grouped.clone(), Some(number as u64)),
        (format!("{digits}.0"), Some(number as u64)),
        (format!("{digits}.00"), Some(number as u64)),
        (format!("{digits}.{fraction:02}"), None),
        (format!("{digits}.{fraction}"), None),
        (format!("{grouped}.{}5", dice.below(10)), None),
        (format!("-{digits}"), None),
    ];
    for (text, want) in table {
        let read = video_of(&format!("<video:view_count>{text}</video:view_count>"));
        assert_eq!(read.view_count, want, "{text}");
    }
}

/// The video that says this.
fn video_of(inner: &str) -> Video {
    let page = format!(
        "{ROOT}<url><loc>https://example.com/</loc><video:video>{inner}</video:video></url></urlset>"
    );
    let found = document::read(page.as_bytes(), &Manner::default());
    let said = found.listed.first().and_then(|item| item.extensions.clone());
    said.and_then(|said| said.videos.into_iter().next()).unwrap_or_else(|| panic!("{page}"))
}
