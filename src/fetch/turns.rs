//! Turns at an address: so many requests in flight to one IP address, over all
//! the hosts that share it.
//!
//! The map holds an entry only while somebody uses or awaits it, so that it
//! never grows beyond the requests in flight.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// All turns. Cheap to clone.
#[derive(Clone)]
pub(super) struct Turns {
    per_address: usize,
    slots: Arc<Mutex<HashMap<IpAddr, Slot>>>,
}

struct Slot {
    free: Arc<Semaphore>,
    users: usize,
}

/// The right to have one request in flight to an address; given back on drop.
pub(super) struct Turn {
    // Dropped in this order: the permit first, then the use of the slot.
    _permit: OwnedSemaphorePermit,
    _slot: SlotUse,
}

struct SlotUse {
    turns: Turns,
    ip: IpAddr,
}

impl Turns {
    /// At most `per_address` requests in flight to one address; 0 counts as 1.
    pub(super) fn new(per_address: u32) -> Self {
        let per_address = usize::try_from(per_address).unwrap_or(usize::MAX);
        Self { per_address: per_address.clamp(1, Semaphore::MAX_PERMITS), slots: Arc::default() }
    }

    /// Waits for a turn at every one of these addresses, since the client may
    /// connect to any. They are taken in the order of the addresses, so that
    /// two requests never wait for each other.
    pub(super) async fn take(&self, mut addresses: Vec<IpAddr>) -> Vec<Turn> {
        addresses.sort_unstable();
        addresses.dedup();
        let mut taken = Vec::with_capacity(addresses.len());
        for ip in addresses {
            let (slot, free) = self.enter(ip);
            // The semaphore is never closed; if it were, the cap would be off.
            if let Ok(permit) = free.acquire_owned().await {
                taken.push(Turn { _permit: permit, _slot: slot });
            }
        }
        taken
    }

    fn enter(&self, ip: IpAddr) -> (SlotUse, Arc<Semaphore>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots
            .entry(ip)
            .or_insert_with(|| Slot { free: Arc::new(Semaphore::new(self.per_address)), users: 0 });
        slot.users += 1;
        (SlotUse { turns: self.clone(), ip }, slot.free.clone())
    }
}

impl Drop for SlotUse {
    fn drop(&mut self) {
        let mut slots = self.turns.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get_mut(&self.ip) {
            slot.users -= 1;
            if slot.users == 0 {
                slots.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    fn slots(turns: &Turns) -> usize {
        turns.slots.lock().unwrap().len()
    }

    #[test]
    fn an_address_has_so_many_turns_and_no_more() {
        let turns = Turns::new(2);
        let first = now_or_never(turns.take(vec![ip(1)])).unwrap();
        let _second = now_or_never(turns.take(vec![ip(1)])).unwrap();
        assert!(now_or_never(turns.take(vec![ip(1)])).is_none());
        assert!(now_or_never(turns.take(vec![ip(2)])).is_some(), "other addresses are free");
        drop(first);
        assert!(now_or_never(turns.take(vec![ip(1)])).is_some());
    }

    #[test]
    fn a_request_that_gives_up_waiting_leaves_nothing_behind() {
        let turns = Turns::new(1);
        let held = now_or_never(turns.take(vec![ip(3), ip(1), ip(3)])).unwrap();
        assert_eq!(slots(&turns), 2);
        assert!(now_or_never(turns.take(vec![ip(1), ip(2)])).is_none());
        assert_eq!(slots(&turns), 2);
        drop(held);
        assert_eq!(slots(&turns), 0);
    }
}
