#!/usr/bin/env python3
"""Uses two daemons as clients of a URLFrontier do, by stubs that another
language's tools make of proto/urlfrontier.proto.

    frontier.py STUBS ADDRESS OTHER-ADDRESS

Both daemons are empty, obey the dates of clients, and have no delay. Each check
has a crawl of its own; what fails ends the program.
"""

import sys
import time

sys.path.insert(0, sys.argv[1])

import grpc  # noqa: E402
import urlfrontier_pb2 as pb  # noqa: E402
import urlfrontier_pb2_grpc as stubs  # noqa: E402
from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (  # noqa: E402
    ProtoReflectionDescriptorDatabase,
)

OK, SKIPPED = pb.AckMessage.OK, pb.AckMessage.SKIPPED


class Crawl:
    """The calls of one crawl."""

    def __init__(self, stub, name):
        self.stub, self.name = stub, name

    def info(self, url, key="", **metadata):
        values = {name: pb.StringList(values=[value]) for name, value in metadata.items()}
        return pb.URLInfo(url=url, key=key, metadata=values, crawlID=self.name)

    def found(self, url, key="", **metadata):
        info = self.info(url, key, **metadata)
        return pb.URLItem(discovered=pb.DiscoveredURLItem(info=info))

    def known(self, url, date, key="", **metadata):
        info = self.info(url, key, **metadata)
        return pb.URLItem(known=pb.KnownURLItem(info=info, refetchable_from_date=date))

    def put(self, *items):
        """Statuses by what was acknowledged."""
        return {ack.ID: ack.status for ack in self.stub.PutURLs(iter(items), timeout=60)}

    def get(self, key="", per_queue=0, queues=0, hold=0):
        return list(
            self.stub.GetURLs(
                pb.GetParams(
                    max_urls_per_queue=per_queue,
                    max_queues=queues,
                    key=key,
                    delay_requestable=hold,
                    crawlID=self.name,
                ),
                timeout=60,
            )
        )

    def urls(self, *args, **kwargs):
        return [info.url for info in self.get(*args, **kwargs)]

    def stats(self, key=""):
        return self.stub.GetStats(pb.QueueWithinCrawlParams(key=key, crawlID=self.name))

    def queues(self):
        return list(self.stub.ListQueues(pb.Pagination(crawlID=self.name)).values)


def same(found, expected):
    if found != expected:
        raise SystemExit(f"found {found!r}, expected {expected!r}")


def until(what, look, expected, patience=10):
    """Looks until it is so: held URLs come back by the clock."""
    end = time.monotonic() + patience
    while (found := look()) != expected:
        if time.monotonic() > end:
            raise SystemExit(f"{what}: found {found!r}, expected {expected!r}")
        time.sleep(0.05)


def never_refetched(crawl):
    page = "http://never.test/"
    same(crawl.put(crawl.found(page)), {page: OK})
    same(crawl.urls(), [page])
    crawl.put(crawl.known(page, 0))
    same(crawl.put(crawl.found(page)), {page: SKIPPED})
    same(crawl.urls(), [])
    stats = crawl.stats()
    same((stats.size, stats.inProcess, stats.counts["completed"]), (0, 0, 1))
    status = crawl.stub.GetURLStatus(pb.URLStatusRequest(url=page, crawlID=crawl.name))
    same(status.known.refetchable_from_date, 0)


def order(crawl):
    base = "http://order.test/"
    crawl.put(
        crawl.found(base + "now"),
        crawl.known(base + "third", 3),
        crawl.known(base + "first", 1),
        crawl.known(base + "second", 2),
        crawl.known(base + "later", int(time.time()) + 3_600),
    )
    same(crawl.urls(), [base + name for name in ("first", "second", "third", "now")])


def updates(crawl):
    page = "http://updates.test/"
    crawl.put(crawl.found(page, depth="1"))
    same(crawl.get()[0].metadata["depth"].values[:], ["1"])
    soon = int(time.time()) + 2
    named = crawl.known(page, soon, depth="2")
    named.ID = "an ID"
    same(crawl.put(named), {"an ID": OK})
    same(crawl.stats().inProcess, 0)
    same(crawl.urls(), [])
    until("it is due again", crawl.urls, [page])
    same(time.time() >= soon, True)
    status = crawl.stub.GetURLStatus(pb.URLStatusRequest(url=page, crawlID=crawl.name))
    same(status.known.info.metadata["depth"].values[:], ["2"])
    missing = pb.URLStatusRequest(url=page + "missing", crawlID=crawl.name)
    try:
        crawl.stub.GetURLStatus(missing)
    except grpc.RpcError as error:
        same(error.code(), grpc.StatusCode.NOT_FOUND)
    else:
        raise SystemExit("a URL that nobody knows has a status")


def queue_names(crawl):
    crawl.put(
        crawl.found("http://gac.icann.test?language_id=9"),
        crawl.found("https://gac.icann.test:8443/"),
        crawl.found("http://www.example.test/", key="example.test"),
        crawl.found("http://www.example.test/"),
    )
    same(crawl.queues(), ["example.test", "gac.icann.test", "www.example.test"])
    same(crawl.stats("gac.icann.test").size, 2)
    same(crawl.stats("no.such.test").size, 0)
    same(crawl.urls(key="example.test"), ["http://www.example.test/"])
    too_long = "http://a.test/"
    same(crawl.put(crawl.found(too_long, key="k" * 256)), {too_long: SKIPPED})
    block = pb.BlockQueueParams(key="gac.icann.test", time=2**40, crawlID=crawl.name)
    crawl.stub.BlockQueueUntil(block)
    same(crawl.queues(), ["example.test", "www.example.test"])
    same([info.key for info in crawl.get()], ["www.example.test"])


def crawl_ids(crawl):
    page = "http://crawls.test/"
    second = Crawl(crawl.stub, crawl.name + "-second")
    crawl.put(crawl.found(page))
    same(second.put(second.found(page)), {page: OK})
    listed = set(crawl.stub.ListCrawls(pb.Local()).values)
    same({crawl.name, second.name} <= listed, True)
    same([info.crawlID for info in second.get()], [second.name])
    same(crawl.stub.DeleteCrawl(pb.DeleteCrawlMessage(value=second.name)).value, 1)
    same(second.name in crawl.stub.ListCrawls(pb.Local()).values, False)
    same(crawl.urls(), [page])
    default = Crawl(crawl.stub, "")
    default.put(default.found(page))
    same([info.crawlID for info in Crawl(crawl.stub, "DEFAULT").get()], ["DEFAULT"])


def in_process(crawl):
    pages = [f"http://limits.test/{n}" for n in range(5)]
    crawl.put(*map(crawl.found, pages))
    same(crawl.urls(per_queue=2, hold=2), pages[:2])
    same(crawl.urls(per_queue=2), [])
    same(crawl.stats().inProcess, 2)
    crawl.put(crawl.known(pages[0], 0))
    same(crawl.urls(per_queue=2, hold=600), pages[2:3])
    until("a held one comes back", lambda: crawl.urls(per_queue=2), pages[1:2])
    limit = pb.CrawlLimitParams(key="limits.test", limit=1, crawlID=crawl.name)
    crawl.stub.SetCrawlLimit(limit)
    same(crawl.urls(), [])


def batches(crawl):
    probe = pb.DiscoveredBatch(ID="probe")
    pages = ["http://batch.test/1", "http://batch.test/2", "http://batch.test/1"]
    full = pb.DiscoveredBatch(ID="full", items=[crawl.info(page) for page in pages])
    acks = list(crawl.stub.PutDiscovered(iter([probe, full]), timeout=60))
    told = [(ack.ID, list(ack.statuses)) for ack in acks]
    same(told, [("probe", []), ("full", [OK, OK, SKIPPED])])


def dump_and_restore(crawl, other):
    later = int(time.time()) + 86_400
    crawl.put(
        crawl.found("http://dump.test/new", depth="4"),
        crawl.known("http://dump.test/done", 0),
        crawl.known("http://dump.test/later", later),
        crawl.found("http://dump.test/keyed", key="key of my own"),
    )
    asked = pb.ListUrlParams(crawlID=crawl.name, size=1_000)
    dump = list(crawl.stub.ListURLs(asked))
    same(len(dump), 4)
    same(crawl.stub.CountURLs(pb.CountUrlParams(crawlID=crawl.name)).value, 4)
    twin = Crawl(other, crawl.name)
    same(set(twin.put(*dump).values()), {OK})
    same(list(other.ListURLs(asked)), dump)
    same(sorted(twin.urls()), ["http://dump.test/keyed", "http://dump.test/new"])


def described(channel):
    health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    same(health.status, health_pb2.HealthCheckResponse.SERVING)
    database = ProtoReflectionDescriptorDatabase(channel)
    same("urlfrontier.URLFrontier" in database.get_services(), True)
    described = database.FindFileContainingSymbol("urlfrontier.URLFrontier")
    told = {method.name for method in described.service[0].method}
    same(told, set(method.name for method in pb.DESCRIPTOR.services_by_name["URLFrontier"].methods))


def rates(crawl):
    count = 20_000
    pages = [f"http://h{n % 200}.rates.test/{n}" for n in range(count)]
    start = time.monotonic()
    same(len(crawl.put(*map(crawl.found, pages))), count)
    put = time.monotonic() - start
    start = time.monotonic()
    same(len(crawl.get()), count)
    got = time.monotonic() - start
    start = time.monotonic()
    crawl.put(*(crawl.known(page, 0, **{"fetch.statusCode": "200"}) for page in pages))
    done = time.monotonic() - start
    rate = lambda took: f"{count / took:,.0f}"  # noqa: E731
    print(f"    URLs a second: {rate(put)} found, {rate(got)} served, {rate(done)} settled")


def main():
    _, _, address, other = sys.argv
    channel, twin = grpc.insecure_channel(address), grpc.insecure_channel(other)
    stub = stubs.URLFrontierStub(channel)
    stub.SetDelay(pb.QueueDelayParams(delay_requestable=0))
    checks = (never_refetched, order, updates, queue_names, crawl_ids, in_process, batches)
    for check in checks:
        check(Crawl(stub, check.__name__))
    dump_and_restore(Crawl(stub, "dump"), stubs.URLFrontierStub(twin))
    described(channel)
    stub.SetActive(pb.Active(state=False))
    same(stub.GetActive(pb.Local()).state, False)
    same(list(stub.GetURLs(pb.GetParams())), [])
    stub.SetActive(pb.Active(state=True))
    stub.SetLogLevel(pb.LogLevelParams(level=pb.LogLevelParams.WARN))
    same(len(stub.ListNodes(pb.Empty()).values), 1)
    same(stub.PurgeURLs(pb.PurgeUrlParams(crawlID="order", days=1)).value, 0)
    queue = pb.QueueWithinCrawlParams(key="order.test", crawlID="order")
    same(stub.DeleteQueue(queue).value, 5)
    print(f"    {len(checks) + 2} checks of the frontier, by stubs of grpcio-tools, are well")
    rates(Crawl(stub, "rates"))


main()
