//! The frontier protocol of a whole daemon, over a real socket: what a client
//! relies on, and what outlives a restart.

use std::net::SocketAddr;

use futures_util::{Stream, StreamExt as _};
use prost::Message;
use sitemapd::serve::frontier::proto::ack_message::Status as Ack;
use sitemapd::serve::frontier::proto::{
    AckMessage, AnyCrawlId, DiscoveredUrlItem, GetParams, KnownUrlItem, Long,
    QueueWithinCrawlParams, Stats, StringList, UrlInfo, UrlItem, get_params, url_item,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::support::daemon::{Daemon, World};

mod beside;
mod doors;
mod queues;
mod reports;
mod restart;
mod streams;

/// A config with the frontier, and what else is typed.
fn config(more: &str) -> String {
    format!("[listen]\ngrpc = \"127.0.0.1:0\"\n{more}")
}

/// The same where the dates of clients are obeyed.
fn obeying() -> String {
    config("[urlfrontier]\ntrust_dates = true\n")
}

/// A client as another program would be one: it knows the names of calls.
struct Client {
    grpc: Grpc<Channel>,
    token: Option<String>,
}

impl Client {
    async fn of(daemon: &Daemon) -> Self {
        Self::at(daemon.grpc.unwrap()).await
    }

    async fn at(address: SocketAddr) -> Self {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap();
        let grpc = Grpc::new(channel.connect().await.unwrap());
        Self { grpc, token: None }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            let value = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", value);
        }
        request
    }

    async fn ready(&mut self, call: &str) -> PathAndQuery {
        self.grpc.ready().await.unwrap();
        let call = if call.starts_with('/') {
            call.to_owned()
        } else {
            format!("/urlfrontier.URLFrontier/{call}")
        };
        PathAndQuery::try_from(call).unwrap()
    }

    /// A call with one answer.
    async fn one<Q, A>(&mut self, call: &str, message: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = self.ready(call).await;
        let request = self.request(message);
        let codec: ProstCodec<Q, A> = ProstCodec::new();
        self.grpc.unary(request, path, codec).await.map(tonic::Response::into_inner)
    }

    /// A call with many answers, all of them.
    async fn many<Q, A>(&mut self, call: &str, message: Q) -> Vec<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = self.ready(call).await;
        let request = self.request(message);
        let codec: ProstCodec<Q, A> = ProstCodec::new();
        let answers = self.grpc.server_streaming(request, path, codec).await.unwrap();
        answers.into_inner().map(Result::unwrap).collect().await
    }

    /// A call that sends many and gets many, all of them.
    async fn stream<Q, A>(
        &mut self,
        call: &str,
        messages: impl Stream<Item = Q> + Send + 'static,
    ) -> Vec<Result<A, Status>>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = self.ready(call).await;
        let request = self.request(messages);
        let codec: ProstCodec<Q, A> = ProstCodec::new();
        match self.grpc.streaming(request, path, codec).await {
            Ok(answers) => answers.into_inner().collect().await,
            Err(status) => vec![Err(status)],
        }
    }

    /// Pushes items; the statuses, by what they were acknowledged as.
    async fn put(&mut self, items: Vec<UrlItem>) -> Vec<(String, Ack)> {
        let acks = self.stream("PutURLs", futures_util::stream::iter(items)).await;
        let acks = acks.into_iter().map(Result::<AckMessage, _>::unwrap);
        acks.map(|ack| (ack.id.clone(), ack.status())).collect()
    }

    /// What `GetURLs` yields of any crawl: at most so many of a queue, and queues.
    async fn get(&mut self, per_queue: u32, max_queues: u32) -> Vec<String> {
        let params = GetParams {
            max_urls_per_queue: per_queue,
            max_queues,
            item: Some(get_params::Item::AnyCrawlId(AnyCrawlId::default())),
            ..GetParams::default()
        };
        self.get_as(params).await.into_iter().map(|info| info.url).collect()
    }

    async fn get_as(&mut self, params: GetParams) -> Vec<UrlInfo> {
        self.many("GetURLs", params).await
    }

    async fn stats(&mut self, key: &str) -> Stats {
        let params = QueueWithinCrawlParams { key: key.to_owned(), ..Default::default() };
        self.one("GetStats", params).await.unwrap()
    }

    async fn count(&mut self, call: &str, message: impl Message + 'static) -> u64 {
        self.one::<_, Long>(call, message).await.unwrap().value
    }
}

fn info(url: &str) -> UrlInfo {
    UrlInfo { url: url.to_owned(), ..UrlInfo::default() }
}

fn keyed(url: &str, key: &str) -> UrlInfo {
    UrlInfo { key: key.to_owned(), ..info(url) }
}

fn saying(url: &str, said: &[(&str, &str)]) -> UrlInfo {
    let one = |(name, value): &(&str, &str)| {
        ((*name).to_owned(), StringList { values: vec![(*value).to_owned()] })
    };
    UrlInfo { metadata: said.iter().map(one).collect(), ..info(url) }
}

fn discovered(info: UrlInfo) -> UrlItem {
    let item = url_item::Item::Discovered(DiscoveredUrlItem { info: Some(info) });
    UrlItem { item: Some(item), ..UrlItem::default() }
}

fn known(info: UrlInfo, refetchable_from_date: u64) -> UrlItem {
    let known = KnownUrlItem { info: Some(info), refetchable_from_date };
    UrlItem { item: Some(url_item::Item::Known(known)), ..UrlItem::default() }
}

/// A daemon with the frontier, and a client of it.
async fn started(text: &str) -> (World, Daemon, Client) {
    let world = World::new(&[]);
    let daemon = world.start(text).await;
    let client = Client::of(&daemon).await;
    (world, daemon, client)
}

async fn metrics_of(daemon: &Daemon) -> String {
    let mut stream = TcpStream::connect(daemon.api).await.unwrap();
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", daemon.api);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}
