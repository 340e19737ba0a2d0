"""A server that plays a hub of models: lists repositories, redirects to a second server that has the files, and lies, cuts and dawdles as
it is told. Every request is written down. Answers have the headers that Hugging Face's have: those of the file (X-Linked-...) on the
redirect alone, in small letters as HTTP/2 has them, beside links that are no pages; the second server wants the signature that the redirect
names, and has tags of its own that look like checksums and are none."""
import hashlib
import http.server
import json
import re
import threading
import urllib.parse


SIGNATURE = "Signature=abc~def__"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:  # the client left
            pass

    def answer(self, code, body=b"", **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        hub = self.server.hub
        url = urllib.parse.urlparse(self.path)
        path = urllib.parse.unquote(url.path)
        with hub.lock:
            hub.requests.append((self.server.role, path, self.headers.get("Range"), self.headers.get("Authorization")))
        if self.server.role == "hub" and hub.token and self.headers.get("Authorization") != "Bearer " + hub.token:
            return self.answer(401, b"Access is restricted", X_Error_Code="GatedRepo")
        if hub.moved and ("/%s/" % hub.moved) in path:  # it has another name now; a place on this server, as the hub writes it
            return self.answer(307, b"Temporary Redirect", location=self.path.replace("/%s/" % hub.moved, "/%s/" % hub.name), vary="Origin, Accept")
        if path.startswith("/api/models/"):
            return self.list(path, urllib.parse.parse_qs(url.query))
        found = re.match(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.*)", path)
        if self.server.role == "hub" and found and found.group(3) in hub.files:
            return self.redirect(found.group(3))
        if self.server.role == "cdn" and path.startswith("/cdn/") and hub.signs and SIGNATURE not in url.query:
            return self.answer(403, b"<Error><Code>AccessDenied</Code></Error>", content_type="application/xml")
        if path.startswith("/cdn/") and path[5:] in hub.files:
            return self.file(path[5:])
        self.answer(404, b"Entry not found")

    def list(self, path, query):
        hub = self.server.hub
        if hub.trouble("list"):
            return self.answer(hub.code, b"busy", Retry_After=hub.retry_after)
        if not path.startswith("/api/models/%s/tree/main" % hub.name):
            # as the hub answers who has no token, and who has one
            return self.answer(404 if self.headers.get("Authorization") else 401, b"Repository not found", X_Error_Code="RepoNotFound")
        if hub.listing is not None:
            return self.answer(200, hub.listing, Content_Type="application/json")
        entries = [{"type": "directory", "path": "folder", "size": 0}, {"type": "file", "path": "README.md", "size": 12, "oid": "0"}]
        for name, data in hub.files.items():
            size = hub.sizes.get(name, len(data))
            entries.append({"type": "file", "path": name, "size": size, "oid": "0" * 40})
            if hub.lfs:
                entries[-1]["lfs"] = {"oid": hub.sums.get(name, hashlib.sha256(data).hexdigest()), "size": size, "pointerSize": 135}
        page = int(query.get("cursor", ["0"])[0])
        headers = {}
        if hub.page and page + hub.page < len(entries):
            headers["Link"] = '<%s%s?recursive=1&cursor=%d>; rel="next"' % (hub.url, path, page + hub.page)
        self.answer(200, json.dumps(entries[page:page + hub.page] if hub.page else entries).encode(), Content_Type="application/json", **headers)

    def redirect(self, name):
        hub = self.server.hub
        disposition = urllib.parse.quote_plus("inline; filename*=UTF-8''%s; filename=\"%s\";" % (name, name))
        where = hub.redirect or "http://localhost:%d/cdn/%s?X-Xet-Cas-Uid=public&response-content-disposition=%s&Expires=1781098782&Policy=eyJTdGF0_&%s&Key-Pair-Id=K2L8" % (
            hub.cdn.server_port, urllib.parse.quote(name), disposition, SIGNATURE)
        links = '<%s/api/models/%s/xet-read-token/%s>; rel="xet-auth", <http://localhost:1/v1/reconstructions/%s>; rel="xet-reconstruction-info"' % (hub.url, hub.name, "c" * 40, "d" * 64)
        self.answer(302, b"Found. Redirecting to " + where.encode(), location=where, content_type="text/plain; charset=utf-8", vary="Origin, Accept",
                    access_control_expose_headers="X-Repo-Commit,X-Request-Id,X-Error-Code,X-Error-Message,X-Total-Count,ETag,Link,Accept-Ranges,Content-Range,X-Linked-Size,X-Linked-ETag,X-Xet-Hash",
                    x_repo_commit="c" * 40, accept_ranges="bytes", x_linked_size=str(hub.linked_sizes.get(name, len(hub.files[name]))),
                    x_linked_etag='"%s"' % hub.linked.get(name, hashlib.sha256(hub.files[name]).hexdigest()), x_xet_hash="d" * 64, link=links)

    def file(self, name):
        hub, data = self.server.hub, self.server.hub.files[name]
        if hub.html:
            return self.answer(200, b"<!DOCTYPE html><html>Sign in</html>", Content_Type="text/html; charset=utf-8")
        found = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        begin, end = (int(found.group(1)), min(int(found.group(2)) + 1, len(data))) if found and not hub.no_ranges else (0, len(data))
        if begin >= len(data):
            return self.answer(416, b"")
        ranged = found and not hub.no_ranges
        probe = ranged and not 1 < end - begin <= self.server.hub.piece  # the question how large it is, or its header: no piece
        if not probe and hub.trouble("busy"):
            return self.answer(hub.code, b"busy", Retry_After=hub.retry_after)
        self.send_response(206 if ranged else 200)
        if ranged:
            first = begin + (1 if not probe and hub.trouble("shifted") else 0)
            self.send_header("Content-Range", "bytes %d-%d/%d" % (first, end - 1, hub.total or len(data)))
        for header, value in (("etag", hub.weak + '"%s"' % hub.etag), ("content-type", "binary/octet-stream"), ("accept-ranges", "bytes"), ("cache-control", "public, max-age=31536000"),
                              ("content-disposition", "inline; filename*=UTF-8''x.gguf; filename=\"x.gguf\";"), ("via", "1.1 x.cloudfront.net (CloudFront)"), ("x-cache", "Hit from cloudfront"), ("age", "7")):
            self.send_header(header, value)
        body = data[begin:end]
        if hub.flip is not None and begin <= hub.flip < end:
            body = bytearray(body)
            body[hub.flip - begin] ^= 1
        if not probe and hub.trouble("short"):  # its length is right, its range was not
            body = body[:len(body) // 2]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not probe and hub.trouble("cut"):
            self.wfile.write(body[:len(body) * 2 // 3])
            self.wfile.flush()
            self.close_connection = True
            return self.connection.shutdown(2)
        if not found and hub.trouble("cut whole"):  # of what was asked for as a whole
            self.wfile.write(body[:hub.cut_at])
            self.wfile.flush()
            hub.flip = hub.flip_then
            self.close_connection = True
            return self.connection.shutdown(2)
        if not probe and hub.trouble("stall"):
            self.wfile.write(body[:len(body) // 2])
            self.wfile.flush()
            hub.released.wait(30)
            self.close_connection = True
            return
        while not probe and hub.hold is not None and len(hub.asked()) > hub.hold:
            if hub.released.wait(0.02):
                return
        if hub.pace:
            for at in range(0, len(body), 16384):
                self.wfile.write(body[at:at + 16384])
                if hub.released.wait(hub.pace):
                    return
            return
        self.wfile.write(body)
        with hub.lock:
            hub.sent += len(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, hub, role):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub, self.role = hub, role
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class Hub:
    """files: {path: bytes} of the repository `name`."""

    def __init__(self, files, name="owner/repo-GGUF"):
        self.files, self.name = dict(files), name
        self.lock, self.requests, self.sent = threading.Lock(), [], 0
        self.troubles = {}  # kind: how often, or -1 for always
        self.released = threading.Event()
        self.token, self.listing, self.redirect, self.html, self.no_ranges = None, None, None, False, False
        self.sizes, self.sums, self.linked, self.linked_sizes = {}, {}, {}, {}
        self.moved, self.signs = None, True  # the name that it had before; the second server wants a signature
        self.total, self.flip, self.pace, self.page = None, None, 0, 0
        self.hold = None  # after so many requests no piece is sent, until it is None again
        self.lfs, self.weak = True, ""
        self.cut_at, self.flip_then = 700000, None  # of "cut whole", and what is wrong afterwards
        self.piece = 65536  # what the client asks for at once
        self.etag, self.code, self.retry_after = hashlib.sha256(b"no checksum").hexdigest(), 503, "1"
        self.hub, self.cdn = Server(self, "hub"), Server(self, "cdn")
        self.url = "http://127.0.0.1:%d" % self.hub.server_port

    def trouble(self, kind):
        """Is it time for this one again?"""
        with self.lock:
            left = self.troubles.get(kind, 0)
            if left > 0:
                self.troubles[kind] = left - 1
            return left != 0

    def asked(self, role="cdn"):
        """Ranges of files that were asked for."""
        with self.lock:
            return [r for who, path, r, _ in self.requests if who == role and not path.startswith("/api/")]

    def forget(self):
        with self.lock:
            self.requests, self.sent = [], 0

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.released.set()
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()
