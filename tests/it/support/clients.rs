//! Clients of a queue that do everything a client may do, and some of what it
//! should not: they hang up before the answer, forget what they hold, call too
//! late and twice, and forge tokens. What they are told goes into a ledger.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::door::Door;
use super::lease_history::Dice;
use super::ledger::{Act, Held, Lease, Ledger};

/// A client; it ends when its door is shut for good.
pub struct Client {
    pub door: Door,
    pub ledger: Arc<Ledger>,
    pub dice: Dice,
    /// Shortest and longest lease, in seconds.
    pub ttl: (u32, u32),
}

impl Client {
    /// Works until nobody will answer any more.
    pub async fn work(mut self) {
        while !self.door.is_shut() && (self.step().await.is_some() || self.door.opens_again().await)
        {
        }
    }

    /// Does one thing; `None` when nobody answers any more.
    pub async fn step(&mut self) -> Option<()> {
        match self.dice.below(24) {
            0..7 => self.lease().await,
            7 => {
                if self.dice.below(8) == 0 {
                    self.hang_up();
                }
                Some(())
            }
            8..15 => self.end(Act::Settled, 20).await,
            15 => self.end(Act::Failed, 1).await,
            16 | 17 => self.end(Act::Released, 8).await,
            18 | 19 => self.extend().await,
            20 => {
                let count = self.below(6);
                let held = self.ledger.take(count, |below| self.dice.below(small(below)) as usize);
                self.ledger.forget(held);
                Some(())
            }
            21 => self.come_late().await,
            22 => self.forge().await,
            _ => self.ask_for_one().await,
        }
    }

    fn below(&mut self, limit: u32) -> usize {
        self.dice.below(limit) as usize
    }

    async fn post(&self, path: &str, body: &Value) -> Option<Value> {
        self.door.post(path, body).await
    }

    async fn lease(&mut self) -> Option<()> {
        let seconds = self.ttl.0 + self.dice.below(self.ttl.1 - self.ttl.0 + 1);
        let ttl = Duration::from_secs(seconds.into());
        let mut body = json!({
            "max": 1 + self.dice.below(24), "ttl": format!("{seconds}s"), "per_host": 20,
        });
        let is_repeated = self.dice.below(6) == 0;
        if is_repeated {
            let number =
                u64::from(self.dice.below(u32::MAX)) << 32 | u64::from(self.dice.below(u32::MAX));
            body["request_id"] = json!(format!("r{number}"));
        }
        let called = Instant::now();
        let Some(answer) = self.post("/v1/lease", &body).await else {
            self.ledger.unanswered();
            return None;
        };
        let leases = read(&answer);
        self.ledger.leased(&leases, called, ttl);
        if is_repeated && !leases.is_empty() && called.elapsed() < ttl / 4 {
            let held = tokens(&leases);
            let kept = self.ledger.take_these(&held);
            // Those that others have taken may have ended by now.
            if kept.len() == held.len() {
                let again = self.post("/v1/lease", &body).await;
                if let Some(again) = again.filter(|_| called.elapsed() < ttl / 2) {
                    self.compare(&held, read(&again), called, ttl);
                }
            }
            self.ledger.keep(kept);
        }
        Some(())
    }

    /// A repeated call is answered with the same. Where daemons share the work,
    /// one may have given its part and died before it could say so: that part
    /// comes with the second answer.
    fn compare(&self, held: &[Held], again: Vec<Lease>, called: Instant, ttl: Duration) {
        let (same, more): (Vec<_>, Vec<_>) =
            again.into_iter().partition(|lease| held.iter().any(|one| one.token == lease.token));
        assert_eq!(tokens(&same), held, "a repeated call got others");
        assert!(more.is_empty() || self.door.is_shared(), "a repeated call got more: {more:?}");
        self.ledger.leased(&more, called, ttl);
    }

    /// Asks for a lease and does not wait for the answer.
    fn hang_up(&mut self) {
        self.ledger.unanswered();
        let body = format!("{{\"max\":{},\"ttl\":\"{}s\"}}", 1 + self.dice.below(5), self.ttl.0);
        let head = format!(
            "POST /v1/lease HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.door.addr(),
            body.len()
        );
        if let Ok(mut stream) = TcpStream::connect(self.door.addr()) {
            // Whether it was sent is part of what nobody knows.
            let _ = stream.write_all((head + &body).as_bytes());
        }
    }

    async fn end(&mut self, act: Act, most: u32) -> Option<()> {
        let count = 1 + self.below(most);
        let held = self.ledger.take(count, |below| self.dice.below(small(below)) as usize);
        if held.is_empty() {
            return Some(());
        }
        let tokens: Vec<_> = held.iter().map(|held| held.token.clone()).collect();
        let settle = |outcome: &str| {
            let result = |token: &String| json!({ "token": token, "outcome": outcome });
            json!({ "results": tokens.iter().map(result).collect::<Vec<_>>() })
        };
        let (path, body) = match act {
            Act::Settled => ("/v1/settle", settle("changed")),
            Act::Failed => ("/v1/settle", settle("failed")),
            Act::Released => ("/v1/release", json!({ "tokens": tokens })),
        };
        let called = self.ledger.ending(&held, act);
        let answer = self.post(path, &body).await?;
        for (held, result) in held.iter().zip(answer["results"].as_array().unwrap()) {
            assert_eq!(result["token"], held.token.as_str());
            self.ledger.ended(held, act, called, result["result"].as_str().unwrap());
        }
        if self.dice.below(8) == 0 {
            // The same once more, as after a lost answer.
            let answer = self.post(path, &body).await?;
            for (held, result) in held.iter().zip(answer["results"].as_array().unwrap()) {
                self.ledger.fenced(held, result["result"].as_str().unwrap());
            }
        }
        Some(())
    }

    async fn extend(&mut self) -> Option<()> {
        let count = 1 + self.below(5);
        let held = self.ledger.take(count, |below| self.dice.below(small(below)) as usize);
        if held.is_empty() {
            return Some(());
        }
        let tokens: Vec<_> = held.iter().map(|held| held.token.clone()).collect();
        let ttl = Duration::from_secs(self.ttl.1.into());
        let called = Instant::now();
        let body = json!({ "tokens": tokens, "ttl": format!("{}s", self.ttl.1) });
        let answer = self.post("/v1/extend", &body).await;
        for (index, held) in held.iter().enumerate() {
            let result =
                answer.as_ref().map(|all| all["results"][index]["result"].as_str().unwrap());
            self.ledger.extended(held, called, ttl, result);
        }
        self.ledger.keep(held);
        answer.map(|_| ())
    }

    /// Settles what was forgotten until it was over.
    async fn come_late(&mut self) -> Option<()> {
        let Some(held) = self.ledger.over() else { return Some(()) };
        let (path, body) = match self.dice.below(3) {
            0 => (
                "/v1/settle",
                json!({ "results": [{ "token": held.token, "outcome": "changed" }] }),
            ),
            1 => ("/v1/release", json!({ "tokens": [held.token] })),
            _ => ("/v1/extend", json!({ "tokens": [held.token] })),
        };
        let answer = self.post(path, &body).await?;
        self.ledger.fenced(&held, answer["results"][0]["result"].as_str().unwrap());
        Some(())
    }

    /// Guesses at tokens: of a row that is there, and of none.
    async fn forge(&mut self) -> Option<()> {
        let mut results = Vec::new();
        for row in [1 + self.dice.below(100), u32::MAX] {
            let part = self.dice.below(u32::MAX);
            results.push(json!({ "token": format!("{part:032x}{row:016x}"), "outcome": "gone" }));
        }
        let answer = self.post("/v1/settle", &json!({ "results": results })).await?;
        for result in answer["results"].as_array().unwrap() {
            assert_ne!(result["result"], "ok", "a guess was taken");
        }
        Some(())
    }

    async fn ask_for_one(&mut self) -> Option<()> {
        if self.dice.below(4) > 0 {
            return Some(());
        }
        let some = self.ledger.some_url(|below| self.dice.below(small(below)) as usize);
        let Some((id, url)) = some else { return Some(()) };
        let called = self.ledger.asking(id);
        let answer = self.post("/v1/queue/requeue", &json!({ "urls": [url] })).await?;
        assert_eq!(answer["requeued"], 1, "{url} is not known any more");
        self.ledger.asked(id, called);
        Some(())
    }
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap()
}

fn tokens(leases: &[Lease]) -> Vec<Held> {
    let mut all: Vec<_> =
        leases.iter().map(|lease| Held { id: lease.id, token: lease.token.clone() }).collect();
    all.sort_by(|a, b| a.token.cmp(&b.token));
    all
}

/// Leases and settles all that is due, until `times` calls in a row are answered
/// with nothing.
pub async fn drain(door: &Door, ledger: &Ledger, times: u32) {
    let body = json!({ "max": 1_000, "ttl": "60s", "per_host": 1_000 });
    let mut empty = 0;
    while empty < times {
        let called = Instant::now();
        let leases = read(&door.post("/v1/lease", &body).await.unwrap());
        empty = if leases.is_empty() { empty + 1 } else { 0 };
        ledger.leased(&leases, called, Duration::from_secs(60));
        let held = ledger.take(usize::MAX, |_| 0);
        for held in held.chunks(1_000) {
            let results: Vec<_> =
                held.iter().map(|h| json!({ "token": h.token, "outcome": "changed" })).collect();
            let called = ledger.ending(held, Act::Settled);
            let answer = door.post("/v1/settle", &json!({ "results": results })).await.unwrap();
            for (held, result) in held.iter().zip(answer["results"].as_array().unwrap()) {
                ledger.ended(held, Act::Settled, called, result["result"].as_str().unwrap());
            }
        }
    }
}

/// The leases of an answer.
pub fn read(answer: &Value) -> Vec<Lease> {
    let text = |leased: &Value, key: &str| leased[key].as_str().map(str::to_owned);
    let urls = answer["urls"].as_array().unwrap();
    urls.iter()
        .map(|leased| Lease {
            id: leased["id"].as_i64().unwrap(),
            url: text(leased, "url").unwrap(),
            token: text(leased, "token").unwrap(),
            expires: text(leased, "expires_at").unwrap().parse().unwrap(),
            attempt: leased["attempt"].as_u64().unwrap(),
            reason: text(leased, "reason").unwrap(),
            lastmod: text(leased, "lastmod").map(|text| text.parse::<Timestamp>().unwrap()),
        })
        .collect()
}
