//! Turns at an address: so many requests in flight to one IP address, over all
//! the hosts that share it, and a line for them that is no longer than it may be:
//! an address that is dead, or slow, keeps only so many from asking elsewhere.
//! A network of 64 bits of IPv6, of which whoever has one has more addresses than we
//! have turns, has some times as many: one machine may have all of it, or a content
//! delivery network its customers in a handful.
//!
//! The map holds an entry only while somebody uses or awaits it, so that it
//! never grows beyond the requests in flight.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::guard;

/// Addresses' worth of turns that a network of IPv6 has.
const OF_NETWORK: usize = 8;

/// All turns. Cheap to clone.
#[derive(Clone)]
pub(super) struct Turns {
    per_address: usize,
    /// Places at one address: of those who have a turn, and of those who wait.
    places: usize,
    slots: Arc<Mutex<HashMap<Counted, Slot>>>,
}

/// What turns are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Counted {
    Address(IpAddr),
    /// The upper half of addresses of IPv6.
    Network(u64),
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
    counted: Counted,
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
    pub(super) fn places(&self, addresses: &[IpAddr], times: usize) -> Option<Places> {
        let mut all: Vec<_> = addresses.iter().flat_map(|ip| counted_as(*ip)).collect();
        all.sort_unstable();
        all.dedup();
        let most = self.places.saturating_mul(times);
        all.into_iter().map(|counted| self.enter(counted, most)).collect::<Option<_>>().map(Places)
    }

    /// Are all places taken at one of these addresses, just now?
    pub(super) fn are_crowded(&self, addresses: &[IpAddr], times: usize) -> bool {
        let most = self.places.saturating_mul(times);
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |counted: Counted| {
            slots
                .get(&counted)
                .is_some_and(|slot| slot.users >= most.saturating_mul(counted.worth()))
        };
        addresses.iter().flat_map(|ip| counted_as(*ip)).any(is_full)
    }

    fn enter(&self, counted: Counted, most: usize) -> Option<(SlotUse, Arc<Semaphore>)> {
        let worth = counted.worth();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.entry(counted).or_insert_with(|| {
            let turns = self.per_address.saturating_mul(worth).min(Semaphore::MAX_PERMITS);
            Slot { free: Arc::new(Semaphore::new(turns)), users: 0 }
        });
        if slot.users >= most.saturating_mul(worth) {
            return None;
        }
        slot.users += 1;
        Some((SlotUse { turns: self.clone(), counted }, slot.free.clone()))
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
        if let Some(slot) = slots.get_mut(&self.counted) {
            slot.users -= 1;
            if slot.users == 0 {
                slots.remove(&self.counted);
            }
        }
    }
}

impl Counted {
    /// As how many addresses it counts.
    fn worth(self) -> usize {
        match self {
            Self::Address(_) => 1,
            Self::Network(_) => OF_NETWORK,
        }
    }
}

/// What an address counts as: itself, or the one of IPv4 that it stands for, and one of
/// IPv6 as its network, too.
fn counted_as(ip: IpAddr) -> impl Iterator<Item = Counted> {
    let ip = match ip {
        IpAddr::V6(ip) => guard::embedded_v4(ip).map_or(IpAddr::V6(ip), IpAddr::V4),
        IpAddr::V4(_) => ip,
    };
    let network = match ip {
        IpAddr::V6(ip) => Some(Counted::Network(upper_half(ip))),
        IpAddr::V4(_) => None,
    };
    [Some(Counted::Address(ip)), network].into_iter().flatten()
}

fn upper_half(ip: Ipv6Addr) -> u64 {
    // Half of the bits are left.
    u64::try_from(ip.to_bits() >> 64).unwrap_or_default()
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
        now_or_never(turns.places(addresses, 1).unwrap().wait())
    }

    #[test]
    fn an_address_has_so_many_turns_and_no_more() {
        let turns = Turns::new(2, 9);
        let first = take(&turns, &[ip(1)]).unwrap();
        let _second = take(&turns, &[ip(1)]).unwrap();
        assert!(take(&turns, &[ip(1)]).is_none());
        assert!(turns.places(&[ip(1), ip(2)], 1).unwrap().free().is_err());
        assert!(take(&turns, &[ip(2)]).is_some(), "other addresses are free");
        drop(first);
        let third = turns.places(&[ip(1)], 1).unwrap().free();
        assert!(third.is_ok() && take(&turns, &[ip(1)]).is_none());
    }

    #[test]
    fn a_network_of_ipv6_has_the_turns_of_eight_addresses() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let turns = Turns::new(1, 1);
        let one = |host: usize| ip(&format!("2001:db8:0:1::{host:x}"));
        let held: Vec<_> =
            (0..OF_NETWORK).map(|host| take(&turns, &[one(host)]).unwrap()).collect();
        assert!(turns.are_crowded(&[one(0)], 1) && turns.places(&[one(0)], 1).is_none());
        assert!(turns.are_crowded(&[one(8)], 1) && turns.places(&[one(8)], 1).is_none());
        assert!(turns.places(&[ip("2001:db8:0:2::1")], 1).is_some(), "another network");
        drop(held);
        assert_eq!(slots(&turns), 0);
        let held = turns.places(&[one(1), one(2)], 1).unwrap().free();
        assert!(held.is_ok(), "of one network, for one request");
        assert!(turns.are_crowded(&[one(2)], 1) && !turns.are_crowded(&[one(3)], 1));
    }

    #[test]
    fn an_address_of_ipv4_is_the_same_one_behind_ipv6() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let turns = Turns::new(1, 1);
        for behind in ["::ffff:192.0.2.1", "64:ff9b::192.0.2.1"] {
            let held = take(&turns, &[ip(behind)]).unwrap();
            assert!(turns.are_crowded(&[ip("192.0.2.1")], 1), "{behind} is the same machine");
            assert!(!turns.are_crowded(&[ip("64:ff9b::192.0.2.2")], 1), "{behind} is one machine");
            drop(held);
        }
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
        let waiting = turns.places(&[ip(1), ip(2)], 1).unwrap();
        assert!(turns.places(&[ip(1), ip(3)], 1).is_none());
        assert!(turns.are_crowded(&[ip(3), ip(1)], 1) && !turns.are_crowded(&[ip(2), ip(3)], 1));
        assert!(turns.places(&[ip(0), ip(1)], 1).is_none());
        // But for those who may wait in a longer line.
        assert!(!turns.are_crowded(&[ip(1)], 2) && turns.places(&[ip(1)], 2).is_some());
        assert_eq!(slots(&turns), 2, "who has no place at one has none at the others");
        drop(waiting);
        assert!(turns.places(&[ip(1)], 1).is_some());
        drop(held);
        assert_eq!(slots(&turns), 0);
        // Who may have a turn has a place.
        assert!(Turns::new(3, 0).places(&[ip(1)], 1).is_some());
    }
}
