//! Threads for work that would hold up an async worker: few, and always the
//! same.
//!
//! The runtime's blocking pool has as many as there ever were addresses to be
//! looked up at once, and work is done on any of them; for each the allocator keeps
//! what a large document took there. So what takes much memory has threads of its
//! own.

use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::Once;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// So many threads, and turns at them.
pub(crate) struct Threads {
    handle: Handle,
    /// Only its blocking pool is used. Taken when it is let go.
    pool: Option<Runtime>,
    turns: Arc<Semaphore>,
}

impl Threads {
    /// At most `count` of that name, each started when it is needed. An error
    /// is the system's.
    pub(crate) fn new(name: &str, count: usize) -> std::io::Result<Self> {
        Self::starting(name, count, || ())
    }

    /// The same for work that nobody waits for, and that would fill a processor: on
    /// Linux others have it first.
    pub(crate) fn in_background(name: &str, count: usize) -> std::io::Result<Self> {
        Self::starting(name, count, stand_back)
    }

    fn starting(
        name: &str,
        count: usize,
        begin: impl Fn() + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let pool = Builder::new_current_thread()
            .max_blocking_threads(count)
            .thread_name(name)
            .on_thread_start(begin)
            .build()?;
        Ok(Self {
            handle: pool.handle().clone(),
            pool: Some(pool),
            turns: Arc::new(Semaphore::new(count)),
        })
    }

    /// Starts work when it is its turn; what is dropped before then is not begun.
    /// Within it no task can be spawned: nothing drives the runtime there.
    pub(crate) async fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        // Nobody closes it.
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        self.handle.spawn_blocking(move || {
            let _turn = turn;
            work()
        })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // To wait for them is not for an async worker.
        if let Some(pool) = self.pool.take() {
            pool.shutdown_background();
        }
    }
}

/// How far such threads stand back behind the others: a tenth of their share of a
/// processor that both want.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Lets other threads have the processor first. Elsewhere than on Linux this would be
/// for the whole process.
fn stand_back() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICE) {
        // A sandbox forbids it to one as to all.
        static TOLD: Once = Once::new();
        TOLD.call_once(|| {
            tracing::warn!(%error, "threads in the background have the same priority as others");
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_is_done_on_so_many_threads_however_much_there_is() {
        let threads = Threads::new("few", 2).unwrap();
        let both = Arc::new(Barrier::new(2));
        let mut waiting = Vec::new();
        for _ in 0..100 {
            let both = Arc::clone(&both);
            let work = move || {
                both.wait();
                std::thread::current().id()
            };
            waiting.push(threads.start(work).await);
        }
        let mut on = HashSet::new();
        for done in waiting {
            on.insert(done.await.unwrap());
        }
        assert_eq!(on.len(), 2);
    }

    #[tokio::test]
    async fn a_panic_is_told_and_costs_no_thread_and_no_turn() {
        let threads = Threads::new("one", 1).unwrap();
        for _ in 0..3 {
            assert!(threads.start(|| panic!("as a bug would")).await.await.unwrap_err().is_panic());
        }
        assert_eq!(threads.start(|| 7).await.await.unwrap(), 7);
    }

    /// The system bounds it to 19, where whoever started the tests stands back, too.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn threads_in_the_background_stand_back_and_only_they() {
        let ours = || rustix::process::getpriority_process(None).unwrap();
        let before = ours();
        let threads = Threads::in_background("few", 1).unwrap();
        assert_eq!(threads.start(ours).await.await.unwrap(), (before + NICE).min(19));
        let threads = Threads::new("few", 1).unwrap();
        assert_eq!(threads.start(ours).await.await.unwrap(), before);
        assert_eq!(ours(), before);
    }
}
