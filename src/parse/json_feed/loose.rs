//! Walking JSON without minding what is of another type than it should be.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Reading;
use super::place::{Progress, Spot};
use crate::parse::feed::relation;

/// The fields of an item that matter, as texts.
#[derive(Debug, Default)]
pub(super) struct RawItem {
    /// Where the item begins.
    pub(super) spot: Spot,
    pub(super) id: Option<Found>,
    pub(super) url: Option<Found>,
    /// Of a hub: how one speaks with it.
    kind: Option<Found>,
    pub(super) external_url: Option<Found>,
    pub(super) title: Option<Found>,
    pub(super) summary: Option<Found>,
    pub(super) content_text: Option<Found>,
    pub(super) content_html: Option<Found>,
    pub(super) date_published: Option<Found>,
    pub(super) date_modified: Option<Found>,
}

impl RawItem {
    /// Is it a hub that does not speak `WebSub` (JSON Feed 1.1, `hubs`)?
    fn is_of_another_protocol(&self) -> bool {
        let is_ours = |kind: &Found| {
            ["websub", "pubsubhubbub"].iter().any(|ours| kind.text.eq_ignore_ascii_case(ours))
        };
        !self.kind.as_ref().is_none_or(is_ours)
    }
}

/// A value, and where its key stands.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) text: String,
    pub(super) spot: Spot,
}

/// A scalar as text; `None` for null, arrays and objects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loose {
    Any,
    /// A number is none: as a path it would be a page that nobody has.
    Text,
}

impl Loose {
    fn number(self, number: &impl ToString) -> Option<String> {
        (self == Self::Any).then(|| number.to_string())
    }
}

impl<'de> DeserializeSeed<'de> for Loose {
    type Value = Option<String>;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Loose {
    type Value = Option<String>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_i64<E>(self, v: i64) -> Result<Self::Value, E> {
        Ok(self.number(&v))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Self::Value, E> {
        Ok(self.number(&v))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Self::Value, E> {
        Ok(self.number(&v))
    }
    fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
        Ok(Some(v.to_owned()))
    }
    fn visit_string<E>(self, v: String) -> Result<Self::Value, E> {
        Ok(Some(v))
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

/// The document as a whole.
pub(super) struct Document<'r, 'a, 's>(pub(super) &'r mut Reading<'a, 's>);

impl<'de> DeserializeSeed<'de> for Document<'_, '_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let reading = self.0;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "version" | "title" => {
                    if map.next_value_seed(Loose::Any)?.is_some() {
                        reading.proven();
                    }
                }
                "items" => map.next_value_seed(Items { reading, what: What::Items })?,
                "hubs" => map.next_value_seed(Items { reading, what: What::Hubs })?,
                // Of a name that comes again the last counts, as for all who read JSON.
                "feed_url" => {
                    let url = map.next_value_seed(Loose::Text)?;
                    reading.hints.self_url = url.and_then(|url| reading.of_document(&url));
                }
                "next_url" => {
                    let url = map.next_value_seed(Loose::Text)?;
                    reading.hints.next_page = url.and_then(|url| reading.of_document(&url));
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Which array is walked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Items,
    Hubs,
}

/// An array of objects.
struct Items<'r, 'a, 's> {
    reading: &'r mut Reading<'a, 's>,
    what: What,
}

impl<'de> DeserializeSeed<'de> for Items<'_, '_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, '_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.reading.has_items |= self.what == What::Items;
        let progress = self.reading.progress.clone();
        while let Some(item) = seq.next_element_seed(Object(&progress))? {
            match (self.what, item) {
                (What::Items, Some(item)) => self.reading.item(&item),
                (What::Hubs, Some(item)) if item.is_of_another_protocol() => {}
                (What::Hubs, Some(item)) => {
                    if let Some(hub) = item.url.and_then(|url| self.reading.of_document(&url.text))
                    {
                        relation("hub", &hub, &mut self.reading.hints);
                    }
                }
                (_, None) => {}
            }
            if self.reading.stopped {
                return Err(A::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

/// An object of an array; `None` for anything else.
struct Object<'p>(&'p Progress);

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = Option<RawItem>;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = Option<RawItem>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        // The brace is behind us.
        let mut item = RawItem { spot: self.0.spot().back(1), ..RawItem::default() };
        while let Some(key) = map.next_key::<String>()? {
            let begins = self.0.spot().back(key.len() + 2);
            let slot = match key.as_str() {
                "id" => &mut item.id,
                "url" => &mut item.url,
                "type" => &mut item.kind,
                "external_url" => &mut item.external_url,
                "title" => &mut item.title,
                "summary" => &mut item.summary,
                "content_text" => &mut item.content_text,
                "content_html" => &mut item.content_html,
                "date_published" => &mut item.date_published,
                "date_modified" => &mut item.date_modified,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let form = if key.ends_with("url") { Loose::Text } else { Loose::Any };
            *slot = map.next_value_seed(form)?.map(|text| Found { text, spot: begins });
        }
        Ok(Some(item))
    }
}
