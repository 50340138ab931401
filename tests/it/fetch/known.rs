//! Bodies that are known: their hash is that of last time.

use super::*;
use sitemapd::fetch::WireBody;

/// A mebibyte is what a body may have in memory.
const MIB: usize = 1 << 20;

fn knowing(url: Url, known: Option<u128>) -> Request {
    Request { known, max_wire_bytes: 4 << 20, ..request(url) }
}

fn bytes_of(body: &WireBody) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut decoded = sitemapd::fetch::body::Decoded::new(body.clone(), &[], 8 << 20);
    std::io::Read::read_to_end(&mut decoded, &mut bytes).unwrap();
    bytes
}

/// No two places of it are alike.
fn body(len: usize) -> Vec<u8> {
    (0..len.div_ceil(8) as u64).flat_map(u64::to_le_bytes).take(len).collect()
}

#[tokio::test]
async fn a_known_body_is_said_to_be_the_same_and_any_other_comes_whole() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    let url = origin.url("/a");
    for len in [0, 9, 40_000, 300_000, MIB - 1, MIB, MIB + 1, 3_000_000] {
        for manner in ["with a length", "chunked", "until the end"] {
            let what = format!("{len} bytes, {manner}");
            let serve = |body: &[u8]| {
                let reply = Reply::bytes("application/octet-stream", body).etag("\"1\"");
                origin.set(
                    "/a",
                    match manner {
                        "chunked" => reply.chunked(10_000),
                        "until the end" => reply.until_close(),
                        _ => reply,
                    },
                );
            };
            let mut bytes = body(len);
            serve(&bytes);
            let first = fetcher.fetch(knowing(url.clone(), None), &Open).await.unwrap();
            let known = document(first).body.hash();
            let again = fetcher.fetch(knowing(url.clone(), known), &Open).await.unwrap();
            let Answer::Same(head) = again else { panic!("{what}: {again:?}") };
            assert_eq!((head.status, head.wire_bytes), (200, len as u64), "{what}");
            assert_eq!(head.validators.etag.as_deref(), Some("\"1\""), "{what}");

            let Some(last) = bytes.last_mut() else { continue };
            *last ^= 1;
            serve(&bytes);
            let other = fetcher.fetch(knowing(url.clone(), known), &Open).await.unwrap();
            let other = document(other);
            assert!(bytes_of(&other.body) == bytes, "{what}");
            assert_ne!(other.body.hash(), known, "{what}");
            assert_eq!(other.body.in_memory().is_some(), len < MIB, "{what}");
        }
    }
}

/// More pieces than there is room for are copied together as they come.
#[tokio::test]
async fn a_body_in_many_pieces_is_compared_and_comes_whole_as_well() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    let bytes = body(400_000);
    let known = WireBody::from(bytes.clone()).hash();
    for known in [known, Some(7)] {
        let hold = Hold::new();
        let reply = Reply::bytes("application/octet-stream", &bytes[..]).drip(30_000, &hold);
        origin.set("/a", reply);
        let (got, ()) =
            tokio::join!(fetcher.fetch(knowing(origin.url("/a"), known), &Open), async {
                for piece in 1..=bytes.len().div_ceil(30_000) {
                    hold.arrived(piece).await;
                    hold.release(1);
                }
            });
        match got.unwrap() {
            Answer::Same(head) => assert_eq!((head.wire_bytes, known != Some(7)), (400_000, true)),
            other => assert!(bytes_of(&document(other).body) == bytes && known == Some(7)),
        }
    }
}

#[tokio::test]
async fn what_was_cut_is_never_the_same() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    origin.set("/a", Reply::text("0123456789"));
    let cut = Request { max_wire_bytes: 5, ..request(origin.url("/a")) };
    let known = document(fetcher.fetch(cut.clone(), &Open).await.unwrap()).body.hash();
    assert_eq!(known, WireBody::from("01234").hash());
    let again = document(fetcher.fetch(Request { known, ..cut }, &Open).await.unwrap());
    assert!(again.cut);
}

#[tokio::test]
async fn bodies_that_turn_out_to_be_others_have_no_more_memory_than_any() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    let bytes = body(900_000);
    origin.set("/a", Reply::bytes("application/octet-stream", &bytes[..]));
    let get = || fetcher.fetch(knowing(origin.url("/a"), Some(7)), &Open);
    let answers = futures_util::future::join_all((0..20).map(|_| get())).await;
    let kept: Vec<WireBody> = answers.into_iter().map(|got| document(got.unwrap()).body).collect();
    assert!(kept.iter().all(|body| bytes_of(body) == bytes));
    let in_memory: usize = kept.iter().filter_map(WireBody::in_memory).map(bytes::Bytes::len).sum();
    assert!((2 << 20..=8 << 20).contains(&in_memory), "{in_memory}");
    drop(kept);
    assert!(document(get().await.unwrap()).body.in_memory().is_some(), "there is room again");
}

#[tokio::test]
async fn where_there_can_be_no_file_a_body_that_may_be_known_stays_in_memory() {
    let origin = Origin::start().await;
    let fetcher = without_files(&[origin.port()]);
    let bytes = body(600_000);
    origin.set("/a", Reply::bytes("application/octet-stream", &bytes[..]));
    let mut kept = Vec::new();
    for _ in 0..20 {
        let got = fetcher.fetch(knowing(origin.url("/a"), Some(7)), &Open).await.unwrap();
        let body = document(got).body;
        assert_eq!(*body.in_memory().unwrap(), bytes);
        kept.push(body);
    }
}
