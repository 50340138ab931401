//! Reads on what nobody has read of a request's body, and throws it away.
//!
//! A request is refused before its body is looked at wherever that can be: without the
//! token, over a share, for what is no route, for its size. Most clients read the answer
//! only when all is sent: to close the connection before that would tell them of a broken
//! connection, and they would come again with the same.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::http::header;
use bytes::Bytes;
use futures_util::StreamExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout, timeout_at};

use super::extract::BODY_TIMEOUT;

/// Bytes thrown away at most.
const MOST: usize = 64 << 20;
/// Without a byte for so long, a client waits for the answer and sends no more.
const LULL: Duration = Duration::from_millis(500);
/// Waited for in so many parts: where we stood still it may be that only one of them was
/// over, and what came meanwhile is read in the next.
const PARTS: u32 = 4;

/// The same request, whose body is read to its end by whoever gets it, or else here.
pub(super) fn read_on(request: Request) -> Request {
    if request.body().is_end_stream() {
        return request;
    }
    // Who asks first whether to send need not send, unless somebody has begun to read.
    let is_held_back = request.headers().contains_key(header::EXPECT);
    let until = Instant::now() + BODY_TIMEOUT;
    request.map(|body| Body::new(Rest { body, is_held_back, is_over: false, until }))
}

/// A body of which the rest is read when it is dropped.
struct Rest {
    body: Body,
    is_held_back: bool,
    is_over: bool,
    /// Time for all of it to come in.
    until: Instant,
}

impl HttpBody for Rest {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_held_back = false;
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.is_over = !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        if self.is_held_back || self.is_over || self.body.is_end_stream() {
            return;
        }
        // At the end of the process there may be nobody left to read.
        let Ok(runtime) = Handle::try_current() else { return };
        let body = std::mem::take(&mut self.body);
        runtime.spawn(timeout_at(self.until, discard(body.into_data_stream())));
    }
}

async fn discard(mut chunks: BodyDataStream) {
    let (mut seen, mut silent) = (0, 0);
    while seen <= MOST && silent < PARTS {
        match timeout(LULL / PARTS, chunks.next()).await {
            Ok(Some(Ok(chunk))) => {
                seen += chunk.len();
                silent = 0;
            }
            Ok(None | Some(Err(_))) => return,
            Err(_) => silent += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream::unfold;
    use tokio::sync::mpsc;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_came_while_we_stood_still_is_no_lull_and_silence_is() {
        let (client, received) = mpsc::channel::<Bytes>(1);
        let parts = unfold(received, |mut received| async move {
            let part = received.recv().await?;
            Some((Ok::<_, Infallible>(part), received))
        });
        let reading = tokio::spawn(discard(Body::from_stream(parts).into_data_stream()));
        for _ in 0..3 {
            client.send(Bytes::from_static(b"more")).await.expect("it is read");
            while client.capacity() == 0 {
                tokio::task::yield_now().await;
            }
            // All of it is over at once, and known to be before what has come is there.
            advance(10 * LULL).await;
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        let began = Instant::now();
        reading.await.expect("it ends");
        assert!(client.is_closed());
        assert!(began.elapsed() < LULL, "{:?}", began.elapsed());
    }
}
