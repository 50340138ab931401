-- From version 7 to 8: in url_view a URL that is leased is, whether or not it was fetched
-- before. No row is rewritten.

DROP VIEW IF EXISTS url_view;

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
