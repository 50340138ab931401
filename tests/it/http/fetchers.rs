//! The two fetchers of `examples/`, on a whole daemon and an origin: what they
//! settle, what they keep, what they give back, and whom they wait for.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clap::Parser as _;

use super::*;
use crate::support::daemon::sitemap;
use crate::support::process::DEADLINE;
use crate::support::{Hold, Origin, Reply};

#[path = "../../../examples/fetcher/main.rs"]
#[allow(dead_code, reason = "its `main` is for the example")]
mod in_rust;

/// A fetcher at work.
enum Fetcher {
    Python(Child),
    Rust(CancellationToken, JoinHandle<Result<(), String>>),
}

/// Which of the two.
#[derive(Debug, Clone, Copy)]
enum Which {
    Python,
    Rust,
}

/// Those that can be run here.
fn both() -> Vec<Which> {
    if Command::new("python3").arg("--version").output().is_ok_and(|run| run.status.success()) {
        return vec![Which::Python, Which::Rust];
    }
    println!("SKIPPED: examples/fetcher.py, for there is no python3");
    vec![Which::Rust]
}

fn python() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fetcher.py")
}

impl Which {
    /// Starts it in `folder`, where its memory is.
    fn start(self, api: SocketAddr, folder: &Path, extra: &[&str]) -> Fetcher {
        let mut words = vec!["--user-agent".to_owned(), "test/1 (+https://e.com/)".to_owned()];
        words.extend(["--api".to_owned(), format!("http://{api}")]);
        let memory = folder.join(format!("{self:?}"));
        words.extend(["--memory".to_owned(), memory.display().to_string()]);
        words.extend(extra.iter().map(|&word| word.to_owned()));
        match self {
            Self::Python => {
                let command = &mut Command::new("python3");
                let command = command.arg(python()).args(words).stdout(Stdio::null());
                Fetcher::Python(command.spawn().unwrap())
            }
            Self::Rust => {
                let args = in_rust::Args::parse_from([vec!["fetcher".to_owned()], words].concat());
                let stop = CancellationToken::new();
                let stopped = stop.clone();
                let running = tokio::spawn(async move {
                    in_rust::work::run(&args, stopped).await.map_err(|error| format!("{error:#}"))
                });
                Fetcher::Rust(stop, running)
            }
        }
    }
}

impl Fetcher {
    fn stop(&self) {
        match self {
            Self::Python(child) => {
                let id = child.id().to_string();
                assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
            }
            Self::Rust(stop, _) => stop.cancel(),
        }
    }

    /// Waits until it has ended; was all well?
    async fn ended(self) -> bool {
        match self {
            Self::Python(mut child) => {
                let waiting = tokio::task::spawn_blocking(move || child.wait().unwrap().success());
                tokio::time::timeout(2 * DEADLINE, waiting).await.unwrap().unwrap()
            }
            Self::Rust(_, running) => {
                tokio::time::timeout(2 * DEADLINE, running).await.unwrap().unwrap().is_ok()
            }
        }
    }
}

/// A daemon on one site, once it knows all of these pages.
async fn daemon_on(origin: &Origin, pages: &[(&str, &str)]) -> Daemon {
    origin.set("/sitemap.xml", Reply::xml(sitemap(&origin.base(), pages)));
    let (base, port) = (origin.base(), origin.port());
    let text = format!(
        "[fetch]\nallow = [\"127.0.0.1:{port}\"]\n[politeness]\nhost_delay = \"0s\"\n\
         [[site]]\nname = \"a\"\nurl = \"{base}/\"\nfeeds = []\n\
         sitemaps = [\"{base}/sitemap.xml\"]\n"
    );
    let daemon = Daemon::start_on(&text, None).await;
    until(&daemon, "/v1/queue", |queue| queue["queues"][0]["due"] == pages.len()).await;
    daemon
}

/// Asks until the answer is as wanted.
pub(super) async fn until(daemon: &Daemon, target: &str, wanted: impl Fn(&Value) -> bool) {
    let mut last = Value::Null;
    let asking = async {
        loop {
            last = daemon.get(target).await.json();
            if wanted(&last) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let asked = tokio::time::timeout(DEADLINE, asking).await;
    assert!(asked.is_ok(), "{target} still says {last}");
}

async fn known(daemon: &Daemon, origin: &Origin, path: &str) -> Value {
    daemon.get(&format!("/v1/url?url={}", origin.url(path))).await.json()
}

async fn counted(daemon: &Daemon, series: &str) -> u64 {
    let text = daemon.get("/metrics").await.body;
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    value.unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_fetchers_settle_each_page_with_what_they_saw() {
    for which in both() {
        let origin = Origin::start().await;
        let paths = ["/a", "/b", "/lost", "/shut", "/moved", "/away", "/spelt", "/cut", "/busy"];
        origin.set("/a", Reply::html("first").etag("\"1\""));
        origin.set_sequence("/b", [Reply::html("first"), Reply::html("second")]);
        origin.set("/shut", Reply::status(403));
        origin.set("/moved", Reply::redirect(301, "/b"));
        origin.set("/away", Reply::redirect(302, "http://127.0.0.1:1/x#y"));
        // As many servers write it: neither blanks nor UTF-8 are escaped.
        origin.set("/spelt", Reply::redirect(302, "/caf\u{e9} au lait?q=\u{fc} 1"));
        origin.set("/caf%C3%A9%20au%20lait?q=%C3%BC%201", Reply::html("coffee"));
        origin.set("/cut", Reply::html("0123456789").cut_after(4));
        origin.set("/busy", Reply::status(503).header("Retry-After", "2"));
        let daemon = daemon_on(&origin, &paths.map(|path| (path, ""))).await;
        let folder = daemon.dir.path();

        assert!(which.start(daemon.addr, folder, &["--once"]).ended().await, "{which:?}");
        for (path, outcome, status) in [
            ("/a", "unknown", json!(200)),
            ("/lost", "gone", json!(404)),
            ("/shut", "blocked", json!(403)),
            ("/moved", "redirected", json!(200)),
            ("/away", "redirected", json!(302)),
            ("/spelt", "unknown", json!(200)),
            ("/cut", "failed", json!(null)),
            ("/busy", "failed", json!(503)),
        ] {
            let url = known(&daemon, &origin, path).await;
            assert_eq!(
                (&url["outcome"], &url["status"]),
                (&json!(outcome), &status),
                "{which:?} {url}"
            );
            assert_eq!(url["content_hash"].is_null(), outcome != "unknown" && path != "/moved");
        }
        let asked = &origin.requests("/a")[0];
        assert_eq!(asked.header("user-agent"), Some("test/1 (+https://e.com/)"));

        // The pause that a page asked for is over sooner than this test is patient.
        let again = json!({"urls": [origin.url("/a"), origin.url("/b")]});
        assert_eq!(daemon.post("/v1/queue/requeue", &again).await.json()["requeued"], 2);
        let fetcher = which.start(daemon.addr, folder, &[]);
        until(&daemon, "/v1/queue", |queue| {
            queue["queues"][0]["due"] == 0 && queue["queues"][0]["leased"] == 0
        })
        .await;
        fetcher.stop();
        assert!(fetcher.ended().await, "{which:?}");
        let asked = origin.requests("/a");
        assert_eq!(asked.last().unwrap().header("if-none-match"), Some("\"1\""), "{which:?}");
        let (a, b) = (known(&daemon, &origin, "/a").await, known(&daemon, &origin, "/b").await);
        assert_eq!((&a["outcome"], &a["status"]), (&json!("unchanged"), &json!(304)), "{which:?}");
        assert_eq!(b["outcome"], "changed", "{which:?} {b}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_fetcher_ends_its_page_and_gives_back_the_rest() {
    // Beside each other, for the leases are long: a machine that stands still for a while
    // ends none, and no page hangs for the half minute that a fetcher waits for its next byte.
    futures_util::future::join_all(both().into_iter().map(is_stopped_amid_a_page)).await;
}

async fn is_stopped_amid_a_page(which: Which) {
    let origin = Origin::start().await;
    let hold = Hold::new();
    origin.route({
        let hold = hold.clone();
        move |seen| seen.path.starts_with("/p").then(|| Reply::html("slow").hang(&hold))
    });
    let daemon = daemon_on(&origin, &["/p1", "/p2", "/p3"].map(|path| (path, ""))).await;
    let fetcher = which.start(daemon.addr, daemon.dir.path(), &["--lease", "10"]);
    hold.arrived(1).await;
    // Longer than its lease: three leases, each extended, and extended again, at its half.
    let extended = "sitemapd_tokens_total{call=\"extend\",result=\"ok\"}";
    while counted(&daemon, extended).await < 6 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(counted(&daemon, "sitemapd_leases_expired_total").await, 0, "{which:?}");
    fetcher.stop();
    hold.release_all();
    assert!(fetcher.ended().await, "{which:?}");
    assert_eq!(hold.waits(), 1, "{which:?}: one request at a time, none after the stop");
    let queue = daemon.get("/v1/queue").await.json();
    let of = &queue["queues"][0];
    assert_eq!((&of["leased"], &of["due"]), (&json!(0), &json!(2)), "{which:?}");
    for (call, tokens) in [("release", 2), ("settle", 1)] {
        let series = format!("sitemapd_tokens_total{{call=\"{call}\",result=\"ok\"}}");
        assert_eq!(counted(&daemon, &series).await, tokens, "{which:?} {call}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetcher_waits_for_a_busy_daemon_and_obeys_a_refusal() {
    for which in both() {
        let busy = Origin::start().await;
        let nothing = Reply::bytes("application/json", "{\"urls\": [], \"next_due_at\": null}");
        let later = Reply::status(503).header("Retry-After", "1");
        busy.set_sequence("/v1/lease", [later, nothing]);
        let folder = TempDir::new().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "s3cret\n").unwrap();
        let extra = ["--once", "--token-file", token.to_str().unwrap()];
        assert!(which.start(busy.addr(), folder.path(), &extra).ended().await, "{which:?}");
        let asked = busy.requests("/v1/lease");
        assert!(asked[1].at.duration_since(asked[0].at) >= Duration::from_secs(1), "{which:?}");
        assert_eq!(asked[1].header("authorization"), Some("Bearer s3cret"), "{which:?}");

        busy.set("/v1/lease", Reply::status(401));
        assert!(!which.start(busy.addr(), folder.path(), &["--once"]).ended().await, "{which:?}");
    }
}
