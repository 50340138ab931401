"""What a crawler of today does with the same files: Scrapy's reader of sitemaps,
and sqlite3 upserts by UNIQUE(url). Prints one line of JSON.

    python3 peer.py FOLDER FILES
"""

import gzip
import json
import os
import sqlite3
import sys
import tempfile
import time

try:
    from scrapy.utils.sitemap import Sitemap
except ImportError:
    print(json.dumps({"missing": "scrapy"}))
    sys.exit()

UPSERT = """INSERT INTO urls (url, lastmod, changefreq, priority) VALUES (?, ?, ?, ?)
    ON CONFLICT (url) DO UPDATE SET lastmod = excluded.lastmod,
        changefreq = excluded.changefreq, priority = excluded.priority
    WHERE lastmod IS NOT excluded.lastmod OR changefreq IS NOT excluded.changefreq
        OR priority IS NOT excluded.priority"""


def read(path):
    with gzip.open(path) as file:
        for entry in Sitemap(file.read()):
            yield (entry["loc"], entry.get("lastmod"), entry.get("changefreq"),
                   entry.get("priority"))


def run(conn, folder, files):
    """Takes over all files, a transaction each; entries, seconds, CPU seconds."""
    began, processor, entries = time.monotonic(), time.process_time(), 0
    for file in range(files):
        with conn:
            cursor = conn.cursor()
            for row in read(os.path.join(folder, f"1-{file}.xml.gz")):
                cursor.execute(UPSERT, row)
                entries += 1
        print(f"\rScrapy and sqlite3: {file + 1} of {files} files ", end="", file=sys.stderr)
    return entries, time.monotonic() - began, time.process_time() - processor


def main():
    folder, files = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory(dir=folder) as place:
        conn = sqlite3.connect(os.path.join(place, "peer.db"))
        conn.execute("PRAGMA journal_mode = WAL")
        conn.execute("PRAGMA synchronous = NORMAL")
        conn.execute("PRAGMA cache_size = -65536")
        conn.execute("""CREATE TABLE urls (id INTEGER PRIMARY KEY, url TEXT NOT NULL UNIQUE,
            lastmod TEXT, changefreq TEXT, priority TEXT)""")
        cold, unchanged = run(conn, folder, files), run(conn, folder, files)
        print(file=sys.stderr)
        print(json.dumps({"cold": cold, "unchanged": unchanged}))


main()
