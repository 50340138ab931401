//! The rows of one step, part by part: read in the order of their key, turned
//! into those of the server, written with the place that they lead up to.

use rusqlite::types::Value;
use rusqlite::{Connection, Row};

use super::super::abbreviations::PathText;
use super::super::record::Record;
use super::super::rows::url_key;
use super::super::{StoreError, engine};
use super::plan::{Kind, Step};
use super::survey::Survey;
use super::target::{At, Target};
use crate::model::CrawlId;

/// Bytes of one commit, about: rows of documents end it sooner.
const MAX_BYTES: usize = 8 << 20;

/// What a copy is bounded by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Rows of one commit.
    pub(super) rows: usize,
    /// Commits that are left.
    pub(super) commits: Option<u64>,
}

impl Bounds {
    fn take(&mut self) -> bool {
        match &mut self.commits {
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }
}

/// Copies what is left of a step; false when the bounds ended it sooner.
pub(super) fn copy(
    file: &Connection,
    target: &Target,
    step: &Step,
    survey: &Survey,
    bounds: &mut Bounds,
    mut tell: impl FnMut(u64),
) -> Result<bool, StoreError> {
    let mut at = target.place(step.name)?;
    tell(at.rows);
    if at.is_done {
        return Ok(true);
    }
    let copier = target.copier(step)?;
    let turn = Turn::of(step, survey);
    let mut query = file.prepare(&step.select()).map_err(engine)?;
    let skipped = i64::try_from(at.rows).unwrap_or(i64::MAX);
    let mut rows = query.query([skipped]).map_err(engine)?;
    loop {
        let (mut values, mut bytes, mut count) = (Vec::new(), 0, 0);
        let is_done = loop {
            let Some(row) = rows.next().map_err(engine)? else { break true };
            bytes += turn.row(row, &mut values)?;
            count += 1;
            if count >= bounds.rows || bytes >= MAX_BYTES {
                break false;
            }
        };
        if !bounds.take() {
            return Ok(false);
        }
        at = At { rows: at.rows + count as u64, is_done };
        target.write(step.name, &copier, &values, at)?;
        tell(at.rows);
        if is_done {
            return Ok(true);
        }
    }
}

/// What turns the rows of a step.
struct Turn<'s> {
    step: &'s Step,
    survey: &'s Survey,
    /// Columns that others are turned by.
    part: Option<usize>,
    crawl: usize,
    path: usize,
    state: usize,
}

impl<'s> Turn<'s> {
    fn of(step: &'s Step, survey: &'s Survey) -> Self {
        let index = |name| step.index(name).unwrap_or(0);
        Self {
            step,
            survey,
            part: step.part.map(index),
            crawl: index("crawl_id"),
            path: index("path"),
            state: index("state"),
        }
    }

    /// Adds one row; says about how many bytes it has.
    fn row(&self, row: &Row<'_>, out: &mut Vec<Value>) -> Result<usize, StoreError> {
        let first = out.len();
        if self.part.is_some() {
            out.push(Value::Integer(0));
        }
        let mut bytes = 0;
        for (index, column) in self.step.columns.iter().enumerate() {
            let value = self.value(column.kind, row, index)?;
            bytes += match &value {
                Value::Text(text) => text.len(),
                Value::Blob(blob) => blob.len(),
                _ => size_of::<i64>(),
            };
            out.push(value);
        }
        // One more: the partition itself stands first.
        let by = self.part.and_then(|part| out.get(first + 1 + part)).cloned();
        if let (Some(Value::Integer(id)), Some(part)) = (by, out.get_mut(first)) {
            *part = Value::Integer(id & 255);
        }
        Ok(bytes)
    }

    fn value(&self, kind: Kind, row: &Row<'_>, index: usize) -> Result<Value, StoreError> {
        let ids = &self.survey.ids;
        let value: Value = row.get(index).map_err(engine)?;
        Ok(match (kind, value) {
            (Kind::Host, Value::Integer(id)) => Value::Integer(ids.hosts.new_id(id)),
            (Kind::Source, Value::Integer(id)) => Value::Integer(ids.sources.new_id(id)),
            (Kind::Url, Value::Integer(id)) => Value::Integer(ids.urls.new_id(id)),
            (Kind::Learned, Value::Integer(id)) => Value::Integer(match integer(row, 0)? {
                1 => ids.hosts.new_id(id),
                2 => ids.sources.new_id(id),
                _ => id,
            }),
            (Kind::Snapshot, Value::Blob(data)) => Value::Blob(ids.snapshot(data)),
            (Kind::Changes, Value::Blob(data)) => Value::Blob(ids.changes(&data)),
            (Kind::Record, Value::Blob(data)) => {
                Value::Blob(ids.record(data, integer(row, self.state)? == 0))
            }
            (Kind::Looks, Value::Blob(data)) => {
                Value::Integer(Record::unpack(&data).looks.is_some().into())
            }
            (Kind::Looks, _) => Value::Integer(0),
            (Kind::Key, Value::Text(authority)) => {
                let crawl = CrawlId(integer(row, self.crawl)?);
                let PathText(path) = row.get(self.path).map_err(engine)?;
                let key = url_key(self.survey.seed, crawl, &authority, &path);
                Value::Integer(key.cast_signed())
            }
            (Kind::Path, _) => {
                let PathText(path) = row.get(index).map_err(engine)?;
                Value::Text(path)
            }
            (Kind::Text, Value::Integer(number)) => Value::Text(number.to_string()),
            (_, value) => value,
        })
    }
}

fn integer(row: &Row<'_>, index: usize) -> Result<i64, StoreError> {
    row.get(index).map_err(engine)
}
