//! Turns at an address: so many requests in flight to one IP address (one network of 64
//! bits of IPv6, of which whoever has one has more addresses than we have turns), over all
//! the hosts that share it, and a line for them that is no longer than it may be:
//! an address that is dead, or slow, keeps only so many from asking elsewhere.
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
    /// Places at one address: of those who have a turn, and of those who wait.
    places: usize,
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

/// A place in the line at each address that a request may go to; given back on drop.
pub(super) struct Places(Vec<(SlotUse, Arc<Semaphore>)>);

struct SlotUse {
    turns: Turns,
    ip: IpAddr,
}

impl Turns {
    /// At most `per_address` requests in flight to one address; 0 counts as 1.
    /// At most `places` are or wait there, if that is more.
    pub(super) fn new(per_address: u32, places: usize) -> Self {
        let per_address = usize::try_from(per_address).unwrap_or(usize::MAX);
        let per_address = per_address.clamp(1, Semaphore::MAX_PERMITS);
        Self { per_address, places: places.max(per_address), slots: Arc::default() }
    }

    /// A place at every one of these addresses, since the client may connect to
    /// any; none where all are taken at one of them. For whom a line may be `times`
    /// as long as for others.
    pub(super) fn places(&self, addresses: Vec<IpAddr>, times: usize) -> Option<Places> {
        let mut addresses: Vec<_> = addresses.into_iter().map(counted_as).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let most = self.places.saturating_mul(times);
        addresses.into_iter().map(|ip| self.enter(ip, most)).collect::<Option<_>>().map(Places)
    }

    /// Are all places taken at one of these addresses, just now?
    pub(super) fn are_crowded(&self, addresses: &[IpAddr], times: usize) -> bool {
        let most = self.places.saturating_mul(times);
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |slot: &Slot| slot.users >= most;
        addresses.iter().any(|ip| slots.get(&counted_as(*ip)).is_some_and(is_full))
    }

    fn enter(&self, ip: IpAddr, most: usize) -> Option<(SlotUse, Arc<Semaphore>)> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots
            .entry(ip)
            .or_insert_with(|| Slot { free: Arc::new(Semaphore::new(self.per_address)), users: 0 });
        if slot.users >= most {
            return None;
        }
        slot.users += 1;
        Some((SlotUse { turns: self.clone(), ip }, slot.free.clone()))
    }
}

impl Places {
    /// The turns, where all are free just now and nobody waits for them.
    pub(super) fn free(self) -> Result<Vec<Turn>, Self> {
        let permits: Result<Vec<_>, _> =
            self.0.iter().map(|(_, free)| Arc::clone(free).try_acquire_owned()).collect();
        let Ok(permits) = permits else { return Err(self) };
        let turns = self.0.into_iter().zip(permits);
        Ok(turns.map(|((slot, _), permit)| Turn { _permit: permit, _slot: slot }).collect())
    }

    /// Waits for all turns. They are taken in the order of the addresses, so
    /// that two requests never wait for each other.
    pub(super) async fn wait(self) -> Vec<Turn> {
        let mut taken = Vec::with_capacity(self.0.len());
        for (slot, free) in self.0 {
            // The semaphore is never closed; if it were, the cap would be off.
            if let Ok(permit) = free.acquire_owned().await {
                taken.push(Turn { _permit: permit, _slot: slot });
            }
        }
        taken
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

/// What an address counts as: one of IPv6 as its network.
fn counted_as(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let network = u128::from(ip) & !u128::from(u64::MAX);
            IpAddr::from(network.to_be_bytes())
        }
        ip @ IpAddr::V4(_) => ip,
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

    /// Turns at these addresses, if they are to be had at once.
    fn take(turns: &Turns, addresses: &[IpAddr]) -> Option<Vec<Turn>> {
        now_or_never(turns.places(addresses.to_vec(), 1).unwrap().wait())
    }

    #[test]
    fn an_address_has_so_many_turns_and_no_more() {
        let turns = Turns::new(2, 9);
        let first = take(&turns, &[ip(1)]).unwrap();
        let _second = take(&turns, &[ip(1)]).unwrap();
        assert!(take(&turns, &[ip(1)]).is_none());
        assert!(turns.places(vec![ip(1), ip(2)], 1).unwrap().free().is_err());
        assert!(take(&turns, &[ip(2)]).is_some(), "other addresses are free");
        drop(first);
        let third = turns.places(vec![ip(1)], 1).unwrap().free();
        assert!(third.is_ok() && take(&turns, &[ip(1)]).is_none());
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_share_their_turns() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let turns = Turns::new(1, 1);
        let (first, second) = (ip("2001:db8:0:1::1"), ip("2001:db8:0:1:ffff::2"));
        let held = turns.places(vec![first, second], 1).unwrap().free();
        assert!(held.is_ok());
        assert!(turns.are_crowded(&[second], 1) && turns.places(vec![second], 1).is_none());
        assert!(turns.places(vec![ip("2001:db8:0:2::1")], 1).is_some(), "another network");
        let held = take(&turns, &[ip("::ffff:192.0.2.1")]).unwrap();
        assert!(turns.are_crowded(&[ip("192.0.2.1")], 1), "the same machine");
        drop(held);
    }

    #[test]
    fn a_request_that_gives_up_waiting_leaves_nothing_behind() {
        let turns = Turns::new(1, 9);
        let held = take(&turns, &[ip(3), ip(1), ip(3)]).unwrap();
        assert_eq!(slots(&turns), 2);
        assert!(take(&turns, &[ip(1), ip(2)]).is_none());
        assert_eq!(slots(&turns), 2);
        drop(held);
        assert_eq!(slots(&turns), 0);
    }

    #[test]
    fn only_so_many_have_a_place_at_an_address() {
        let turns = Turns::new(1, 2);
        let held = take(&turns, &[ip(1)]).unwrap();
        let waiting = turns.places(vec![ip(1), ip(2)], 1).unwrap();
        assert!(turns.places(vec![ip(1), ip(3)], 1).is_none());
        assert!(turns.are_crowded(&[ip(3), ip(1)], 1) && !turns.are_crowded(&[ip(2), ip(3)], 1));
        assert!(turns.places(vec![ip(0), ip(1)], 1).is_none());
        // But for those who may wait in a longer line.
        assert!(!turns.are_crowded(&[ip(1)], 2) && turns.places(vec![ip(1)], 2).is_some());
        assert_eq!(slots(&turns), 2, "who has no place at one has none at the others");
        drop(waiting);
        assert!(turns.places(vec![ip(1)], 1).is_some());
        drop(held);
        assert_eq!(slots(&turns), 0);
        // Who may have a turn has a place.
        assert!(Turns::new(3, 0).places(vec![ip(1)], 1).is_some());
    }
}
