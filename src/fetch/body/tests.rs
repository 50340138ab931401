//! Bodies in every wrapping that origins send, and every way to be broken.

use std::io::{Read, Write};

use async_compression::codecs::brotli::params::EncoderParams;
use async_compression::codecs::zstd::params::CParameter;
use async_compression::codecs::{
    BrotliEncoder, DeflateEncoder, EncodeV2, GzipEncoder, ZlibEncoder, ZstdEncoder,
};
use async_compression::core::Level;
use async_compression::core::util::{PartialBuffer, WriteBuffer};
use bytes::Bytes;
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

use super::{Decoded, Decoding, End};
use crate::fetch::WireBody;

const MIB: u64 = 1024 * 1024;
const XML: &[u8] =
    b"<?xml version=\"1.0\"?><urlset><url><loc>http://a.example/</loc></url></urlset>";

fn pack(mut encoder: impl EncodeV2, pieces: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut out = [0; 8 * 1024];
    for piece in pieces {
        let mut input = PartialBuffer::new(&piece[..]);
        while !input.unwritten().is_empty() {
            let mut output = WriteBuffer::new_initialized(&mut out);
            encoder.encode(&mut input, &mut output).unwrap();
            packed.extend_from_slice(output.written());
        }
    }
    loop {
        let mut output = WriteBuffer::new_initialized(&mut out);
        let done = encoder.finish(&mut output).unwrap();
        packed.extend_from_slice(output.written());
        if done {
            return packed;
        }
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    pack(GzipEncoder::new(Level::Default.into()), [bytes.to_vec()])
}

fn brotli(bytes: &[u8]) -> Vec<u8> {
    pack(BrotliEncoder::new(EncoderParams::default()), [bytes.to_vec()])
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    pack(ZstdEncoder::new(3), [bytes.to_vec()])
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    pack(ZlibEncoder::new(Level::Default.into()), [bytes.to_vec()])
}

fn raw_deflate(bytes: &[u8]) -> Vec<u8> {
    pack(DeflateEncoder::new(Level::Default.into()), [bytes.to_vec()])
}

/// `mib` MiB of zeros.
fn zeros(mib: usize) -> impl Iterator<Item = Vec<u8>> {
    std::iter::repeat_n(vec![0; 1024 * 1024], mib)
}

fn decoded(body: impl Into<WireBody>, encoding: &[&str], max: u64) -> Decoded {
    let encoding: Vec<String> = encoding.iter().map(|&coding| coding.to_owned()).collect();
    Decoded::new(body, &encoding, max)
}

/// Reads a body, from memory and from a file alike.
fn read(body: impl Into<Bytes>, encoding: &[&str]) -> (Vec<u8>, Decoding) {
    let body = body.into();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&body).unwrap();
    let lying = WireBody::of_file(file, body.len() as u64);
    let from_file = read_all(lying, encoding);
    let from_memory = read_all(body, encoding);
    assert!(from_file == from_memory, "{:?} and {:?}", from_file.1, from_memory.1);
    from_memory
}

fn read_all(body: impl Into<WireBody>, encoding: &[&str]) -> (Vec<u8>, Decoding) {
    let mut decoded = decoded(body, encoding, MIB);
    let mut bytes = Vec::new();
    decoded.read_to_end(&mut bytes).unwrap();
    let outcome = decoded.outcome();
    assert_eq!(outcome.bytes, bytes.len() as u64);
    assert_eq!(outcome.hash, xxh3_128(&bytes));
    (bytes, outcome)
}

/// A name, a body, what is said of it, and the layers that are there.
type Case = (&'static str, Vec<u8>, &'static [&'static str], &'static [&'static str]);

#[test]
fn a_body_is_unpacked_by_its_bytes_and_not_by_what_is_said_of_it() {
    let twice = gzip(&gzip(XML));
    let br_of_gz = brotli(&gzip(XML));
    let cases: [Case; 22] = [
        ("plain", XML.to_vec(), &[], &[]),
        ("gzip file", gzip(XML), &[], &["gzip"]),
        ("gzip coding", gzip(XML), &["gzip"], &["gzip"]),
        ("x-gzip coding", gzip(XML), &["x-gzip"], &["gzip"]),
        ("gzip file in gzip coding", twice.clone(), &["gzip"], &["gzip", "gzip"]),
        ("double gzip, unsaid", twice.clone(), &[], &["gzip", "gzip"]),
        ("double gzip coding", twice, &["gzip", "gzip"], &["gzip", "gzip"]),
        ("gzip said of one layer twice", gzip(XML), &["gzip", "gzip"], &["gzip"]),
        ("gzip said of plain", XML.to_vec(), &["gzip"], &[]),
        ("zstd said of plain", XML.to_vec(), &["zstd"], &[]),
        ("br said of plain", XML.to_vec(), &["br"], &[]),
        ("deflate said of plain", XML.to_vec(), &["deflate"], &[]),
        ("br", brotli(XML), &["br"], &["br"]),
        ("zstd", zstd(XML), &["zstd"], &["zstd"]),
        ("deflate with zlib", zlib(XML), &["deflate"], &["deflate"]),
        ("raw deflate", raw_deflate(XML), &["deflate"], &["deflate"]),
        ("gzip file in br", br_of_gz.clone(), &["br"], &["br", "gzip"]),
        ("gzip then br", br_of_gz, &["gzip", "br"], &["br", "gzip"]),
        ("gzip said of br", gzip(XML), &["br"], &["gzip"]),
        ("gzip said of zstd", gzip(XML), &["zstd"], &["gzip"]),
        ("an unknown coding", XML.to_vec(), &["utf-8"], &[]),
        ("zlib gz", zlib(&gzip(XML)), &["deflate"], &["deflate", "gzip"]),
    ];
    for (name, body, encoding, layers) in cases {
        let (bytes, outcome) = read(body, encoding);
        assert_eq!(bytes, XML, "{name}");
        assert_eq!(outcome.end, End::Whole, "{name}");
        assert_eq!(outcome.layers, layers, "{name}");
        assert_eq!(outcome.compression, layers.last().copied(), "{name}");
    }
}

#[test]
fn plain_text_of_any_kind_is_plain_whatever_coding_is_said() {
    for text in [
        "<rss version=\"2.0\"><channel/></rss>",
        "<!doctype html><html></html>",
        "\u{feff}<?xml version=\"1.0\"?><feed/>",
        "http://a.example/\nhttp://a.example/b\n",
        "https://www.a.example/1\r\nhttps://www.a.example/2\r\n",
        "{\"version\":\"https://jsonfeed.org/version/1.1\",\"items\":[]}",
        "User-agent: *\nDisallow: /x\nSitemap: http://a.example/s.xml\n",
        "\n\n  <urlset></urlset>",
        "# robots\nUser-agent: *\n",
        "Sitemap: http://a.example/sitemap.xml\n",
        "Not found",
    ] {
        for coding in ["gzip", "br", "zstd", "deflate"] {
            let (bytes, outcome) = read(text, &[coding]);
            assert_eq!(String::from_utf8_lossy(&bytes), text, "{coding}");
            assert_eq!(outcome.end, End::Whole, "{coding} {text}");
            assert!(outcome.layers.is_empty(), "{coding} {text}");
        }
    }
}

#[test]
fn all_members_of_a_gzip_file_are_read() {
    let members: Vec<u8> =
        (0..6).flat_map(|n| gzip(format!("<url>{n}</url>").as_bytes())).collect();
    for encoding in [&[] as &[&str], &["gzip"]] {
        let (bytes, outcome) = read(members.clone(), encoding);
        assert_eq!(
            bytes,
            b"<url>0</url><url>1</url><url>2</url><url>3</url><url>4</url><url>5</url>"
        );
        assert_eq!(outcome.end, End::Whole);
    }
    let empty_first = [gzip(b""), gzip(XML), gzip(b"")].concat();
    assert_eq!(read(empty_first, &[]).0, XML);
    let frames =
        [zstd(b"<a>"), vec![0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 7], zstd(b"</a>")].concat();
    assert_eq!(read(frames, &["zstd"]).0, b"<a></a>");
}

#[test]
fn garbage_after_the_end_is_tolerated() {
    for garbage in [vec![0; 512], vec![0], b"\r\n".to_vec(), b"<html>".to_vec(), vec![0x1f]] {
        for (body, encoding) in [
            (gzip(XML), &[] as &[&str]),
            (gzip(XML), &["gzip"]),
            (brotli(XML), &["br"]),
            (zstd(XML), &["zstd"]),
            (zlib(XML), &["deflate"]),
            (raw_deflate(XML), &["deflate"]),
        ] {
            let (bytes, outcome) = read([body, garbage.clone()].concat(), encoding);
            assert_eq!(bytes, XML, "{encoding:?} {garbage:?}");
            assert_eq!(outcome.end, End::Whole, "{encoding:?} {garbage:?}");
        }
    }
}

#[test]
fn a_cut_at_any_byte_is_told_and_what_came_before_is_kept() {
    let text: Vec<u8> =
        (0..25_000_u32).flat_map(|n| format!("<loc>{n}</loc>").into_bytes()).collect();
    for (body, encoding, from) in [
        (gzip(&text), &[] as &[&str], 2),
        (brotli(&text), &["br"], 1),
        (zstd(&text), &["zstd"], 4),
        (zlib(&text), &["deflate"], 2),
        (raw_deflate(&text), &["deflate"], 1),
        (gzip(&gzip(&text)), &["gzip"], 24),
    ] {
        for len in (from..body.len()).step_by(body.len() / 40).chain([body.len() - 1]) {
            let (bytes, outcome) = read(body[..len].to_vec(), encoding);
            assert_eq!(outcome.end, End::Truncated, "{encoding:?} at {len} of {}", body.len());
            assert!(text.starts_with(&bytes), "{encoding:?} at {len}");
        }
        let (most, _) = read(body[..body.len() - 9].to_vec(), encoding);
        assert!(most.len() > text.len() / 2, "{encoding:?}: only {} bytes", most.len());
    }
}

#[test]
fn broken_data_is_told_and_what_came_before_is_kept() {
    let text = XML.repeat(2_000);
    let mut wrong_sum = gzip(&text);
    let sum_at = wrong_sum.len() - 8;
    wrong_sum[sum_at] ^= 1;
    let (bytes, outcome) = read(wrong_sum, &[]);
    assert_eq!(bytes, text);
    assert!(matches!(&outcome.end, End::Corrupt(how) if how.starts_with("gzip: ")), "{outcome:?}");

    let mut wrong_method = gzip(&text);
    wrong_method[2] = 9;
    let (bytes, outcome) = read(wrong_method, &["gzip"]);
    assert!(bytes.is_empty());
    assert!(matches!(outcome.end, End::Corrupt(_)), "{outcome:?}");

    for (mut body, encoding) in
        [(gzip(&text), &[] as &[&str]), (gzip(&text), &["gzip"]), (zlib(&text), &["deflate"])]
    {
        let middle = body.len() / 2;
        body[middle..middle + 8].fill(0xff);
        let (_, outcome) = read(body, encoding);
        assert_ne!(outcome.end, End::Whole, "{encoding:?}");
    }
}

#[test]
fn more_than_two_layers_are_refused_and_nothing_of_them_is_shown() {
    let four = gzip(&gzip(&gzip(&gzip(XML))));
    let chain = brotli(&gzip(&zstd(XML)));
    for (body, encoding) in [
        (four.clone(), &[] as &[&str]),
        (four.clone(), &["gzip"]),
        (four, &["gzip", "gzip", "gzip", "gzip"]),
        (chain, &["zstd", "gzip", "br"]),
    ] {
        let (bytes, outcome) = read(body, encoding);
        assert!(bytes.is_empty());
        let End::Corrupt(how) = &outcome.end else { panic!("{outcome:?}") };
        assert!(how.contains("too many layers") && how.contains("at most 2"), "{how}");
    }
}

#[test]
fn bombs_stop_at_the_limit() {
    let gz = pack(GzipEncoder::new(Level::Best.into()), zeros(16));
    let br = pack(BrotliEncoder::new(EncoderParams::default()), zeros(16));
    let zst = pack(ZstdEncoder::new(3), zeros(16));
    // Inner data is 16 MiB of zeros packed; its outer packing is a few hundred bytes.
    let nested = gzip(&gz);
    let nested_br = brotli(&br);
    // The outer layer alone is over the limit and the inner one yields nothing.
    let empty_members = gzip(&gzip(b"").repeat(100_000));
    let cases: [(&str, Vec<u8>, &[&str]); 7] = [
        ("gzip", gz, &["gzip"]),
        ("br", br.clone(), &["br"]),
        ("zstd", zst, &["zstd"]),
        ("nested gzip", nested, &["gzip"]),
        ("nested br", nested_br, &["br", "br"]),
        ("endless empty members", empty_members, &["gzip"]),
        ("br over and over", br, &["br"]),
    ];
    for (name, body, encoding) in cases {
        let mut decoded = decoded(body, encoding, MIB);
        let mut bytes = Vec::new();
        decoded.read_to_end(&mut bytes).unwrap();
        assert!(bytes.len() as u64 <= MIB, "{name}");
        assert_eq!(decoded.outcome().end, End::OverLimit, "{name}");
    }
}

#[test]
fn a_zstd_window_above_the_standard_is_refused() {
    // More than one window, so that the frame is not packed into less.
    for (window_log, end) in [(23, Some(End::Whole)), (24, None)] {
        let window = CParameter::window_log(window_log);
        let body = pack(ZstdEncoder::new_with_params(3, &[window]), zeros(17));
        let mut decoded = decoded(body, &["zstd"], 32 * MIB);
        let outcome = decoded.outcome();
        match end {
            Some(end) => assert_eq!(outcome.end, end),
            None => assert!(matches!(outcome.end, End::Corrupt(_)), "{outcome:?}"),
        }
    }
}

#[test]
fn a_flood_of_members_ends_in_an_error() {
    let (bytes, outcome) = read(gzip(b"").repeat(100_001), &[]);
    assert!(bytes.is_empty());
    let End::Corrupt(how) = &outcome.end else { panic!("{outcome:?}") };
    assert!(how.contains("100000 members"), "{how}");
}

#[test]
fn exactly_the_limit_is_whole_and_one_more_is_over() {
    let text = vec![b'a'; 1_000];
    for (body, encoding) in [
        (text.clone(), &[] as &[&str]),
        (gzip(&text), &[]),
        (gzip(&gzip(&text)), &["gzip"]),
        (brotli(&text), &["br"]),
        (zstd(&text), &["zstd"]),
        (raw_deflate(&text), &["deflate"]),
    ] {
        for (max, want, end) in
            [(1_000, 1_000, End::Whole), (999, 999, End::OverLimit), (0, 0, End::OverLimit)]
        {
            let mut decoded = decoded(body.clone(), encoding, max);
            let mut bytes = Vec::new();
            decoded.read_to_end(&mut bytes).unwrap();
            assert_eq!(decoded.outcome().end, end, "{encoding:?} {max}");
            assert!(bytes.len() <= want, "{encoding:?} {max}");
        }
    }
    let mut empty = decoded(Bytes::new(), &["gzip"], 0);
    assert_eq!(empty.outcome().end, End::Whole);
}

#[test]
fn the_outcome_is_that_of_the_whole_document_though_only_a_part_was_read() {
    let text = XML.repeat(1_000);
    let mut decoded = decoded(gzip(&text), &["gzip"], MIB);
    let mut first = [0; 10];
    decoded.read_exact(&mut first).unwrap();
    let outcome = decoded.outcome();
    assert_eq!(outcome.bytes, text.len() as u64);
    assert_eq!(outcome.hash, xxh3_128(&text));
    assert_eq!(decoded.read(&mut first).unwrap(), 0);
    assert_eq!(decoded.outcome(), outcome);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn packing_and_decoding_is_the_identity(
        text in proptest::collection::vec(any::<u8>(), 0..20_000)
            .prop_filter("not gzip itself", |text| !text.starts_with(&[0x1f, 0x8b])),
        repeat in 1_usize..8,
        step in 1_usize..5_000,
    ) {
        let text = text.repeat(repeat);
        for (body, encoding) in [
            (gzip(&text), "gzip"),
            (brotli(&text), "br"),
            (zstd(&text), "zstd"),
            (zlib(&text), "deflate"),
            (gzip(&gzip(&text)), "gzip"),
        ] {
            let mut decoded = decoded(body, &[encoding], MIB);
            let mut bytes = Vec::new();
            let mut buffer = vec![0; step];
            loop {
                let n = decoded.read(&mut buffer).unwrap();
                if n == 0 {
                    break;
                }
                bytes.extend_from_slice(&buffer[..n]);
            }
            prop_assert_eq!(decoded.outcome().end, End::Whole);
            prop_assert!(bytes == text);
        }
    }

    #[test]
    fn any_bytes_under_any_coding_end_within_the_limit(
        body in proptest::collection::vec(any::<u8>(), 0..4_000),
        magic in prop::sample::select(vec![
            vec![], vec![0x1f, 0x8b, 8, 0], vec![0x28, 0xb5, 0x2f, 0xfd], vec![0x78, 0x9c],
            vec![0x1f, 0x8b, 8, 0x1f],
        ]),
        encoding in proptest::collection::vec(
            prop::sample::select(vec!["gzip", "br", "zstd", "deflate", "x"]), 0..3),
    ) {
        let mut decoded = decoded([magic, body].concat(), &encoding, 10_000);
        let mut bytes = Vec::new();
        decoded.read_to_end(&mut bytes).unwrap();
        prop_assert!(bytes.len() <= 10_000);
        prop_assert_eq!(decoded.outcome().bytes, bytes.len() as u64);
    }
}
