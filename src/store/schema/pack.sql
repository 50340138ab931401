-- From version 4 to 5: the small columns of the three tables that have a row for
-- each URL become one (src/store/packed.rs). Frozen: later versions have steps of
-- their own, the next of which makes the view anew.
DROP VIEW url_view;
DROP INDEX feedback_held;
ALTER TABLE urls RENAME TO urls_4;
ALTER TABLE feedback RENAME TO feedback_4;
ALTER TABLE queue RENAME TO queue_4;

CREATE TABLE urls (
    id                 INTEGER PRIMARY KEY,
    crawl_id           INTEGER NOT NULL,
    host_id            INTEGER NOT NULL,
    site_id            INTEGER,
    source_id          INTEGER,
    path               BLOB NOT NULL,
    said               INTEGER NOT NULL,
    lastmod_s          INTEGER,
    raw                TEXT,
    expires_s          INTEGER,
    fresh_s            INTEGER
);

INSERT INTO urls (id, crawl_id, host_id, site_id, source_id, path, said, lastmod_s, raw, expires_s, fresh_s)
SELECT id, crawl_id, host_id, site_id, source_id, path,
    listed | (kind << 1) | (coalesce(lastmod_precision + 1, 0) << 4) | (hints << 7) | (reason << 20)
        | (band << 23) | (min(max(first_seen_s, 0), 8589934591) << 30),
    lastmod_s, raw, expires_s, fresh_s
FROM urls_4 ORDER BY id;

DROP TABLE urls_4;

CREATE TABLE feedback (
    url_id  INTEGER PRIMARY KEY,
    place   INTEGER NOT NULL,
    record  BLOB NOT NULL,
    state   INTEGER NOT NULL AS (place & 7) VIRTUAL,
    reason  INTEGER NOT NULL AS (place >> 3 & 15) VIRTUAL,
    band    INTEGER NOT NULL AS (place >> 7 & 127) VIRTUAL,
    due_s   INTEGER NOT NULL AS (place >> 14 & 274877906943) VIRTUAL,
    attempt INTEGER NOT NULL AS (place >> 52) VIRTUAL
) STRICT;

INSERT INTO feedback (url_id, place, record)
SELECT url_id,
    state | (reason << 3) | (band << 7) | (min(max(due_s, 0), 274877906943) << 14) | (min(attempt, 2047) << 52),
    record
FROM feedback_4 ORDER BY url_id;

DROP TABLE feedback_4;

CREATE INDEX feedback_held ON feedback (state, url_id) WHERE state > 1;

CREATE TABLE queue (
    crawl_id INTEGER NOT NULL,
    host_id  INTEGER NOT NULL,
    band     INTEGER NOT NULL,
    due_s    INTEGER NOT NULL,
    url_id   INTEGER NOT NULL,
    owner    INTEGER NOT NULL DEFAULT 0,
    site_id  INTEGER AS (CASE WHEN owner > 1 THEN owner >> 1 END) VIRTUAL,
    valued   INTEGER NOT NULL AS (owner & 1) VIRTUAL,
    PRIMARY KEY (crawl_id, host_id, band DESC, due_s, url_id)
) STRICT, WITHOUT ROWID;

INSERT INTO queue (crawl_id, host_id, band, due_s, url_id, owner)
SELECT crawl_id, host_id, band, due_s, url_id, (coalesce(site_id, 0) << 1) | valued
FROM queue_4 ORDER BY crawl_id, host_id, band DESC, due_s, url_id;

DROP TABLE queue_4;
