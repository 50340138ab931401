//! The subscriber's own part of `WebSub`: hubs are asked to push, their pushes
//! are read.
//!
//! What is to be asked of whom stands in the store (`store::hubs`), so that a
//! restart loses nothing; here it is done, a bounded number at a time. A hub is
//! asked through the same door as all else: the guard, its host's clock, one
//! request at a time, whatever URL a feed has named. robots.txt is not asked:
//! it is the publisher who names the hub, for just this request.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::gate::ClockGate;
use super::{BUSY_PAUSE, Poller, STORE_PAUSE};
use crate::fetch::{Form, Told};
use crate::model::SourceId;
use crate::recrawl::later;
use crate::store::StoreError;
use crate::store::hubs::rules::WANTED_LEASE;
use crate::store::hubs::{HubAnswer, HubCall};

/// Pushes read at once.
const READ_AT_ONCE: usize = 8;
/// Requests to hubs under way at once, those that wait for their turn at a hub
/// included.
const ASKED_AT_ONCE: usize = 64;
/// A request waits for its turn and its answer so long: hubs that hang must not
/// keep others from theirs.
const PATIENCE: Duration = Duration::from_secs(45);
/// A source for which a hub had no time is asked for again no sooner.
const ASKED_AGAIN: Duration = Duration::from_secs(3_600);
/// What the store says is due is looked at this often, without being told.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Characters of a secret that may be told: where a text ends with more of its
/// beginning, it was cut within it.
const LEAST_TOLD: usize = 8;

/// What is under way.
#[derive(Default)]
struct Work {
    tasks: JoinSet<Done>,
    /// Sources whose pushes are being read.
    reading: HashSet<SourceId>,
    asking: usize,
    /// Does any wait for the end of a poll of its source?
    is_kept_waiting: bool,
    /// When sources that are polled no more are next looked for.
    sweep_at: Option<Timestamp>,
}

enum Done {
    Read(SourceId),
    Asked,
}

impl Poller {
    /// Asks hubs and reads what they push, until told to stop. What is under
    /// way then is let go: all of it may be done again.
    pub(crate) async fn mind_hubs(self: Arc<Self>, stop: CancellationToken) {
        // What it says of the listener holds from the start on; of sites, at once.
        let base = self.config.borrow().listen.public_url.clone();
        let mut config = self.config.clone();
        config.mark_changed();
        let mut moved = self.store.hubs_changed();
        let mut work = Work::default();
        let mut starts = true;
        loop {
            moved.mark_unchanged();
            // From before the look: what comes due while it lasts is not slept over.
            let looked = self.clock.steady();
            let started = async {
                if config.has_changed().unwrap_or(false) {
                    let sites = config.borrow_and_update().sites.clone();
                    let without = sites.values().filter(|site| !site.websub);
                    let without = without.map(|site| site.name.clone()).collect();
                    self.store.want_hubs(base.clone(), without, starts).await.inspect_err(
                        |_| {
                            config.mark_changed();
                        },
                    )?;
                    starts = false;
                }
                // Of daemons that share a store one may be reached for all.
                let reached = match &base {
                    Some(base) => Some(base.clone()),
                    None => self.store.hub_base().await?,
                };
                match reached {
                    Some(base) => self.start_hub_work(&base, &mut work).await,
                    None => Ok(()),
                }
            };
            let pause = match started.await {
                Ok(()) => None,
                Err(StoreError::Closed) => return stop.cancelled().await,
                Err(error) => {
                    tracing::error!(%error, "subscriptions put off");
                    Some(STORE_PAUSE)
                }
            };
            let is_working = !work.tasks.is_empty();
            let is_kept_waiting = work.is_kept_waiting;
            let asleep = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    // A poll that ends tells nobody here.
                    None if is_kept_waiting => tokio::time::sleep(BUSY_PAUSE).await,
                    None => self.clock.sleep_until(later(looked, LOOK_AGAIN)).await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                done = work.tasks.join_next(), if is_working => work.land(done),
                _ = moved.changed(), if pause.is_none() => {}
                _ = config.changed(), if pause.is_none() => config.mark_changed(),
                () = asleep => {}
            }
        }
        work.tasks.shutdown().await;
    }

    async fn start_hub_work(
        self: &Arc<Self>,
        base: &Url,
        work: &mut Work,
    ) -> Result<(), StoreError> {
        let config = Arc::clone(&self.config.borrow());
        work.is_kept_waiting = false;
        // What waits for room is bounded, and on the disk already.
        if work.reading.len() < READ_AT_ONCE && !self.disk_is_short(&config) {
            for (row, source) in self.store.deliveries().await? {
                if work.reading.len() >= READ_AT_ONCE {
                    break;
                }
                if work.reading.contains(&source) {
                    continue;
                }
                // A poll waits for its origin as long as that likes: others go first.
                let Some(alone) = self.alone_at_once(source) else {
                    work.is_kept_waiting = true;
                    continue;
                };
                work.reading.insert(source);
                let poller = Arc::clone(self);
                work.tasks.spawn(async move {
                    // A panic fails this push only; it is tried again, not for ever.
                    let reading = async move { poller.take_delivery(row, source, alone).await };
                    let reading = tokio::spawn(reading);
                    if let Err(error) = reading.await {
                        tracing::error!(%source, %error, "reading a push panicked");
                    }
                    Done::Read(source)
                });
            }
        }
        // Those asked now are asked again only after their time.
        if work.asking < ASKED_AT_ONCE {
            let now = self.clock.steady();
            let sweeps = work.sweep_at.is_none_or(|at| at <= now);
            let calls = self.store.hub_calls(base.clone(), sweeps).await?;
            if sweeps {
                work.sweep_at = Some(later(now, LOOK_AGAIN));
            }
            for call in calls {
                work.asking += 1;
                let poller = Arc::clone(self);
                work.tasks.spawn(async move {
                    poller.ask_hub(call).await;
                    Done::Asked
                });
            }
        }
        Ok(())
    }

    async fn ask_hub(&self, call: HubCall) {
        let answer = untold(&call, self.hub_answer(&call).await);
        if answer == HubAnswer::Accepted {
            tracing::debug!(source = %call.source, subscribes = call.subscribes, "a hub was asked");
        }
        let source = call.source;
        if let Err(error) = self.store.hub_answered(call, answer).await
            && error != StoreError::Closed
        {
            tracing::error!(%source, %error, "what a hub answered is not kept");
        }
    }

    async fn hub_answer(&self, call: &HubCall) -> HubAnswer {
        let mode = if call.subscribes { "subscribe" } else { "unsubscribe" };
        let mut fields = vec![
            ("hub.mode", mode.to_owned()),
            ("hub.topic", call.topic.clone()),
            ("hub.callback", call.callback.clone()),
        ];
        if call.subscribes {
            fields.push(("hub.lease_seconds", WANTED_LEASE.as_secs().to_string()));
        }
        let is_secret = call.secret.is_some();
        if let Some(secret) = &call.secret {
            fields.push(("hub.secret", secret.clone()));
        }
        let target = self.store.poll_target(call.source).await.ok();
        // Any feed names a hub, another one each day if it likes.
        let gate = match &target {
            Some(target) => ClockGate::named_by(self, &target.url, target.site_name.as_deref()),
            None => ClockGate::new(self, None),
        };
        let source = target.map(|target| target.url);
        let form = Form { url: call.hub.clone(), fields, source, is_secret };
        let asking = tokio::time::timeout(PATIENCE, self.fetcher.post_form(&form, &gate)).await;
        let Ok(told) = asking else {
            if gate.has_not_begun(&call.hub).await {
                // Many ask the same hub: that they stand in line is no fault of it.
                return HubAnswer::Later(later(self.clock.now(), PATIENCE));
            }
            return HubAnswer::Failed("the hub did not answer in time".to_owned());
        };
        if let Some(off) = self.put_off(&told, call.row) {
            return HubAnswer::Later(self.clock.wall_at(off.until));
        }
        let Told { final_url, status, said, retry_after } = match told {
            Ok(told) => told,
            Err(error) => return HubAnswer::Failed(error.to_string()),
        };
        // Meant for the host, whoever was asked for there.
        let pause = self.heed_answer(&final_url, status, retry_after).await;
        let pause = pause.unwrap_or_else(|error| {
            tracing::error!(%error, "a pause was not kept");
            None
        });
        match status {
            200..=299 => HubAnswer::Accepted,
            // It has too much to do, which is no failure of this source.
            429 => {
                let until = pause.unwrap_or_default().max(ASKED_AGAIN);
                HubAnswer::Later(later(self.clock.now(), until))
            }
            _ => HubAnswer::Refused { status, why: said, retry_after },
        }
    }
}

/// What a hub says goes to logs and to whoever looks at its source; it may well repeat
/// what it was sent, of which the path and the secret are for it alone.
fn untold(call: &HubCall, answer: HubAnswer) -> HubAnswer {
    let path = call.callback.rsplit('/').next();
    let secrets: Vec<_> = [path, call.secret.as_deref()].into_iter().flatten().collect();
    let mask = |why: String| secrets.iter().fold(why, |why, secret| masked(&why, secret));
    match answer {
        HubAnswer::Failed(why) => HubAnswer::Failed(mask(why)),
        HubAnswer::Refused { status, why, retry_after } => {
            HubAnswer::Refused { status, why: mask(why), retry_after }
        }
        other => other,
    }
}

/// A text without a secret, also where it was cut within one.
fn masked(text: &str, secret: &str) -> String {
    if secret.is_empty() {
        return text.to_owned();
    }
    let whole = text.replace(secret, "***");
    let bare = whole.trim_end_matches('…');
    let cut = (LEAST_TOLD..secret.len())
        .rev()
        .find_map(|end| secret.get(..end).and_then(|begin| bare.strip_suffix(begin)));
    cut.map_or(whole.clone(), |before| format!("{before}***"))
}

impl Work {
    fn land(&mut self, done: Option<Result<Done, tokio::task::JoinError>>) {
        match done {
            Some(Ok(Done::Read(source))) => {
                self.reading.remove(&source);
            }
            Some(Ok(Done::Asked)) => self.asking = self.asking.saturating_sub(1),
            Some(Err(error)) => {
                tracing::error!(%error, "asking a hub panicked");
                self.asking = self.asking.saturating_sub(1);
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_taken_out_of_a_text_also_where_that_was_cut_within_it() {
        let secret = "0123456789abcdef0123456789abcdef";
        for (text, expected) in [
            (format!("at /websub/{secret}, {secret}"), "at /websub/***, ***"),
            (format!("at /websub/{}…", &secret[..31]), "at /websub/***"),
            (format!("{secret} at {}", &secret[..9]), "*** at ***"),
            ("at 0123".to_owned(), "at 0123"),
            ("busy…".to_owned(), "busy…"),
        ] {
            assert_eq!(masked(&text, secret), expected, "{text}");
        }
        assert_eq!(masked("anything", ""), "anything");
    }
}
