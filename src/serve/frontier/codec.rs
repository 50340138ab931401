//! Messages as prost reads them, but for those of too many parts.
//!
//! A part takes two bytes on the wire and a hundred in memory: a message of a mebibyte
//! could become fifty. So the parts that a message consists of are counted before it is
//! read. Parts of parts are not: of these each takes some ten times what it did.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Parts of one message at most, such as the URLs of a batch.
pub(super) const MAX_PARTS: usize = 16_384;

/// [`ProstCodec`] for messages of at most 16,384 parts.
#[derive(Debug)]
pub struct Bounded<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Bounded<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for Bounded<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder(ProstCodec::<T, U>::default().decoder())
    }
}

/// Reads such messages.
#[derive(Debug)]
pub struct BoundedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // All of it: what has come is in one piece.
        if has_more_parts(message.chunk(), MAX_PARTS) {
            let why =
                format!("a message of more than {MAX_PARTS} parts, or with groups: send several");
            return Err(Status::resource_exhausted(why));
        }
        self.0.decode(message)
    }
}

/// Has a message more parts than so many, as far as it is one? Parts that are no
/// numbers count: numbers take no more room in memory than four times that on the wire.
fn has_more_parts(mut message: &[u8], most: usize) -> bool {
    let mut parts = 0;
    while let Some(tag) = varint(&mut message) {
        let skipped = match tag & 7 {
            0 => varint(&mut message).map(|_| 0),
            1 => Some(8),
            5 => Some(4),
            2 => {
                parts += 1;
                varint(&mut message).and_then(|length| usize::try_from(length).ok())
            }
            // Groups, which no message has, and in which more parts could hide.
            3 | 4 => return true,
            _ => None,
        };
        let rest = skipped.and_then(|skipped| message.get(skipped..));
        match rest {
            Some(rest) if parts <= most => message = rest,
            _ => break,
        }
    }
    parts > most
}

/// Takes a number off the start (protobuf encoding, "Base 128 Varints").
fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for place in 0..10 {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::proto::{DiscoveredBatch, UrlInfo};
    use super::*;
    use proptest::prelude::*;

    fn batch(items: usize, url: &str) -> Vec<u8> {
        let item = UrlInfo { url: url.to_owned(), ..UrlInfo::default() };
        DiscoveredBatch { id: "b".to_owned(), items: vec![item; items] }.encode_to_vec()
    }

    #[test]
    fn the_parts_of_a_message_are_counted_whatever_they_hold() {
        for url in ["", "https://a.example/", &"https://a.example/".repeat(1_000)] {
            // Its name is one.
            assert!(!has_more_parts(&batch(9, url), 10), "{url:.20}");
            assert!(has_more_parts(&batch(10, url), 10), "{url:.20}");
        }
        // What is read past holds none of them back.
        let hidden = [&[0x7b, 0x7c][..], &batch(10, "")].concat();
        assert!(has_more_parts(&hidden, 10));
        let most = batch(2_000_000, "");
        assert!(most.len() > 4_000_000 && has_more_parts(&most, MAX_PARTS));
    }

    proptest! {
        #[test]
        fn nothing_that_comes_makes_it_panic(message in prop::collection::vec(any::<u8>(), 0..64)) {
            has_more_parts(&message, 3);
        }
    }
}
