-- For tests: the two tables that lost columns after version 5, as a file of it has them.
CREATE TABLE feedback (
    url_id  INTEGER PRIMARY KEY,
    place   INTEGER NOT NULL,                   -- the fields at the end, in one (src/store/packed.rs)
    record  BLOB NOT NULL,                      -- all else, packed (src/store/record.rs)
    state   INTEGER NOT NULL AS (place & 7) VIRTUAL, -- 0 queued, 1 leased, 2 parked, 3 dead, 4 blocked, 5 forbidden
    reason  INTEGER NOT NULL AS (place >> 3 & 15) VIRTUAL,
    band    INTEGER NOT NULL AS (place >> 7 & 127) VIRTUAL,
    due_s   INTEGER NOT NULL AS (place >> 14 & 274877906943) VIRTUAL,
    attempt INTEGER NOT NULL AS (place >> 52) VIRTUAL -- deliveries in a row without success
) STRICT;
CREATE INDEX feedback_held ON feedback (state, url_id) WHERE state > 1;
CREATE TABLE queue (
    crawl_id INTEGER NOT NULL,
    host_id  INTEGER NOT NULL,
    band     INTEGER NOT NULL,                  -- priority in hundredths; higher first
    due_s    INTEGER NOT NULL,
    url_id   INTEGER NOT NULL,
    owner    INTEGER NOT NULL DEFAULT 0,        -- the two fields that follow, in one (src/store/packed.rs)
    site_id  INTEGER AS (CASE WHEN owner > 1 THEN owner >> 1 END) VIRTUAL, -- as in urls: a lease may ask for some sites only
    valued   INTEGER NOT NULL AS (owner & 1) VIRTUAL, -- 1: its value is taken anew when it comes due
    PRIMARY KEY (crawl_id, host_id, band DESC, due_s, url_id)
) STRICT, WITHOUT ROWID;
