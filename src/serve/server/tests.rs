//! Tests of the connection limits, over real sockets, with a router of their own.

use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use super::*;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// Longer than any test takes; what waits for it is to be cut or woken.
const FOR_EVER: Duration = Duration::from_secs(3_600);

struct Running {
    addr: SocketAddr,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

/// Serves `router` under limits that a test can reach.
async fn serve(
    router: Router,
    places: usize,
    header_timeout: Duration,
    drain: Duration,
) -> Running {
    serve_as(false, router, places, header_timeout, drain).await
}

async fn serve_as(
    is_http2: bool,
    router: Router,
    places: usize,
    header_timeout: Duration,
    drain: Duration,
) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let metrics = Arc::new(Metrics::new());
    let stop = CancellationToken::new();
    let connections = Connections {
        is_http2,
        header_timeout,
        ..Connections::new(Door::Api, router, metrics.clone(), stop.clone(), places)
    };
    let served = tokio::spawn(async move {
        connections.accept_from(listener).await;
        connections.drain(drain).await;
    });
    Running { addr, metrics, stop, served }
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

async fn send(addr: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.expect("a connection");
    // One that is turned away may be closed by now; what comes back tells.
    let _ = stream.write_all(bytes).await;
    stream
}

/// Everything until the server closes the connection.
async fn read_to_end(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset closes it as well.
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads until the answer's body is there, without waiting for the close.
async fn read_answer(stream: &mut TcpStream) {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"hello") {
        assert_ne!(stream.read_buf(&mut bytes).await.expect("open"), 0, "closed too early");
    }
}

#[test]
fn the_answer_to_one_too_many_is_whole_and_tells_the_limit() {
    let text = overloaded(1_024);
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{}", body.len());
    let problem: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(problem["type"], "urn:sitemapd:problem:busy");
    assert!(body.contains("1,024 connections"), "{body}");
}

#[test]
fn half_of_the_open_files_are_left_to_the_rest_of_the_daemon() {
    let line = |soft: &str| {
        format!(
            "Limit Soft Hard Units\nMax open files            {soft}  524288  files \nMax x 1\n"
        )
    };
    for (soft, places) in
        [("1024", 512), ("256", 128), ("1", 1), ("524288", 1_024), ("unlimited", 1_024)]
    {
        assert_eq!(connection_limit(Some(&line(soft))), places, "{soft}");
    }
    for unreadable in [None, Some(""), Some("Max open files"), Some("Max open files many")] {
        assert_eq!(connection_limit(unreadable), 256, "{unreadable:?}");
    }
}

#[tokio::test]
async fn a_header_that_never_ends_is_cut_off() {
    let running = serve(hello(), 8, Duration::from_millis(50), FOR_EVER).await;
    for beginning in ["", "GET / HTTP/1.1\r\nHost: loc"] {
        let stream = send(running.addr, beginning.as_bytes()).await;
        assert_eq!(read_to_end(stream).await, "", "{beginning}");
    }
}

#[tokio::test]
async fn a_connection_of_http_2_on_which_nothing_is_called_is_cut_off() {
    let running = serve_as(true, hello(), 8, Duration::from_millis(50), FOR_EVER).await;
    // The preface of the protocol, then a frame of settings that are all defaults.
    let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    for beginning in [&b""[..], b"P", preface, &[preface, settings].concat()] {
        let stream = send(running.addr, beginning).await;
        read_to_end(stream).await;
    }
}

#[tokio::test]
async fn a_connection_that_stays_idle_after_an_answer_is_closed() {
    // Longer than a client that is made to wait takes to send what it is about to send.
    let running = serve(hello(), 8, Duration::from_secs(2), FOR_EVER).await;
    let answer = read_to_end(send(running.addr, GET).await).await;
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn one_connection_too_many_is_told_so_and_a_place_comes_back() {
    let running = serve(hello(), 1, FOR_EVER, FOR_EVER).await;
    let mut first = send(running.addr, GET).await;
    read_answer(&mut first).await;

    let refused = TcpStream::connect(running.addr).await.expect("accepted by the system");
    assert!(read_to_end(refused).await.starts_with("HTTP/1.1 503 "));
    let counted = running.metrics.encode(None, crate::metrics::Format::Plain);
    assert!(
        counted.contains("sitemapd_api_connections_refused_total{listener=\"api\"} 1"),
        "{counted}"
    );

    drop(first);
    // The server sees the close a moment later than we make it.
    loop {
        let answer = read_to_end(
            send(running.addr, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await,
        )
        .await;
        if answer.ends_with("hello") {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn at_stop_idle_connections_end_at_once_and_requests_are_finished() {
    let (entered, mut inside) = tokio::sync::mpsc::channel(1);
    let go_on = CancellationToken::new();
    let slow = go_on.clone();
    let handler = move || async move {
        let _ = entered.send(()).await;
        slow.cancelled().await;
        "hello"
    };
    let running = serve(Router::new().route("/", get(handler)), 8, FOR_EVER, FOR_EVER).await;
    let idle = send(running.addr, b"").await;
    let working = send(running.addr, GET).await;
    inside.recv().await.expect("the request is being worked on");

    running.stop.cancel();
    assert_eq!(read_to_end(idle).await, "");
    assert!(!running.served.is_finished());
    go_on.cancel();
    assert!(read_to_end(working).await.ends_with("hello"));
    running.served.await.expect("drained");
}

#[tokio::test]
async fn what_does_not_end_before_the_deadline_is_cut_off() {
    let (entered, mut inside) = tokio::sync::mpsc::channel(1);
    let handler = move || async move {
        let _ = entered.send(()).await;
        std::future::pending::<()>().await;
    };
    let router = Router::new().route("/", get(handler));
    let running = serve(router, 8, FOR_EVER, Duration::from_millis(50)).await;
    let stuck = send(running.addr, GET).await;
    inside.recv().await.expect("the request is being worked on");
    running.stop.cancel();
    running.served.await.expect("ended");
    assert_eq!(read_to_end(stuck).await, "");
}

#[test]
fn a_client_has_so_many_places_and_gives_them_back() {
    let all: Arc<OfClient> = Arc::default();
    let mut taken: Vec<_> = (0..MAX_OF_CLIENT).map(|_| PlaceOfClient::take(&all, 1)).collect();
    assert!(taken.iter().all(Option::is_some));
    assert!(PlaceOfClient::take(&all, 1).is_none());
    assert!(PlaceOfClient::take(&all, 2).is_some(), "another has its own");
    taken.pop();
    assert!(PlaceOfClient::take(&all, 1).is_some());
    taken.clear();
    assert!(all.lock().expect("no panic").is_empty(), "nothing is kept of those who left");
}

#[tokio::test(start_paused = true)]
async fn a_last_answer_goes_on_for_as_long_as_its_client_takes_it() {
    let progress = Progress::default();
    let answer = async |parts: u32, apart: Duration| {
        for _ in 0..parts {
            sleep(apart).await;
            progress.goes_on();
        }
    };
    let short = LAST_REQUEST / 2;
    assert_eq!(progress.finish(answer(0, short)).await, Some(()));
    assert_eq!(progress.finish(answer(100, short)).await, Some(()), "it is taken");
    let began = tokio::time::Instant::now();
    assert_eq!(progress.finish(answer(2, LAST_REQUEST * 10)).await, None, "it is not");
    assert_eq!(began.elapsed(), LAST_REQUEST);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_signs_of_life_alone_goes_on_while_they_are_taken() {
    let progress = Progress::default();
    let signs = futures_util::stream::unfold(0, |sent| async move {
        sleep(LAST_REQUEST / 4).await;
        (sent < 20).then_some((Ok::<_, io::Error>(":\n"), sent + 1))
    });
    let mut parts = progress.clone().counting(Body::from_stream(signs)).into_data_stream();
    let reading = async {
        let mut read = 0;
        while parts.next().await.is_some() {
            read += 1;
        }
        read
    };
    assert_eq!(progress.finish(reading).await, Some(20));
}
