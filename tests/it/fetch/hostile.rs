//! Answers that are broken, endless, too large or too slow.

use sitemapd::fetch::body::{Decoded, End};
use sitemapd::fetch::{FetchError, Request};

use super::{Open, document, fetcher, get, hasty, request, shown, without_files};
use crate::support::{Hold, Origin, Reply, pack};

const XML: &str = "<urlset><url><loc>http://a.example/</loc></url></urlset>";

#[tokio::test]
async fn a_body_that_does_not_arrive_whole_is_an_error_and_no_document() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    let long = XML.repeat(1_000);
    for (name, reply) in [
        ("a length that is too long", Reply::xml(&long).claim_length(1_000_000)),
        ("a length, then the end", Reply::xml(&long).cut_after(500)),
        ("chunks, then the end", Reply::xml(&long).chunked(100).cut_after(500)),
        ("all chunks but the last", {
            let chunked = Reply::xml(&long).chunked(100);
            let whole = chunked.wire_len();
            chunked.cut_after(whole - 5)
        }),
        ("a reset in the middle", Reply::xml(&long).reset_after(500)),
        ("a reset among chunks", Reply::xml(&long).chunked(100).reset_after(500)),
        ("a gzip coding that is cut", Reply::xml(&long).gzip().cut_after(100)),
    ] {
        origin.set("/a", reply.etag("\"x\""));
        let error = get(&fetcher, origin.url("/a")).await.unwrap_err();
        assert!(matches!(error, FetchError::Protocol(_)), "{name}: {error}");
        assert!(shown(&error).contains("incomplete body"), "{name}: {error}");
    }
}

#[tokio::test]
async fn a_body_without_a_length_ends_with_the_connection() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    origin.set("/a", Reply::xml(XML).until_close());
    origin.set("/b", Reply::raw(format!("HTTP/1.0 200 OK\r\n\r\n{XML}")));
    origin
        .set("/c", Reply::raw(format!("HTTP/1.1 200 OK\nContent-Length: {}\n\n{XML}", XML.len())));
    for path in ["/a", "/b", "/c"] {
        assert_eq!(
            document(get(&fetcher, origin.url(path)).await.unwrap()).body.in_memory().unwrap(),
            XML
        );
    }
}

#[tokio::test]
async fn a_body_is_cut_at_the_limit_and_its_connection_closed() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    let piece = "x".repeat(64 * 1024);
    origin.set("/endless", Reply::text(&piece).endless());
    origin.set("/long", Reply::text(piece.repeat(40)));
    origin.set("/chunked", Reply::text(piece.repeat(40)).chunked(1_000));
    for path in ["/endless", "/long", "/chunked"] {
        let got = document(get(&fetcher, origin.url(path)).await.unwrap());
        assert!(got.cut, "{path}");
        assert_eq!(got.body.len(), 1 << 20, "{path}");
        assert_eq!(got.head.wire_bytes, 1 << 20);
    }
    assert_eq!(origin.connections(), 3, "a cut connection is not used again");

    let text = "x".repeat(1_000);
    origin.set("/exact", Reply::text(&text));
    for (max_wire_bytes, cut) in [(1_000, false), (999, true), (0, true)] {
        let asked = Request { max_wire_bytes, ..request(origin.url("/exact")) };
        let got = document(fetcher.fetch(asked, &Open).await.unwrap());
        assert_eq!((got.cut, got.body.len() as u64), (cut, max_wire_bytes));
    }
}

#[tokio::test]
async fn many_large_bodies_at_once_all_arrive_though_they_take_turns() {
    let origin = Origin::start().await;
    let (large, at_once) = (8 << 20, 32);
    origin.set("/long", Reply::text("x".repeat(large)));
    origin.set("/chunked", Reply::text("x".repeat(large)).chunked(100_000));
    let fetcher = fetcher(&[origin.port()]);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..at_once {
        let path = if n % 2 == 0 { "/long" } else { "/chunked" };
        let asked = Request { max_wire_bytes: 128 << 20, ..request(origin.url(path)) };
        let fetcher = fetcher.clone();
        tasks.spawn(async move { document(fetcher.fetch(asked, &Open).await.unwrap()) });
    }
    // Room for 1 GiB at once, of what they may have: the bodies are dropped as they come.
    while let Some(got) = tasks.join_next().await {
        let got = got.unwrap();
        assert_eq!((got.body.len(), got.cut), (large as u64, false));
    }
}

#[tokio::test]
async fn a_body_without_a_length_gives_back_the_room_that_it_does_not_need() {
    let origin = Origin::start().await;
    let large = 2 << 20;
    origin.set("/a", Reply::text("x".repeat(large)).chunked(100_000));
    let fetcher = fetcher(&[origin.port()]);
    let mut kept = Vec::new();
    // Each may have half of a gibibyte, and all are kept.
    for _ in 0..3 {
        let asked = Request { max_wire_bytes: 512 << 20, ..request(origin.url("/a")) };
        kept.push(document(fetcher.fetch(asked, &Open).await.unwrap()));
    }
    assert!(kept.iter().all(|got| got.body.len() == large as u64));
}

#[tokio::test]
async fn packed_bodies_come_as_they_are_and_are_decoded_by_their_bytes() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    let members: Vec<u8> = (0..6).flat_map(|n| pack::gzip(format!("{n}\n").as_bytes())).collect();
    let trailing = [pack::gzip(b"0\n1\n2\n3\n4\n"), vec![0; 1_024]].concat();
    let gz = "application/gzip";
    for (name, reply, want) in [
        ("a gzip file", Reply::xml(XML).gz_file(), XML),
        ("a gzip coding", Reply::xml(XML).gzip(), XML),
        ("both", Reply::xml(XML).gz_file().gzip(), XML),
        ("said of plain", Reply::xml(XML).header("Content-Encoding", "gzip"), XML),
        (
            "br",
            Reply::bytes("text/xml", pack::brotli(XML.as_bytes())).header("Content-Encoding", "br"),
            XML,
        ),
        (
            "zstd",
            Reply::bytes("text/xml", pack::zstd(XML.as_bytes())).header("Content-Encoding", "zstd"),
            XML,
        ),
        (
            "zlib",
            Reply::bytes("text/xml", pack::zlib(XML.as_bytes()))
                .header("Content-Encoding", "deflate"),
            XML,
        ),
        (
            "raw deflate",
            Reply::bytes("text/xml", pack::raw_deflate(XML.as_bytes()))
                .header("Content-Encoding", "deflate"),
            XML,
        ),
        ("six members", Reply::bytes(gz, members), "0\n1\n2\n3\n4\n5\n"),
        ("trailing zeros", Reply::bytes(gz, trailing), "0\n1\n2\n3\n4\n"),
    ] {
        origin.set("/a", reply);
        let got = document(get(&fetcher, origin.url("/a")).await.unwrap());
        let mut decoded = Decoded::new(got.body, &got.content_encoding, 1 << 20);
        let text = std::io::read_to_string(&mut decoded).unwrap();
        assert_eq!(text, want, "{name}");
        assert_eq!(decoded.outcome().end, End::Whole, "{name}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_the_protocol_is_an_error_and_never_a_document() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    let garbage = "\u{1b}[31m\u{7}".repeat(2_000);
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for raw in [
        String::new(),
        "SSH-2.0-OpenSSH_9.2\r\n".to_owned(),
        "ICY 200 OK\r\n\r\nx".to_owned(),
        "HTTP/9.9 200 OK\r\n\r\nx".to_owned(),
        "HTTP/1.1\r\n\r\nx".to_owned(),
        "HTTP/1.1 abc OK\r\n\r\nx".to_owned(),
        "HTTP/1.1 99 OK\r\n\r\nx".to_owned(),
        "HTTP/1.1 1000 OK\r\n\r\nx".to_owned(),
        "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx".to_owned(),
        "HTTP/1.1 206 Part\r\nContent-Length: 1\r\n\r\nx".to_owned(),
        "<urlset></urlset>".to_owned(),
        garbage.clone(),
        format!("HTTP/1.1 200 OK\r\n{garbage}: x\r\n\r\nx"),
        "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\nx".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\nx".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nxx".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nx".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\nx".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: nonsense\r\n\r\nx".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n".to_owned(),
        format!("{chunked}zz\r\nx\r\n0\r\n\r\n"),
        format!("{chunked}-1\r\nx\r\n0\r\n\r\n"),
        format!("{chunked}fffffffffffffffff\r\nx\r\n0\r\n\r\n"),
        format!("{chunked}7fffffffffffffff\r\nx\r\n0\r\n\r\n"),
        format!("{chunked}1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(1 << 20)),
        format!("{chunked}1\r\nxyz\r\n0\r\n\r\n"),
    ] {
        origin.set("/a", Reply::raw(raw.clone()));
        let start: String = raw.chars().take(80).collect();
        match get(&fetcher, origin.url("/a")).await {
            Err(error @ FetchError::Protocol(_)) => shown(&error),
            other => panic!("{start:?}: {other:?}"),
        };
    }
}

#[tokio::test]
async fn headers_of_any_number_and_size_end_in_an_answer_or_a_clear_error() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n";
    let many = |n: usize| (0..n).map(|i| format!("X-{i}: y\r\n")).collect::<Vec<_>>().concat();
    origin.set("/150", Reply::raw(format!("{head}{}\r\nok", many(150))));
    origin.set("/64k", Reply::raw(format!("{head}X: {}\r\n\r\nok", "y".repeat(64 * 1024))));
    let binary = [head.as_bytes(), b"X: \x80\xff\xfe\r\nETag: \"\xe9\"\r\n\r\nok"].concat();
    origin.set("/binary", Reply::raw(binary));
    for path in ["/150", "/64k", "/binary"] {
        assert_eq!(
            document(get(&fetcher, origin.url(path)).await.unwrap()).body.in_memory().unwrap(),
            "ok",
            "{path}"
        );
    }

    origin.set("/20000", Reply::raw(format!("{head}{}\r\nok", many(20_000))));
    origin.set("/huge", Reply::raw(format!("{head}X: {}\r\n\r\nok", "y".repeat(4 << 20))));
    origin.set("/endless", Reply::raw(head).then_endless("X-More: and more\r\n".repeat(1_000)));
    origin.set("/line", Reply::raw(format!("{head}X: ")).then_endless("y".repeat(10_000)));
    origin.set("/status", Reply::raw("HTTP/1.1 200 ").then_endless("O".repeat(10_000)));
    for path in ["/20000", "/huge", "/endless", "/line", "/status"] {
        let error = get(&fetcher, origin.url(path)).await.unwrap_err();
        assert!(matches!(error, FetchError::Protocol(_)), "{path}: {error}");
        assert!(shown(&error).contains("headers too large"), "{path}: {error}");
        assert!(origin.requests(path)[0].sent() < 16 << 20, "{path}");
    }
}

#[tokio::test]
async fn trailers_without_end_are_an_error() {
    let origin = Origin::start().await;
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n";
    origin.set("/a", Reply::raw(chunked).then_endless("X-More: and more\r\n".repeat(1_000)));
    let error = get(&fetcher(&[origin.port()]), origin.url("/a")).await.unwrap_err();
    assert!(matches!(error, FetchError::Protocol(_)), "{error}");
    assert!(origin.requests("/a")[0].sent() < 16 << 20);
}

#[tokio::test]
async fn whatever_never_ends_in_time_is_a_timeout_that_names_the_limit() {
    let origin = Origin::start().await;
    let fetcher = hasty(&[origin.port()]);
    let never = Hold::new();
    origin.set("/hang", Reply::xml(XML).hang(&never));
    origin.set("/drip", Reply::xml(XML).drip(1, &never));
    let head = "HTTP/1.1 200 OK\r\nX: y\r\n";
    origin.set("/drip-headers", Reply::raw(head).drip(1, &never));
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n";
    origin.set("/hints", Reply::raw(hints).then_endless(hints));
    let ends = async |path| (path, get(&fetcher, origin.url(path)).await.unwrap_err());
    let all = ["/hang", "/drip", "/drip-headers", "/hints"].map(ends);
    for (path, error) in futures_util::future::join_all(all).await {
        assert!(matches!(error, FetchError::Timeout(_)), "{path}: {error}");
        assert!(shown(&error).contains("3s"), "{path}: {error}");
    }
    assert!(never.waits() >= 2);
}

#[tokio::test]
async fn a_drip_that_ends_in_time_is_a_document() {
    let origin = Origin::start().await;
    let hold = Hold::new();
    origin.set("/a", Reply::xml(XML).drip(7, &hold));
    let fetcher = fetcher(&[origin.port()]);
    let (got, ()) = tokio::join!(get(&fetcher, origin.url("/a")), async {
        for piece in 1..=XML.len().div_ceil(7) {
            hold.arrived(piece).await;
            hold.release(1);
        }
    });
    assert_eq!(document(got.unwrap()).body.in_memory().unwrap(), XML);
}

#[tokio::test]
async fn a_connection_closed_between_two_requests_costs_nothing() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    // It says nothing of closing, so that the connection is kept on our side.
    origin.set("/a", Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
    for _ in 0..200 {
        assert_eq!(
            document(get(&fetcher, origin.url("/a")).await.unwrap()).body.in_memory().unwrap(),
            "ok"
        );
    }
    assert_eq!(origin.requests("/a").len(), 200);
}

#[tokio::test]
async fn an_origin_that_hangs_up_without_a_word_is_asked_once() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    origin.set("/a", Reply::raw(""));
    for times in 1..5 {
        let error = get(&fetcher, origin.url("/a")).await.unwrap_err();
        assert!(matches!(error, FetchError::Protocol(_)), "{error}");
        assert_eq!(origin.requests("/a").len(), times);
    }
}

#[tokio::test]
async fn an_answer_that_was_not_asked_for_is_never_taken_for_the_next() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    let injected = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nINJECTED";
    let extra = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok{injected}");
    origin.set("/extra", Reply::raw(extra).keep_open());
    let not_modified = format!("HTTP/1.1 304 Not Modified\r\nContent-Length: 47\r\n\r\n{injected}");
    origin.set("/304", Reply::raw(not_modified).keep_open());
    origin.set("/next", Reply::text("mine"));
    for path in ["/extra", "/304"] {
        for _ in 0..10 {
            let mut asked = request(origin.url(path));
            asked.validators.etag = Some("\"x\"".to_owned());
            fetcher.fetch(asked, &Open).await.unwrap();
            let got = document(get(&fetcher, origin.url("/next")).await.unwrap());
            assert_eq!(got.body.in_memory().unwrap(), "mine", "after {path}");
        }
    }
}

#[tokio::test]
async fn tls_where_there_is_none_is_a_connect_error() {
    let origin = Origin::start().await;
    origin.set("/", Reply::xml(XML));
    let mut url = origin.url("/");
    url.set_scheme("https").unwrap();
    let error = get(&fetcher(&[origin.port()]), url).await.unwrap_err();
    assert!(matches!(error, FetchError::Connect(_)), "{error}");
    shown(&error);
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_a_connect_error() {
    // Held, so that nobody else comes to listen there.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = held.local_addr().unwrap();
    let url = url::Url::parse(&format!("http://{nobody}/")).unwrap();
    let error = get(&fetcher(&[nobody.port()]), url).await.unwrap_err();
    assert!(matches!(error, FetchError::Connect(_)), "{error}");
    shown(&error);
}

#[tokio::test]
async fn two_hundred_hanging_origins_do_not_delay_a_healthy_one() {
    let origin = Origin::start().await;
    let never = Hold::new();
    origin.route({
        let never = never.clone();
        move |_| Some(Reply::xml(XML).hang(&never))
    });
    origin.set("/healthy", Reply::xml(XML));
    let fetcher = fetcher(&[origin.port()]);
    let mut hanging = tokio::task::JoinSet::new();
    for n in 0..200 {
        let (fetcher, url) = (fetcher.clone(), origin.url(&format!("/{n}")));
        hanging.spawn(async move { get(&fetcher, url).await });
    }
    never.arrived(200).await;
    document(get(&fetcher, origin.url("/healthy")).await.unwrap());
    assert_eq!(hanging.len(), 200);
    assert!(hanging.try_join_next().is_none(), "all of them still hang");
}

#[tokio::test]
async fn bodies_that_wait_together_are_in_memory_up_to_a_bound_and_then_in_files() {
    let origin = Origin::start().await;
    let fetcher = fetcher(&[origin.port()]);
    let (small, large) = ("s".repeat(32 * 1024), "0123456789".repeat(60_000));
    origin.set("/small", Reply::text(&small));
    for (path, reply) in [
        ("/long", Reply::text(&large)),
        ("/chunked", Reply::text(&large).chunked(10_000)),
        ("/until-close", Reply::text(&large).until_close()),
    ] {
        origin.set(path, reply);
        let (mut kept, mut in_memory) = (Vec::new(), 0);
        for _ in 0..20 {
            let body = document(get(&fetcher, origin.url(path)).await.unwrap()).body;
            let read = Decoded::new(body.clone(), &[], 1 << 20);
            assert_eq!(std::io::read_to_string(read).unwrap(), large, "{path}");
            if let Some(bytes) = body.in_memory() {
                in_memory += bytes.len();
            }
            kept.push(body);
        }
        assert!((4 << 20..=8 << 20).contains(&in_memory), "{path}: {in_memory}");
        assert!(kept.windows(2).all(|two| two[0].hash() == two[1].hash()), "{path}");
        let body = document(get(&fetcher, origin.url("/small")).await.unwrap()).body;
        assert!(body.in_memory().is_some(), "a small one always is");
        drop(kept);
        let body = document(get(&fetcher, origin.url(path)).await.unwrap()).body;
        assert!(body.in_memory().is_some(), "{path}: there is room again");
    }
}

#[tokio::test]
async fn where_there_can_be_no_file_a_body_stays_in_memory_up_to_a_mebibyte() {
    let origin = Origin::start().await;
    let fetcher = without_files(&[origin.port()]);
    let large = "0123456789".repeat(60_000);
    origin.set("/large", Reply::text(&large).chunked(10_000));
    let mut kept = Vec::new();
    for _ in 0..20 {
        let body = document(get(&fetcher, origin.url("/large")).await.unwrap()).body;
        assert_eq!(*body.in_memory().unwrap(), large);
        kept.push(body);
    }
    origin.set("/larger", Reply::text(large.repeat(2)));
    let mut two = request(origin.url("/larger"));
    two.max_wire_bytes = 1 << 22;
    let error = fetcher.fetch(two, &Open).await.unwrap_err();
    assert!(matches!(error, FetchError::NotKept(_)), "{error}");
}
