//! What holds of every body, packed or not.
//!
//! In which pieces it is read does not matter, the limit holds for every claim,
//! and what was packed comes out as it went in, or, if cut, as its beginning.

use std::io::Read as _;

use bytes::Bytes;
use sitemapd::fetch::WireBody;
use sitemapd::fetch::body::{Decoded, Decoding, End, MAX_LAYERS};

use super::Dice;
use crate::support::pack;

/// What a server may say of its codings, in the order applied.
const SAID: [&[&str]; 12] = [
    &[],
    &[],
    &["gzip"],
    &["x-gzip"],
    &["br"],
    &["zstd"],
    &["deflate"],
    &["identity"],
    &["gzip", "br"],
    &["zstd", "gzip"],
    &["gzip", "gzip", "gzip"],
    &["unheard-of", ""],
];

const LIMITS: [u64; 5] = [0, 1, 100, 10_000, 1 << 20];

/// Bytes that are packed here to be unpacked again.
const MAX_PACKED: usize = 4 * 1024;

/// The law of the decoder chain.
pub(super) fn holds(bytes: &[u8], mut dice: Dice) {
    for said in [SAID[0], dice.pick(&SAID)] {
        let limit = dice.pick(&LIMITS);
        reads_alike_in_any_pieces(bytes, said, limit, &mut dice);
    }
    let plain = &bytes[..bytes.len().min(MAX_PACKED)];
    // What looks like a gzip file is one, whatever it was meant to be.
    if !plain.starts_with(&[0x1f, 0x8b]) {
        comes_out_as_it_went_in(plain, &mut dice);
    }
}

fn decoded(bytes: &[u8], said: &[&str], limit: u64) -> Decoded {
    let said: Vec<String> = said.iter().map(|s| (*s).to_owned()).collect();
    Decoded::new(Bytes::copy_from_slice(bytes), &said, limit)
}

fn whole(bytes: &[u8], said: &[&str], limit: u64) -> (Vec<u8>, Decoding) {
    let mut body = decoded(bytes, said, limit);
    let mut out = Vec::new();
    body.read_to_end(&mut out).expect("it never fails");
    (out, body.outcome())
}

fn reads_alike_in_any_pieces(bytes: &[u8], said: &[&str], limit: u64, dice: &mut Dice) {
    let (out, outcome) = whole(bytes, said, limit);
    assert!(out.len() as u64 <= limit, "{} over {limit}", out.len());
    assert_eq!(outcome.bytes, out.len() as u64);
    assert_eq!(Some(outcome.hash), WireBody::from(out.clone()).hash());
    assert!(outcome.layers.len() <= MAX_LAYERS);
    assert_eq!(outcome.compression, outcome.layers.last().copied());
    // The limit holds for what is between two layers, too.
    let cut_at_limit = outcome.end == End::OverLimit && outcome.layers.len() < 2;
    assert!(!cut_at_limit || outcome.bytes == limit, "{outcome:?}");
    if outcome.layers.is_empty() && outcome.end == End::Whole {
        assert_eq!(out, bytes);
    }
    let mut body = decoded(bytes, said, limit);
    let mut pieces = Vec::new();
    let mut piece = vec![0; 1 + dice.pick(&[0, 1, 30, 4_000, 20_000])];
    loop {
        let size = 1 + dice.below(piece.len());
        match body.read(&mut piece[..size]).expect("it never fails") {
            0 => break,
            n => pieces.extend_from_slice(&piece[..n]),
        }
    }
    assert_eq!(pieces, out);
    assert_eq!(body.outcome(), outcome);
    // Nobody need read it at all.
    assert_eq!(decoded(bytes, said, limit).outcome(), outcome);
    if cut_at_limit {
        // With one byte more it may show that there is another layer below.
        let (wider, end) = whole(bytes, said, limit + 1);
        if end.layers == outcome.layers {
            assert_eq!(wider.len() as u64, limit + 1);
            assert_eq!(wider[..out.len()], out);
        }
    }
}

fn comes_out_as_it_went_in(plain: &[u8], dice: &mut Dice) {
    let inner = pack::zstd(plain);
    let way = dice.below(8);
    let mut halves = pack::gzip(&plain[..plain.len() / 2]);
    halves.extend(pack::gzip(&plain[plain.len() / 2..]));
    let (packed, said): (Vec<u8>, &[&str]) = match way {
        0 => (pack::gzip(plain), &[]),
        1 => (pack::gzip(plain), &["gzip"]),
        2 => (halves, &["gzip"]),
        3 => (pack::gzip(&inner), &["zstd", "gzip"]),
        4 => (inner.clone(), &["zstd"]),
        5 => (pack::zlib(plain), &["deflate"]),
        // Thorough, and slow.
        6 if plain.len() < 300 => (pack::brotli(plain), &["br"]),
        _ => (pack::raw_deflate(plain), &["deflate"]),
    };
    let between = if way == 3 { inner.len() } else { 0 };
    let limit = plain.len().max(between) as u64;
    let (out, outcome) = whole(&packed, said, limit);
    assert_eq!(out, plain, "{said:?}: {outcome:?}");
    assert_eq!(outcome.end, End::Whole, "{said:?}: {outcome:?}");
    let cut = dice.below(packed.len());
    // A stream without its first bytes may look like anything.
    if cut > 4 && said.len() == 1 {
        let (out, outcome) = whole(&packed[..cut], said, limit);
        assert!(plain.starts_with(&out), "{said:?} cut at {cut} of {}", packed.len());
        let first_half = way == 2 && out.len() == plain.len() / 2;
        assert!(first_half || outcome.end != End::Whole, "{said:?}: {outcome:?}");
    }
    if let Some(less) = limit.checked_sub(1).filter(|_| between == 0) {
        let (out, outcome) = whole(&packed, said, less);
        assert_eq!((out.as_slice(), outcome.end), (&plain[..plain.len() - 1], End::OverLimit));
    }
}
