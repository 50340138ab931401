-- From version 5 to 6, as the file's from 7 to 8: in url_view a URL that is leased is,
-- whether or not it was fetched before.

CREATE OR REPLACE VIEW url_view AS
SELECT
    u.id,
    h.base || u.path AS url,
    CASE u.kind WHEN 0 THEN 'page' WHEN 1 THEN 'image' WHEN 2 THEN 'video' ELSE 'alternate' END AS kind,
    c.name AS crawl,
    s.name AS site,
    to_char(to_timestamp(u.lastmod_s) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') AS lastmod,
    CASE (u.hints & 7)
        WHEN 1 THEN 'always' WHEN 2 THEN 'hourly' WHEN 3 THEN 'daily' WHEN 4 THEN 'weekly'
        WHEN 5 THEN 'monthly' WHEN 6 THEN 'yearly' WHEN 7 THEN 'never' END AS changefreq,
    CASE WHEN (u.hints >> 3) > 0 THEN ((u.hints >> 3) - 1) / 1000.0 END AS priority,
    u.listed,
    CASE WHEN u.source_id IS NULL THEN 0 ELSE 1 END
        + (SELECT count(*) FROM url_sources x WHERE x.part = u.part AND x.url_id = u.id) AS sources,
    CASE CASE WHEN l.url_id IS NULL THEN coalesce(f.state, 0) ELSE 1 END
        WHEN 0 THEN 'queued' WHEN 1 THEN 'leased' WHEN 2 THEN 'parked'
        WHEN 3 THEN 'dead' WHEN 4 THEN 'blocked' ELSE 'forbidden' END AS state,
    to_char(to_timestamp(coalesce(f.due_s, u.first_seen_s)) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') AS due
FROM urls u
JOIN hosts h ON h.part = u.part AND h.id = u.host_id
JOIN crawls c ON c.id = u.crawl_id
LEFT JOIN sites s ON s.id = u.site_id
LEFT JOIN feedback f ON f.part = u.part AND f.url_id = u.id
LEFT JOIN leases l ON l.part = u.part AND l.url_id = u.id;
