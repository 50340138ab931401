//! The kinds of signals that a page may have changed, and values kept per kind.
//!
//! A signal is what was said of a page without fetching it. Each kind is
//! believed as far as it has proved right, apart from all others: a host may
//! write honest lastmods and still regenerate its sitemap for nothing.

use std::ops::{Index, IndexMut};

/// Why a page may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Signal {
    /// Its lastmod is strictly newer, by a habit that may be believed.
    Lastmod,
    /// Its lastmod is newer, together with nearly all others of its source or
    /// by the clock of the server: counted, and not believed until proven.
    Stamp,
    /// No newer lastmod, but what its entry says has moved.
    Touched,
    /// Its owner pushed it: `IndexNow`.
    Pushed,
}

impl Signal {
    /// Every kind, in the order in which they are stored.
    pub const ALL: [Self; 4] = [Self::Lastmod, Self::Stamp, Self::Touched, Self::Pushed];

    /// The word used in tables, logs and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lastmod => "lastmod",
            Self::Stamp => "stamp",
            Self::Touched => "touched",
            Self::Pushed => "pushed",
        }
    }
}

/// One value per kind of signal.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct PerSignal<T>(pub [T; 4]);

impl<T> PerSignal<T> {
    /// The kinds with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Signal, &T)> {
        Signal::ALL.into_iter().zip(&self.0)
    }

    /// One value per kind, as `f` says.
    pub fn from_fn(f: impl FnMut(Signal) -> T) -> Self {
        Self(Signal::ALL.map(f))
    }
}

impl<T> Index<Signal> for PerSignal<T> {
    type Output = T;

    fn index(&self, signal: Signal) -> &T {
        &self.0[signal as usize]
    }
}

impl<T> IndexMut<Signal> for PerSignal<T> {
    fn index_mut(&mut self, signal: Signal) -> &mut T {
        &mut self.0[signal as usize]
    }
}
