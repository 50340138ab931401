-- sitemapd's store, version 8. Included in the binary; `PRAGMA user_version`
-- tells which version a file has. Times are Unix milliseconds (UTC) in columns
-- that end in _at or _until, Unix seconds in those that end in _s: the narrow
-- ones. Enumerations are small integers in the order of the ALL constants in
-- src/model.rs and src/model/hints.rs; append there, never reorder.

-- Facts about the file itself: the seed of its keyed hashes above all.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- A namespace of URLs and its queue.
CREATE TABLE crawls (
    id     INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE,
    paused INTEGER NOT NULL DEFAULT 0
) STRICT;

-- One [[site]] of the config; kept when it leaves the config.
CREATE TABLE sites (
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    crawl_id   INTEGER NOT NULL REFERENCES crawls (id),
    url        TEXT NOT NULL,
    state      INTEGER NOT NULL DEFAULT 0,      -- 0 active, 1 paused, 2 unregistered
    origin     TEXT NOT NULL,                   -- scheme://host[:port] that its twins are folded into
    urls       INTEGER NOT NULL DEFAULT 0,      -- rows of urls, for the quota
    unlisted   INTEGER NOT NULL DEFAULT 0,      -- those of them that no source lists, which count less for it
    sources    INTEGER NOT NULL DEFAULT 0,      -- rows of sources, for the quota
    priorities INTEGER NOT NULL DEFAULT 0,      -- sum over those urls in thousandths, for the mean; 500 where none is given
    judged_for TEXT,                            -- token that robots.txt judged its URLs for; null: it did not
    added_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX sites_origin ON sites (origin);

-- Scheme, host and port: the key of politeness, robots.txt and turns. The
-- clock is shared by polls and leases and kept over restarts.
CREATE TABLE hosts (
    id           INTEGER PRIMARY KEY,
    authority    TEXT NOT NULL UNIQUE,          -- scheme://host[:port]; or key:… for a queue that a client of the frontier named
    name         TEXT NOT NULL,                 -- the host in it, or that key: what the frontier calls the queue
    base         TEXT NOT NULL AS (CASE substr(authority, 1, 4) WHEN 'key:' THEN '' ELSE authority END) VIRTUAL, -- what paths go on from
    part         INTEGER NOT NULL,              -- 0 to 255, fixed for ever: unseeded hash of the authority
    next_at      INTEGER NOT NULL DEFAULT 0,    -- the clock: no request before
    paused_until INTEGER NOT NULL DEFAULT 0,    -- Retry-After, 429: nothing before
    pause_reason TEXT,
    delay_ms     INTEGER NOT NULL,              -- between two requests: host_delay or Crawl-delay
    robots       INTEGER NOT NULL DEFAULT 0     -- version of robots.txt that pages are judged by; 0 unknown
) STRICT;

CREATE INDEX hosts_name ON hosts (name);

-- The last robots.txt that was read well, per host.
CREATE TABLE robots (
    host_id     INTEGER PRIMARY KEY REFERENCES hosts (id),
    version     INTEGER NOT NULL,               -- grows when the rules change
    status      INTEGER NOT NULL,               -- HTTP status of the last answer, 0 none that could be read
    body        BLOB NOT NULL,                  -- at most 500 KiB; empty allows everything
    unreachable INTEGER NOT NULL DEFAULT 0,     -- 1: no answer and no good copy, so nothing is allowed
    crawl_delay_ms INTEGER NOT NULL DEFAULT 0,  -- longest Crawl-delay for our token and those of sites there, capped
    read_at     INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT;

-- Hosts on which what robots.txt held back is to be judged anew
-- (src/store/recheck.rs).
CREATE TABLE rechecks (
    host_id  INTEGER PRIMARY KEY,
    after_id INTEGER NOT NULL                   -- the URL to go on after; -1: not begun
) STRICT;

-- Everything that is polled: sitemaps, feeds, robots.txt, home pages.
CREATE TABLE sources (
    id               INTEGER PRIMARY KEY,
    site_id          INTEGER REFERENCES sites (id),   -- null: robots.txt of a host that no site registered
    host_id          INTEGER NOT NULL REFERENCES hosts (id),
    parent_id        INTEGER REFERENCES sources (id), -- the index that lists it
    depth            INTEGER NOT NULL DEFAULT 0,      -- indexes above it
    role             INTEGER NOT NULL,
    url              TEXT NOT NULL,
    named_by         TEXT NOT NULL,
    state            INTEGER NOT NULL DEFAULT 0,      -- 0 active, 1 paused, 2 retired
    retired_why      TEXT,
    retired_at       INTEGER,
    kind             TEXT,                            -- what it turned out to be
    window           INTEGER NOT NULL DEFAULT 0,      -- 0 full, 1 by its kind, 2 learned
    rolls            INTEGER NOT NULL DEFAULT 0,      -- reads in a row in which only the oldest left
    shrunk_at        INTEGER,                         -- since when removals are held
    pending          INTEGER NOT NULL DEFAULT 0,      -- entries of the snapshot that are missing now
    -- as its index lists it
    index_lastmod    INTEGER,
    index_precision  INTEGER,
    index_misses     INTEGER NOT NULL DEFAULT 0,
    dropped_at       INTEGER,                         -- first complete read of the index without it
    -- schedule
    next_poll_at     INTEGER,                         -- null: not polled
    interval_ms      INTEGER NOT NULL DEFAULT 0,
    failures         INTEGER NOT NULL DEFAULT 0,      -- in a row
    failing          TEXT,                            -- how: their result, or robots-unreadable
    failing_since    INTEGER,
    rule             TEXT NOT NULL DEFAULT '',
    why              TEXT NOT NULL DEFAULT '',
    rhythm           TEXT,                            -- JSON: how often it brings something (src/schedule/interval/rhythm.rs)
    moved_to         TEXT,                            -- where its permanent redirects lead
    moved_polls      INTEGER NOT NULL DEFAULT 0,      -- polls in a row that ended there
    moved_since      INTEGER,
    -- what the last good read left behind
    generation       INTEGER NOT NULL DEFAULT 0,
    epoch            INTEGER NOT NULL DEFAULT 0,      -- parser version and site rules it was read with
    etag             TEXT,
    last_modified    TEXT,
    wire_hash        BLOB,                            -- of the bytes as sent
    body_hash        BLOB,                            -- of the bytes as decoded
    hints            TEXT,                            -- JSON: what the publisher says of polling
    -- report
    added_at         INTEGER NOT NULL,
    hinted_at        INTEGER,                         -- when a ping last had it polled, or will have
    last_poll_at     INTEGER,
    last_success_at  INTEGER,
    last_complete_at INTEGER,
    last_full_at     INTEGER,                         -- last read that was not cut short by a validator or a hash
    last_changed_at  INTEGER,
    status           TEXT NOT NULL DEFAULT 'pending',
    error            TEXT,
    http_status      INTEGER,
    bytes            INTEGER NOT NULL DEFAULT 0,
    entries          INTEGER NOT NULL DEFAULT 0,
    admitted         TEXT,                            -- JSON: entries by what became of them
    issues           TEXT                             -- JSON: defects of the last read
) STRICT;

CREATE UNIQUE INDEX sources_url ON sources (site_id, url) WHERE role <> 0;
CREATE UNIQUE INDEX sources_robots ON sources (host_id) WHERE role = 0;
CREATE INDEX sources_home ON sources (host_id) WHERE role = 1;
CREATE INDEX sources_site ON sources (site_id, role);
CREATE INDEX sources_place ON sources (host_id, url) WHERE role <> 0;
-- What is due, and what a host has due next: both without a look at the rows.
CREATE INDEX sources_due ON sources (next_poll_at, host_id) WHERE state = 0 AND next_poll_at IS NOT NULL;
CREATE INDEX sources_turn ON sources (host_id, next_poll_at) WHERE state = 0 AND next_poll_at IS NOT NULL;
CREATE INDEX sources_parent ON sources (parent_id) WHERE parent_id IS NOT NULL;
-- What its index lists no more, which maintenance looks for all the time.
CREATE INDEX sources_dropped ON sources (dropped_at) WHERE dropped_at IS NOT NULL AND state <> 2;
CREATE INDEX sources_retired ON sources (retired_at) WHERE state = 2;

-- What a source listed last time, one packed blob each (src/diff/snapshot.rs):
-- an unchanged document is merged with it in memory and writes nothing.
CREATE TABLE snapshots (
    source_id  INTEGER PRIMARY KEY REFERENCES sources (id),
    data       BLOB NOT NULL
) STRICT;

-- What bytes stand for that are no characters in the path of a URL
-- (src/store/abbreviations.rs): a copy of the daemon's own words, for url_view.
CREATE TABLE abbreviations (
    after TEXT NOT NULL,                        -- the character before it: ^ none, 0 a digit, A a capital letter, ~ one without words
    code  BLOB NOT NULL,                        -- one byte
    word  TEXT NOT NULL,
    PRIMARY KEY (after, code)
) STRICT, WITHOUT ROWID;

-- Append-only: a row is written when a URL is first listed, and again only
-- when what its sources say of it changes. Its text is found through lookup_*.
-- Not STRICT: of such tables SQLite does not leave out nulls at the end of rows.
CREATE TABLE urls (
    id                 INTEGER PRIMARY KEY,
    crawl_id           INTEGER NOT NULL,
    host_id            INTEGER NOT NULL,
    site_id            INTEGER,                 -- null: pushed, not listed
    source_id          INTEGER,                 -- the source whose evidence counts first
    path               BLOB NOT NULL,           -- from the first slash on, normalised, all of the URL under a key of a client: abbreviated, or text as it is
    -- What else its sources say, in one (src/store/packed.rs), from the lowest bit on:
    -- 1 is it listed?; 3 as what: 0 page, else followed; 3 precision of the lastmod, 0 none;
    -- 13 changefreq and priority (src/diff/snapshot.rs); its place in the queue until it has
    -- another: 3 reason, 7 band, 33 since when it is due, when it was first seen (Unix seconds).
    -- No columns are computed of them here, which would keep nulls at the end of rows.
    said               INTEGER NOT NULL,
    lastmod_s          INTEGER,
    -- null as a rule
    raw                TEXT,                    -- the loc as listed, where that differs
    -- what its rows of extensions mean together
    expires_s          INTEGER,                 -- from then on none of its videos is there any more
    fresh_s            INTEGER                  -- news: ranks as fresh until then
);

-- Further sources that list a URL; most URLs have none.
CREATE TABLE url_sources (
    url_id    INTEGER NOT NULL,
    source_id INTEGER NOT NULL,
    PRIMARY KEY (url_id, source_id)
) STRICT, WITHOUT ROWID;

-- What a source says of a URL beside its dates: images, videos, news,
-- alternates. Read through the sources of the URL (src/store/extensions.rs).
CREATE TABLE extensions (
    source_id INTEGER NOT NULL,
    url_id    INTEGER NOT NULL,
    expires_s INTEGER,                          -- when the last video expires; 0 one never does; null: no video
    fresh_s   INTEGER,                          -- two days after the publication of news
    data      TEXT NOT NULL,                    -- JSON (src/model/extension.rs), bounded by the reader
    PRIMARY KEY (source_id, url_id)
) STRICT, WITHOUT ROWID;

-- Where a URL stands and what fetchers reported, from the first lease that
-- ended, or the first change, on. Once here, this row and not urls says where
-- the URL stands.
CREATE TABLE feedback (
    url_id  INTEGER PRIMARY KEY,
    -- Its place in one (src/store/packed.rs), from the lowest bit on: 3 state (0 queued,
    -- 1 leased, 2 parked, 3 dead, 4 blocked, 5 forbidden), 4 reason, 7 band, 38 since when it
    -- is due (Unix seconds), 11 deliveries in a row without success. No columns are computed
    -- of them, which would be worked out whenever a row is written.
    place   INTEGER NOT NULL,
    record  BLOB NOT NULL                       -- all else, packed (src/store/record.rs)
) STRICT;

-- Only what is out of the queue is indexed, so the hot path never pays for it.
CREATE INDEX feedback_held ON feedback (place & 7, url_id) WHERE place & 7 > 1;

-- The queue, in lease order: one walk gives the next URL of a host.
CREATE TABLE queue (
    crawl_id INTEGER NOT NULL,
    host_id  INTEGER NOT NULL,
    band     INTEGER NOT NULL,                  -- priority in hundredths; higher first
    due_s    INTEGER NOT NULL,
    url_id   INTEGER NOT NULL,
    -- In one (src/store/packed.rs): 1 bit whether its value is taken anew when it comes
    -- due, and above it the site as in urls, 0 none: a lease may ask for some sites only.
    owner    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (crawl_id, host_id, band DESC, due_s, url_id)
) STRICT, WITHOUT ROWID;

-- Hosts that a site has, or had, URLs on: where a lease for that site looks.
CREATE TABLE site_hosts (
    site_id INTEGER NOT NULL,
    host_id INTEGER NOT NULL,
    PRIMARY KEY (site_id, host_id)
) STRICT, WITHOUT ROWID;

-- Hosts with anything queued, so that starting up reads hosts and not URLs.
CREATE TABLE turns (
    crawl_id INTEGER NOT NULL,
    host_id  INTEGER NOT NULL,
    queued   INTEGER NOT NULL,
    due_s    INTEGER NOT NULL,                  -- no URL of the host is due before; a lower bound
    weight   REAL NOT NULL DEFAULT 1.0,
    PRIMARY KEY (crawl_id, host_id)
) STRICT, WITHOUT ROWID;

-- Without an index of the times they end: the writer knows when to look for
-- those that have expired (src/store/expiry.rs).
CREATE TABLE leases (
    url_id     INTEGER PRIMARY KEY,
    token      BLOB NOT NULL,                   -- 128 random bits
    crawl_id   INTEGER NOT NULL,
    host_id    INTEGER NOT NULL,
    reason     INTEGER NOT NULL,
    band       INTEGER NOT NULL,
    due_s      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    leased_at  INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    not_before INTEGER NOT NULL,
    dirty      INTEGER NOT NULL DEFAULT 0,      -- it changed meanwhile: due again once settled, as one less says, or 101; -1: not wanted any more
    worker     TEXT,
    request_id TEXT
) STRICT;

CREATE INDEX leases_request ON leases (request_id) WHERE request_id IS NOT NULL;

-- What looks and reads have taught, beyond single URLs (src/recrawl/): of one
-- source, of a host, of all hosts together.
CREATE TABLE learned (
    scope  INTEGER NOT NULL,                    -- 0 all, 1 host, 2 source
    id     INTEGER NOT NULL,                    -- 0, or the row of that
    trust  BLOB NOT NULL,                       -- in its signals, 180 bytes
    priors BLOB,                                -- how its pages change, by changefreq, 72 bytes; none of sources
    habits BLOB,                                -- how it writes lastmods, 11 bytes; of sources only
    moves  INTEGER NOT NULL DEFAULT 0,          -- kind of signal that its newer lastmods were at its last read
    PRIMARY KEY (scope, id)
) STRICT, WITHOUT ROWID;

-- The price of a fetch, and what moves it.
CREATE TABLE prices (
    crawl_id      INTEGER PRIMARY KEY,
    price         REAL NOT NULL,                -- days of staleness that a fetch must be worth
    pace          REAL NOT NULL,                -- refreshing fetches settled an hour
    overdue       REAL NOT NULL,                -- of these, an hour, of what was only overdue
    hours         REAL NOT NULL,                -- watched for both
    ticked_at     INTEGER NOT NULL,             -- when it last moved; since then:
    settled       INTEGER NOT NULL,             -- refreshing fetches settled
    leased        INTEGER NOT NULL,             -- leases of what was worth the price
    leased_overdue INTEGER NOT NULL,            -- leases of what was only overdue
    asked         INTEGER NOT NULL,             -- 0 nobody leased, 1 somebody, 2 and got less than asked for, 3 of some sites
    CHECK (price > 0)
) STRICT;

-- URLs, or beginnings of URLs, that are not leased until lifted.
CREATE TABLE blocks (
    crawl_id INTEGER NOT NULL,
    pattern  TEXT NOT NULL,
    prefix   INTEGER NOT NULL,
    since_at INTEGER NOT NULL,
    PRIMARY KEY (crawl_id, pattern, prefix)
) STRICT, WITHOUT ROWID;

-- History of polls, kept for store.keep_polls.
CREATE TABLE polls (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    source_id   INTEGER NOT NULL,
    generation  INTEGER,                        -- of the read, if the document was read
    at          INTEGER NOT NULL,
    took_ms     INTEGER NOT NULL,
    result      TEXT NOT NULL,
    http_status INTEGER,
    wire_bytes  INTEGER NOT NULL DEFAULT 0,
    entries     INTEGER NOT NULL DEFAULT 0,
    counts      TEXT NOT NULL,                  -- JSON: those that are not 0
    error       TEXT
) STRICT;

CREATE INDEX polls_source ON polls (source_id, id);

-- Change events in commit order, packed per commit (src/store/changes.rs),
-- kept for store.keep_changes.
CREATE TABLE changes (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    crawl_id   INTEGER NOT NULL,
    source_id  INTEGER,
    generation INTEGER NOT NULL,
    events     INTEGER NOT NULL,
    data       BLOB NOT NULL
) STRICT;

CREATE INDEX changes_source ON changes (source_id, generation);

-- What changed in the robots.txt of a host: its rules, and what it says of the
-- use of content. Kept for store.keep_changes.
CREATE TABLE robots_changes (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    at        INTEGER NOT NULL,
    source_id INTEGER NOT NULL,
    version   INTEGER NOT NULL,                 -- of robots, which a poll that saw it has as generation
    subject   INTEGER NOT NULL,                 -- 0 rules, 1 License, 2 Content-Signal, 3 Content-Usage
    was       TEXT NOT NULL,                    -- the statements that are gone, bounded
    now       TEXT NOT NULL                     -- those that are new
) STRICT;

CREATE INDEX robots_changes_source ON robots_changes (source_id, version);

-- From a keyed hash of (crawl, normalised URL) to rows, in sorted append-only
-- runs with small filters (src/store/lookup.rs); fresh entries wait in a tail.
CREATE TABLE lookup_tail (
    hash   INTEGER NOT NULL,
    url_id INTEGER NOT NULL,
    PRIMARY KEY (hash, url_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE lookup_runs (
    id          INTEGER PRIMARY KEY,
    level       INTEGER NOT NULL,
    entries     INTEGER NOT NULL,
    chunks      INTEGER NOT NULL,
    blocks      INTEGER NOT NULL,
    lo          INTEGER NOT NULL,
    hi          INTEGER NOT NULL,
    merged_into INTEGER                         -- set while a merge is being built
) STRICT;

CREATE TABLE lookup_chunks (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
CREATE TABLE lookup_filters (id INTEGER PRIMARY KEY, bits BLOB NOT NULL) STRICT;

-- Sitemaps that webmasters named by a ping, a row each: bounded, and dropped
-- when nobody names them any more (src/store/submissions.rs).
CREATE TABLE submissions (
    id       INTEGER PRIMARY KEY,
    token    BLOB NOT NULL UNIQUE,              -- 128 random bits: who has it may ask for the status
    url      TEXT NOT NULL UNIQUE,
    known    INTEGER NOT NULL,                  -- was it a source, when it was last named?
    at       INTEGER NOT NULL,                  -- first named
    last_at  INTEGER NOT NULL,
    times    INTEGER NOT NULL DEFAULT 1
) STRICT;

CREATE INDEX submissions_age ON submissions (known, last_at);

-- Pushes of URLs whose key could not be checked yet: bounded, and dropped after
-- a day (src/store/pushes.rs).
CREATE TABLE pushes (
    id      INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    next_at INTEGER NOT NULL,                   -- the key is checked again
    host    TEXT NOT NULL,
    key     TEXT NOT NULL,
    key_url TEXT NOT NULL,
    bytes   INTEGER NOT NULL,                   -- of the URLs
    urls    TEXT NOT NULL                       -- one a line
) STRICT;

-- WebSub: sources whose documents name hubs, and how their push does
-- (src/store/hubs.rs). A row goes when the source names none any more, or is
-- polled no more.
CREATE TABLE topics (
    source_id INTEGER PRIMARY KEY REFERENCES sources (id),
    wanted    INTEGER NOT NULL,                 -- 0: known, but the config wants no push
    topic     TEXT NOT NULL,                    -- what the document names as its own URL
    hubs      TEXT NOT NULL,                    -- one a line, at most 8
    turn      INTEGER NOT NULL DEFAULT 0,       -- of the hub that is asked next
    next_at   INTEGER NOT NULL,                 -- when a hub is asked
    asked_at  INTEGER,                          -- when one was asked last
    failures  INTEGER NOT NULL DEFAULT 0,       -- in a row
    error     TEXT,
    denied_at INTEGER,
    pushes    INTEGER NOT NULL DEFAULT 0,       -- that were read
    pushed_at INTEGER,                          -- the last of these
    hinted_at INTEGER,                          -- last push that only brought a poll forward
    broken_at INTEGER                           -- since when polls find what no push has brought
) STRICT;

CREATE INDEX topics_due ON topics (next_at) WHERE wanted = 1;

-- What hubs were told to push to: at most a few rows a topic.
CREATE TABLE callbacks (
    id         INTEGER PRIMARY KEY,
    source_id  INTEGER NOT NULL,
    token      BLOB NOT NULL UNIQUE,            -- 128 random bits: the path
    secret     TEXT,                            -- of signatures; only where the hub is asked over https
    hub        TEXT NOT NULL,
    topic      TEXT NOT NULL,
    callback   TEXT NOT NULL,                   -- the whole URL
    state      INTEGER NOT NULL,                -- 0 asked for, 1 verified, 2 to be given up
    since_at   INTEGER NOT NULL,                -- in that state; renewing a lease does not begin anew
    checked_at INTEGER,                         -- when it was verified
    expires_at INTEGER NOT NULL,
    next_at    INTEGER NOT NULL DEFAULT 0,      -- given up: when the hub is told
    tries      INTEGER NOT NULL DEFAULT 0       -- given up: how often it was
) STRICT;

CREATE INDEX callbacks_source ON callbacks (source_id, state);
CREATE INDEX callbacks_end ON callbacks (expires_at);
CREATE INDEX callbacks_leaving ON callbacks (next_at) WHERE state = 2;

-- Pushes that were answered and are not read yet: bounded in number and bytes.
CREATE TABLE deliveries (
    id           INTEGER PRIMARY KEY,
    source_id    INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    tries        INTEGER NOT NULL DEFAULT 0,    -- times that reading it was begun
    trusted      INTEGER NOT NULL,              -- 1: signed, or no less safe than a poll
    bytes        INTEGER NOT NULL,
    content_type TEXT,
    coding       TEXT,                          -- Content-Encoding, as sent
    body         BLOB NOT NULL
) STRICT;

CREATE INDEX deliveries_source ON deliveries (source_id);

-- What clients of the frontier (src/serve/frontier/) set for a queue: a crawl
-- and the name of its hosts.
CREATE TABLE frontier_queues (
    crawl_id      INTEGER NOT NULL,
    name          TEXT NOT NULL,
    delay_ms      INTEGER,                      -- between two servings; null: that of the host
    blocked_until INTEGER NOT NULL DEFAULT 0,   -- nothing is leased before
    max_completed INTEGER NOT NULL DEFAULT 0,   -- nothing is leased from so many on; 0: no limit
    completed     INTEGER NOT NULL DEFAULT 0,   -- rows of frontier_urls that are
    PRIMARY KEY (crawl_id, name)
) STRICT, WITHOUT ROWID;

-- What clients of the frontier said of a URL, their own or one that is listed.
CREATE TABLE frontier_urls (
    url_id    INTEGER PRIMARY KEY,
    pushed    INTEGER NOT NULL,                 -- 1: they made it known, so no source's silence removes it
    completed INTEGER NOT NULL DEFAULT 0,       -- 1: not to be fetched again
    spelled   TEXT,                             -- as they wrote it, where that differs
    metadata  TEXT                              -- JSON: lists of values by name
) STRICT;

-- For people: one row a URL, as the daemon sees it. Spelling a path out takes
-- some 20 us; sitemapd export is quicker for many.
CREATE VIEW url_view AS
SELECT
    u.id,
    h.base || CASE typeof(u.path) WHEN 'text' THEN u.path ELSE (
        WITH RECURSIVE spelled (at, text) AS (
            SELECT 1, ''
            UNION ALL
            SELECT at + 1, text || coalesce(
                (SELECT a.word FROM abbreviations a
                 WHERE a.code = substr(u.path, at, 1) AND a.after = CASE
                     WHEN at = 1 THEN '^'
                     WHEN substr(text, -1) GLOB '[0-9]' THEN '0'
                     WHEN substr(text, -1) GLOB '[A-Z]' THEN 'A'
                     WHEN substr(text, -1) GLOB '[-a-z/._%=?&+]' THEN substr(text, -1)
                     ELSE '~' END),
                CAST(substr(u.path, at, 1) AS TEXT))
            FROM spelled WHERE at <= length(u.path)
        )
        SELECT text FROM spelled WHERE at > length(u.path)
    ) END AS url,
    CASE u.said >> 1 & 7 WHEN 0 THEN 'page' WHEN 1 THEN 'image' WHEN 2 THEN 'video' ELSE 'alternate' END AS kind,
    c.name AS crawl,
    s.name AS site,
    datetime(u.lastmod_s, 'unixepoch') AS lastmod,
    CASE u.said >> 7 & 7
        WHEN 1 THEN 'always' WHEN 2 THEN 'hourly' WHEN 3 THEN 'daily' WHEN 4 THEN 'weekly'
        WHEN 5 THEN 'monthly' WHEN 6 THEN 'yearly' WHEN 7 THEN 'never' END AS changefreq,
    CASE WHEN (u.said >> 10 & 1023) > 0 THEN ((u.said >> 10 & 1023) - 1) / 1000.0 END AS priority,
    u.said & 1 AS listed,
    (u.source_id IS NOT NULL) + (SELECT count(*) FROM url_sources x WHERE x.url_id = u.id) AS sources,
    CASE CASE WHEN l.url_id IS NULL THEN coalesce(f.place & 7, 0) ELSE 1 END
        WHEN 0 THEN 'queued' WHEN 1 THEN 'leased' WHEN 2 THEN 'parked'
        WHEN 3 THEN 'dead' WHEN 4 THEN 'blocked' ELSE 'forbidden' END AS state,
    datetime(coalesce(f.place >> 14 & 274877906943, u.said >> 30), 'unixepoch') AS due
FROM urls u
JOIN hosts h ON h.id = u.host_id
JOIN crawls c ON c.id = u.crawl_id
LEFT JOIN sites s ON s.id = u.site_id
LEFT JOIN feedback f ON f.url_id = u.id
LEFT JOIN leases l ON l.url_id = u.id;
