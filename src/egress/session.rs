//! One connection to NATS: logging in, the streams, and both directions.
//!
//! The client does not come back by itself: what it would still hold in its
//! buffers then are leases that have been given back.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{self, RetentionPolicy, StorageType, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{ConnectOptions, Event, ServerAddr};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::book::Held;
use super::publish::Publisher;
use super::results::Settler;
use super::said::Said;
use super::{Egress, Login, Trouble, login};
use crate::config::Nats;
use crate::config::subject::covers;

/// The broker answers within this, or is away.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// A session of this age does well: within it two heartbeats of the results were missed,
/// or none.
const LASTS: Duration = Duration::from_secs(15);
/// A connection that says nothing is asked this often, and given up after
/// three times.
const PING: Duration = Duration::from_secs(10);
/// Within this the stream knows a message again; we repeat one sooner.
const KNOWN_AGAIN: Duration = Duration::from_secs(120);
/// The consumer of results, on their stream.
const CONSUMER: &str = "sitemapd";
/// A result that was taken and not acknowledged comes again after this. So long those
/// count as in flight that were on their way when a connection broke.
const COMES_AGAIN: Duration = Duration::from_secs(10);

impl Egress {
    /// Connects, and publishes and settles until the connection or the daemon
    /// ends, or the broker does not take what is published.
    pub(super) async fn session(&self, stop: &CancellationToken) -> Result<(), Trouble> {
        let lost = CancellationToken::new();
        self.said.forget();
        let setting_up = async {
            // First, since a broker that is away is no reason to keep what nobody has.
            self.take_stock(&Held::default()).await?;
            let context = self.connect(lost.clone()).await?;
            let consumer = streams(&context, &self.config, &self.said).await?;
            let inward = Settler::begin(self, consumer, lost.clone()).await?;
            Ok::<_, Trouble>((context, inward))
        };
        let (context, inward) = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            set_up = setting_up => set_up?,
        };
        // An idle queue has nothing to be acknowledged, so without a refusal
        // the connection, and an answer for the results, are enough.
        if !self.is_refused() && !lost.is_cancelled() {
            self.is_there();
        }
        let outward = Publisher::new(self, context.clone(), lost.clone(), stop.clone());
        // Either one ends the other, and neither in the middle of something.
        let publishing = async {
            let ended = outward.run().await;
            if ended.is_err() {
                lost.cancel();
            }
            ended
        };
        let settling = async {
            let ended = inward.run(stop).await;
            if ended.is_err() {
                lost.cancel();
            }
            ended
        };
        let lasting = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = lost.cancelled() => {}
                () = tokio::time::sleep(LASTS) => self.proven(),
            }
        };
        let (published, settled, ()) = tokio::join!(publishing, settling, lasting);
        // Acknowledgements on their way; what is lost comes again.
        let _ = timeout(Duration::from_secs(1), context.client().flush()).await;
        settled.and(published)?;
        if stop.is_cancelled() {
            return Ok(());
        }
        Err(Trouble::Broker("the connection was lost".to_owned()))
    }

    /// As the files have it now: a secret may have been replaced since the last session.
    async fn login(&self) -> Result<Login, Trouble> {
        let config = self.config.clone();
        let reading = tokio::task::spawn_blocking(move || login(&config));
        reading.await.map_err(broker)?.map_err(broker)
    }

    async fn connect(&self, lost: CancellationToken) -> Result<Context, Trouble> {
        let said = self.said.clone();
        let mut options = ConnectOptions::new()
            .name("sitemapd")
            .connection_timeout(ANSWER)
            .request_timeout(Some(ANSWER))
            .ping_interval(PING)
            // One look at each: at the start, and after a loss before it gives up.
            .max_reconnects(self.config.servers.len())
            .ignore_discovered_servers()
            .event_callback(move |event| {
                match event {
                    Event::Disconnected | Event::Closed => lost.cancel(),
                    Event::ServerError(error) => said.hear(&error),
                    _ => {}
                }
                std::future::ready(())
            });
        options = match self.login().await? {
            Login::Nobody => options,
            Login::Token(token) => options.token(token),
            Login::Password(user, password) => options.user_and_password(user, password),
            Login::Credentials(text) => options.credentials(&text).map_err(|error| {
                Trouble::Broker(format!("egress.nats.credentials_file cannot be read: {error}"))
            })?,
        };
        if let Some(path) = &self.config.ca_file {
            options = options.add_root_certificates(path.clone());
        }
        let addresses = self.config.servers.iter().cloned().map(ServerAddr::from_url);
        let addresses: Vec<_> = addresses.collect::<Result<_, _>>().map_err(broker)?;
        options = options.require_tls(self.config.servers.iter().all(|url| url.scheme() == "tls"));
        let client = options.connect(addresses).await.map_err(broker)?;
        let builder = jetstream::ContextBuilder::new().timeout(ANSWER).ack_timeout(ANSWER);
        Ok(builder.build(client))
    }
}

/// Both streams and the consumer of results, made where they may be.
async fn streams(context: &Context, config: &Nats, said: &Said) -> Result<PullConsumer, Trouble> {
    let work = stream::Config {
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        num_replicas: 1,
        ..stream::Config::default()
    };
    let urls = stream::Config {
        name: config.stream.clone(),
        subjects: vec![config.subject.wildcard()],
        // Behind its lease a message is worth nothing.
        max_age: config.lease,
        duplicate_window: KNOWN_AGAIN.min(config.lease),
        ..work.clone()
    };
    let results = stream::Config {
        name: config.results_stream.clone(),
        subjects: vec![config.results.to_string()],
        ..work
    };
    ensure(context, urls, config.create, said).await?;
    let results = ensure(context, results, config.create, said).await?;
    let filter = config.results.to_string();
    let wanted = pull::Config {
        durable_name: Some(CONSUMER.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: COMES_AGAIN,
        filter_subject: filter.clone(),
        ..pull::Config::default()
    };
    let consumer = results.get_or_create_consumer(CONSUMER, wanted).await.map_err(|error| {
        Trouble::Broker(format!(
            "the consumer {CONSUMER} of stream {} is not there and cannot be made: {error}",
            config.results_stream
        ))
    })?;
    let found = &consumer.cached_info().config.filter_subject;
    if !found.is_empty() && !covers(found, &filter) {
        tracing::warn!(
            stream = config.results_stream,
            consumer = CONSUMER,
            found,
            "the consumer gets nothing of egress.nats.results; delete it, and it is made anew"
        );
    }
    Ok(consumer)
}

/// Has a stream that is there what the configuration asks for? What it lacks it is
/// given where it may be made, too; otherwise the log says so. It works in any case.
async fn agree(
    context: &Context,
    found: &stream::Config,
    wanted: &stream::Config,
    may: bool,
    said: &Said,
) {
    let mut better = found.clone();
    // One that takes its messages from others hears no subject itself.
    let hears = found.mirror.is_none() && found.sources.is_none();
    for subject in wanted.subjects.iter().filter(|_| hears) {
        if !found.subjects.iter().any(|pattern| covers(pattern, subject)) {
            better.subjects.push(subject.clone());
        }
    }
    // A stream that keeps what was acknowledged has other readers, perhaps an archive's:
    // to keep less would be theirs to say.
    let is_work = found.retention == RetentionPolicy::WorkQueue;
    let is_shorter = !found.max_age.is_zero() && found.max_age < wanted.max_age;
    if !wanted.max_age.is_zero() && found.max_age != wanted.max_age && (is_work || is_shorter) {
        better.max_age = wanted.max_age;
        better.duplicate_window =
            better.duplicate_window.max(wanted.duplicate_window).min(wanted.max_age);
    }
    if better == *found {
        return;
    }
    let (name, subjects) = (&found.name, found.subjects.join(", "));
    let lacks = if may {
        match context.update_stream(&better).await {
            Ok(_) => {
                tracing::info!(stream = name, max_age = ?better.max_age, "stream changed as configured");
                return;
            }
            Err(error) => said.beside(error.to_string()),
        }
    } else {
        "egress.nats.create is false".to_owned()
    };
    // What is dropped before its lease is over nobody can fetch until it is; what is kept
    // longer is fetched in vain.
    tracing::warn!(
        stream = name,
        max_age = ?found.max_age,
        lease = ?wanted.max_age,
        subjects,
        wanted = wanted.subjects.join(", "),
        error = lacks,
        "the stream is not as configured: messages are lost, or outlive their leases"
    );
}

async fn ensure(
    context: &Context,
    wanted: stream::Config,
    may_create: bool,
    said: &Said,
) -> Result<Stream, Trouble> {
    let error = match context.get_stream(&wanted.name).await {
        Ok(stream) => {
            agree(context, &stream.cached_info().config, &wanted, may_create, said).await;
            return Ok(stream);
        }
        Err(error) => error,
    };
    let is_missing = match error.kind() {
        GetStreamErrorKind::JetStream(said) => {
            said.error_code() == jetstream::ErrorCode::STREAM_NOT_FOUND
        }
        _ => false,
    };
    let (name, subjects) = (wanted.name.clone(), wanted.subjects.join(", "));
    if !is_missing {
        return Err(Trouble::Broker(format!("stream {name} cannot be asked for: {error}")));
    }
    if !may_create {
        return Err(Trouble::Broker(format!(
            "there is no stream {name}: make it with the subject {subjects}, \
             or set egress.nats.create = true"
        )));
    }
    let made = context.create_stream(wanted).await.map_err(|error| {
        Trouble::Broker(format!("stream {name} for {subjects} cannot be made: {error}"))
    })?;
    tracing::info!(stream = name, subjects, "stream made");
    Ok(made)
}

/// What the broker's client says, as trouble.
pub(super) fn broker(error: impl std::fmt::Display) -> Trouble {
    Trouble::Broker(error.to_string())
}
