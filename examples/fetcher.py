#!/usr/bin/env python3
"""A polite fetcher for sitemapd, to be run as it is or to be built upon.

Python 3.9 or newer, nothing but the standard library:

    python3 fetcher.py --user-agent "mybot/0.1 (+https://www.example.com/bot)"

It leases URLs, fetches each when its time has come (one request at a time per
host, conditional where the page is known), and settles it with what it saw. A
lease that takes longer is extended; at SIGTERM or Ctrl-C what was not begun is
given back and what is under way is finished. A daemon that is away or busy is
asked again, later and later. `keep` is the place for what you do with pages.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import datetime
import email.utils
import hashlib
import http.client
import json
import random
import signal
import socket
import sqlite3
import string
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

LONG_POLL = "5s"  # how long a lease call waits; a stop waits for it too
MAX_BODY = 10 << 20  # bytes read of a page; the rest is not looked at
HASH_KIND = "sha256-10MiB"  # a name of what is hashed: change it with the hash
MAX_REDIRECTS = 5  # followed on the page's own host only
REDIRECT_PAUSE = 1.0  # seconds: each is one more request to that host
REDIRECTS = (301, 302, 303, 307, 308)


def keep(lease, headers, body):
    """Do here what you fetch pages for. Called from several threads."""


class Refused(Exception):
    """The daemon said no, and would say so again."""


class Api:
    """The daemon's API, patiently."""

    def __init__(self, base, token):
        self.base = base.rstrip("/") + "/v1/"
        self.headers = {"Content-Type": "application/json"}
        if token:
            self.headers["Authorization"] = "Bearer " + token
        # The daemon is near: no proxy of the environment.
        self.web = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(self, what, body, give_up):
        """The answer; None when `give_up` (an event) is set before there is one."""
        pause, data = 0.5, json.dumps(body).encode()
        while True:
            try:
                request = urllib.request.Request(self.base + what, data, self.headers)
                with self.web.open(request, timeout=90) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                told = error.read().decode(errors="replace")
                if error.code not in (408, 429, 500, 502, 503, 504):
                    raise Refused(f"{what}: {error.code} {told}") from None
                why, wait = f"{error.code}", seconds(error.headers)
            except (OSError, http.client.HTTPException, ValueError) as error:
                why, wait = str(error), None
            # Many fetchers must not come back at the same moment.
            wait = (pause if wait is None else wait) * random.uniform(1.0, 1.25)
            print(f"{what}: {why}; again in {wait:.1f} s", file=sys.stderr, flush=True)
            if give_up.wait(wait):
                return None
            pause = min(pause * 2, 60)


class Memory:
    """What pages said of themselves, for conditional requests; outlives a restart."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.db = sqlite3.connect(path, check_same_thread=False)
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS pages"
            " (url TEXT PRIMARY KEY, hash TEXT NOT NULL, etag TEXT, modified TEXT)"
        )

    def conditions(self, lease):
        """Headers that ask for the page only if it changed since the daemon heard of it."""
        query = "SELECT etag, modified FROM pages WHERE url = ? AND hash = ?"
        with self.lock:
            row = self.db.execute(query, (lease["url"], lease["content_hash"])).fetchone()
        etag, modified = row or (None, None)
        conditions = {"If-None-Match": etag, "If-Modified-Since": modified}
        return {name: value for name, value in conditions.items() if value}

    def learn(self, url, content_hash, headers):
        row = (url, content_hash, headers.get("ETag"), headers.get("Last-Modified"))
        with self.lock, self.db:
            self.db.execute("REPLACE INTO pages VALUES (?, ?, ?, ?)", row)


class Fetch:
    """One page, fetched within a time limit."""

    def __init__(self, user_agent, limit):
        self.user_agent, self.limit = user_agent, limit

    def get(self, url, conditions):
        """Status, headers and body of one request; no redirect is followed."""
        parts = urllib.parse.urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=30)
        connection.connect()
        # The timeout above is for each read; this one is for all of them.
        late = threading.Event()
        alarm = threading.Timer(self.limit, cut, [connection.sock, late])
        alarm.start()
        try:
            target = (parts.path or "/") + ("?" + parts.query if parts.query else "")
            headers = {"User-Agent": self.user_agent, "Accept-Encoding": "identity"}
            connection.request("GET", target, headers={**headers, "Connection": "close", **conditions})
            answer = connection.getresponse()
            body = answer.read(MAX_BODY)
            if late.is_set():
                raise TimeoutError(f"the page took longer than {self.limit} s")
            if answer.length and len(body) < MAX_BODY:
                raise http.client.IncompleteRead(body, answer.length)
            return answer.status, answer.headers, body
        finally:
            alarm.cancel()
            connection.close()


class Fetcher:
    def __init__(self, api, memory, fetch, options):
        self.api, self.memory, self.fetch, self.options = api, memory, fetch, options
        self.stop = threading.Event()  # take no more
        self.over = threading.Event()  # no more is taken, nothing is under way
        self.cut = threading.Event()  # and wait for nothing any more
        self.lock = threading.Condition()
        self.hosts = {}  # leased and waiting, by host; a host is here while a thread works on it
        self.paces = {}  # host -> when it was asked last, which slot that was, seconds between slots
        self.ends = {}  # token -> when the lease ends, by our own steady clock
        self.results = []  # to be settled
        self.pool = concurrent.futures.ThreadPoolExecutor(options.threads)

    def run(self):
        clerk = threading.Thread(target=self.keep_books, daemon=True)
        clerk.start()
        try:
            while not self.stop.is_set():
                with self.lock:
                    room = self.options.in_hand - len(self.ends)
                    if room <= 0:
                        self.lock.wait(1)
                        continue
                if not self.lease(room):
                    if self.options.once and self.is_idle():
                        return
                    self.stop.wait(0.2)
        finally:
            self.stop.set()
            self.pool.shutdown(wait=True)
            # Given back sooner, a long poll of ours could lease it again.
            self.over.set()
            clerk.join(self.options.timeout)
            self.cut.set()

    def lease(self, room):
        body = {
            "max": min(room, 1000),
            "ttl": f"{self.options.lease}s",
            "wait": "0s" if self.options.once else LONG_POLL,
            "crawl": self.options.crawl,
            "worker": self.options.worker,
            # Asked for again after a lost answer, it is the same lease.
            "request_id": uuid.uuid4().hex,
        }
        answer = self.api.ask("lease", body, self.stop)
        leases = answer["urls"] if answer else []
        came = time.monotonic()
        for lease in leases:
            # By the daemon's clock, wherever ours stands.
            told = moment(lease["expires_at"]) - lease["expires_in"]
            lease["start"] = came + moment(lease["not_before"]) - told
            with self.lock:
                self.ends[lease["token"]] = came + lease["expires_in"]
                waiting = self.hosts.get(lease["host"])
                if waiting is not None:
                    waiting.append(lease)
                    continue
                self.hosts[lease["host"]] = collections.deque([lease])
            self.pool.submit(self.visit, lease["host"])
        return len(leases)

    def is_idle(self):
        with self.lock:
            return not self.ends and not self.results

    def visit(self, host):
        """Fetches what is leased of a host, one after the other."""
        while True:
            with self.lock:
                if not self.hosts[host]:
                    del self.hosts[host]
                    return
                lease = self.hosts[host].popleft()
            if self.stop.wait(max(0, self.turn(host, lease["start"]) - time.monotonic())):
                continue  # the clerk gives it back
            with self.lock:
                if lease["token"] not in self.ends:
                    continue  # it went to somebody else
            try:
                seen = self.look(lease)
            except Exception as error:  # whatever the web comes up with
                seen = {"outcome": "failed", "error": f"{type(error).__name__}: {error}"[:500]}
            told = seen.get("outcome") or "by its hash"
            # In one piece: other threads have something to say, too.
            line = f"{seen.get('status', '-')} {told} {lease['reason']} {lease['url']}\n"
            sys.stdout.write(line)
            sys.stdout.flush()
            with self.lock:
                self.results.append({"token": lease["token"], **seen})

    def turn(self, host, start):
        """When a host may be asked for what has this slot: where we are late, no sooner
        after the last request than its slots are apart."""
        with self.lock:
            asked, slot, apart = self.paces.get(host, (float("-inf"), start, None))
            if start > slot:
                apart = min(start - slot, apart or start - slot)
            at = max(start, time.monotonic(), asked + (apart or 0))
            if len(self.paces) > 10_000:
                self.paces.clear()
            self.paces[host] = (at, max(start, slot), apart)
            return at

    def look(self, lease):
        """Fetches a page; what it says is the body of a settlement."""
        url, moved = lease["url"], False
        conditions = self.memory.conditions(lease)
        for _ in range(MAX_REDIRECTS + 1):
            status, headers, body = self.fetch.get(url, conditions)
            target = headers.get("Location")
            if status not in REDIRECTS or not target:
                break
            target = urllib.parse.urldefrag(urllib.parse.urljoin(url, spelt(target))).url
            moved = moved or status in (301, 308)
            if urllib.parse.urlsplit(target)[:2] != urllib.parse.urlsplit(url)[:2]:
                # Another host has a clock and a robots.txt of its own.
                return {"status": status, "outcome": "redirected", "final_url": target}
            url, conditions = target, {}
            time.sleep(REDIRECT_PAUSE)
        else:
            return {"status": status, "outcome": "failed", "error": "too many redirects"}
        seen = {"status": status}
        if url != lease["url"]:
            seen["final_url"] = url
        pause = seconds(headers)
        if pause is not None and status in (429, 503):
            seen["retry_after"] = f"{pause}s"
        if status == 304:
            return {**seen, "outcome": "unchanged"}
        if status in (404, 410):
            return {**seen, "outcome": "gone"}
        if status in (401, 403, 451):
            return {**seen, "outcome": "blocked"}
        if not 200 <= status < 300:
            return {**seen, "outcome": "failed", "error": f"status {status}"}
        keep(lease, headers, body)
        content_hash = hashlib.sha256(body).hexdigest()
        if url == lease["url"]:
            self.memory.learn(url, content_hash, headers)
        if moved:
            # It folds into its target, where that is listed too.
            seen["outcome"] = "redirected"
        return {**seen, "content_hash": content_hash, "hash_kind": HASH_KIND}

    def keep_books(self):
        """Settles what was seen, extends what takes long; at the end gives back the rest."""
        while not (self.over.is_set() and self.is_settled()):
            self.over.wait(0.1)
            self.settle()
            self.extend()
        with self.lock:
            rest = list(self.ends)
        if rest:
            with contextlib.suppress(Refused):
                self.api.ask("release", {"tokens": rest}, self.cut)
                print(f"gave {len(rest)} back", file=sys.stderr, flush=True)

    def is_settled(self):
        with self.lock:
            return not self.results or self.cut.is_set()

    def settle(self):
        with self.lock:
            batch = self.results[:1000]
        if not batch:
            return
        try:
            # Twice is harmless: a token settles once.
            if self.api.ask("settle", {"results": batch}, self.cut) is None:
                return
        except Refused as error:
            print(error, file=sys.stderr, flush=True)
        with self.lock:
            del self.results[: len(batch)]
            for result in batch:
                self.ends.pop(result["token"], None)
            self.lock.notify_all()

    def extend(self):
        soon = time.monotonic() + self.options.lease / 2
        with self.lock:
            tokens = [token for token, end in self.ends.items() if end < soon]
        if not tokens:
            return
        body = {"tokens": tokens, "ttl": f"{self.options.lease}s"}
        asked = time.monotonic()
        with contextlib.suppress(Refused):
            answer = self.api.ask("extend", body, self.cut)
            with self.lock:
                for result in answer["results"] if answer else []:
                    if result["result"] == "ok":
                        self.ends[result["token"]] = asked + self.options.lease
                    else:
                        self.ends.pop(result["token"], None)


def cut(connected, late):
    late.set()
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def seconds(headers):
    """Seconds of a Retry-After header; None where it says nothing usable."""
    told = (headers.get("Retry-After") or "").strip()
    if told.isdecimal():
        return min(int(told[:9]), 86400)
    try:
        # By the clock of who says it.
        until, now = map(email.utils.parsedate_to_datetime, (told, headers.get("Date")))
        return min(max(0, round((until - now).total_seconds())), 86400)
    except (TypeError, ValueError):
        return None


def spelt(location):
    """A Location as browsers take it: its bytes, of which blanks and non-ASCII are escaped."""
    # http.client has made a character of each byte.
    return urllib.parse.quote(location.strip(), safe=string.punctuation, encoding="latin-1")


def moment(text):
    """Unix seconds of a time of the API."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def main():
    parser = argparse.ArgumentParser(description="A polite fetcher for sitemapd.")
    parser.add_argument("--api", default="http://127.0.0.1:7070", help="the daemon (%(default)s)")
    parser.add_argument("--token-file", help="holds the token of listen.token_file")
    parser.add_argument("--user-agent", required=True, help="who asks, with an address")
    parser.add_argument("--crawl", default="default", help="which queue (%(default)s)")
    parser.add_argument("--worker", default=socket.gethostname(), help="a name for this fetcher")
    parser.add_argument("--threads", type=int, default=16, help="hosts at once (%(default)s)")
    parser.add_argument("--in-hand", type=int, default=100, help="URLs at once (%(default)s)")
    parser.add_argument("--lease", type=int, default=120, help="seconds of a lease (%(default)s)")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for a page (%(default)s)")
    parser.add_argument("--memory", default="fetcher.db", help="a file for ETags (%(default)s)")
    parser.add_argument("--once", action="store_true", help="end when nothing is due")
    options = parser.parse_args()
    token = None
    if options.token_file:
        with open(options.token_file, encoding="utf-8") as file:
            token = file.readline().strip()
    fetcher = Fetcher(
        Api(options.api, token),
        Memory(options.memory),
        Fetch(options.user_agent, options.timeout),
        options,
    )

    def end(number, _frame):
        fetcher.stop.set()
        signal.signal(number, signal.SIG_DFL)  # a second one ends it at once

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    try:
        fetcher.run()
    except Refused as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
