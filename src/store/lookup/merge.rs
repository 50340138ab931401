//! Merging runs of one level into one of the next, a slice of hashes at a time.

use rusqlite::Connection;

use super::run::{END, MEAN_CHUNK, Run};
use super::{FAN_OUT, Lookup};

/// Most runs merged at once, when more than [`FAN_OUT`] have gathered.
const MAX_INPUTS: usize = 2 * FAN_OUT;

/// What to merge next. Small runs first: they come often and finish soon.
#[derive(Debug, Clone, Copy)]
enum Next {
    /// Go on writing this run.
    Resume(i64),
    /// Begin to merge the runs of this level.
    Begin(u32),
}

impl Lookup {
    pub(crate) fn has_merge(&self) -> bool {
        self.next_merge().is_some()
    }

    pub(super) fn merge(&mut self, conn: &Connection, budget: usize) -> rusqlite::Result<()> {
        match self.next_merge() {
            None => Ok(()),
            Some(Next::Resume(id)) => self.advance(conn, id, budget),
            Some(Next::Begin(level)) => {
                let id = self.begin(conn, level)?;
                self.advance(conn, id, budget)
            }
        }
    }

    fn next_merge(&self) -> Option<Next> {
        let begun = self.runs.iter().filter(|run| run.hi < END).min_by_key(|run| run.level);
        let mut gathered = [0_usize; 32];
        for run in self.runs.iter().filter(|run| run.is_whole()) {
            if let Some(count) = gathered.get_mut(run.level as usize) {
                *count += 1;
            }
        }
        let full = (0_u32..).zip(gathered).find(|&(_, count)| count >= FAN_OUT);
        match (begun, full) {
            (Some(run), Some((level, _))) if run.level > level + 1 => Some(Next::Begin(level)),
            (Some(run), _) => Some(Next::Resume(run.id)),
            (None, Some((level, _))) => Some(Next::Begin(level)),
            (None, None) => None,
        }
    }

    /// Makes an empty run that the oldest runs of the level are merged into.
    fn begin(&mut self, conn: &Connection, level: u32) -> rusqlite::Result<i64> {
        let id = self.next_id();
        let mut entries = 0_usize;
        let inputs = self.runs.iter_mut().filter(|run| run.is_whole() && run.level == level);
        for run in inputs.take(MAX_INPUTS) {
            entries = entries.saturating_add(run.entries);
            run.merged_into = Some(id);
            run.save(conn)?;
        }
        let level = self.level_of(entries).max(level + 1);
        self.runs.push(Run::create(conn, id, level, entries)?);
        Ok(id)
    }

    /// Moves the next `budget` entries or so from the inputs to the run.
    fn advance(&mut self, conn: &Connection, id: i64, budget: usize) -> rusqlite::Result<()> {
        let Some(place) = self.runs.iter().position(|run| run.id == id) else { return Ok(()) };
        self.is_ahead = true;
        let mut output = self.runs.swap_remove(place);
        let chunks = u32::try_from(budget / MEAN_CHUNK).unwrap_or(u32::MAX).max(1);
        let from = output.hi;
        let end = match output.chunks.part_of(from).saturating_add(chunks) {
            part if part >= output.chunks.parts() => END,
            part => output.chunks.start_of(part),
        };
        let mut entries = Vec::new();
        for input in self.runs.iter_mut().filter(|run| run.merged_into == Some(id)) {
            input.read(conn, from, end, &mut entries)?;
            input.give_up(conn, end, &self.resident)?;
            input.save(conn)?;
        }
        // Several sorted sequences one after the other: what this sort is best at.
        entries.sort();
        entries.dedup();
        output.append(conn, &entries, end, &self.resident)?;
        output.save(conn)?;
        self.runs.push(output);
        if end == END {
            self.runs.retain(|run| run.merged_into != Some(id));
            conn.prepare_cached("DELETE FROM lookup_runs WHERE merged_into = ?1")?.execute([id])?;
        }
        // Oldest first, which is what `begin` takes first.
        self.runs.sort_by_key(|run| run.id);
        Ok(())
    }
}
