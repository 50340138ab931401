//! Where the list of blocks goes on: they have no numbers, so the cursor names the
//! last one that was given, by its crawl, whether it is of a prefix, and its text.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Cursor;
use crate::model::CrawlId;
use crate::store::views::BlockPlace;

/// Where the next part of the blocks starts; opaque to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockCursor(pub(crate) BlockPlace);

impl fmt::Display for BlockCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlockPlace { crawl, pattern, is_prefix } = &self.0;
        write!(f, "b{:x}.{}.{pattern}", crawl.0, u8::from(*is_prefix))
    }
}

impl FromStr for BlockCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.strip_prefix('b').ok_or(())?.splitn(3, '.');
        let mut part = || parts.next().ok_or(());
        let crawl = i64::from_str_radix(part()?, 16).ok().filter(|id| *id >= 0).ok_or(())?;
        let is_prefix = match part()? {
            "0" => false,
            "1" => true,
            _ => return Err(()),
        };
        let pattern = part()?.to_owned();
        Ok(Self(BlockPlace { crawl: CrawlId(crawl), pattern, is_prefix }))
    }
}

impl Serialize for BlockCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlockCursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(|()| D::Error::custom("cursor must be a `next` from the same list"))
    }
}

impl JsonSchema for BlockCursor {
    fn schema_name() -> Cow<'static, str> {
        "BlockCursor".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Cursor::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is_one() {
        let pattern = "https://example.org/a.b?c=1".to_owned();
        let place = BlockPlace { crawl: CrawlId(300), pattern, is_prefix: true };
        let text = BlockCursor(place.clone()).to_string();
        assert_eq!(text.parse(), Ok(BlockCursor(place)));
        for wrong in ["", "r5", "b", "b1", "b1.0", "b1.2.x", "bz.0.x", "b-1.0.x", "1.0.x"] {
            assert_eq!(wrong.parse::<BlockCursor>(), Err(()), "{wrong}");
        }
    }
}
