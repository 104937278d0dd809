# index.py INDEX CA reads the wheels in scratch/wheels, which pip has downloaded. It asks the index for the SHA-256 of
# each, and writes lock.json and scratch/requirements.txt with these digests. pip must not be asked: its report has a
# digest of its own making where the index names none. CA is a file with certificates, or empty.
import html.parser, json, os, re, ssl, sys, urllib.parse, urllib.request


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.base = [], ""

    def handle_starttag(self, tag, attrs):
        to = dict(attrs).get("href")
        if tag == "base" and to and not self.base:
            self.base = to
        if tag == "a" and to:
            self.links.append(to)


def files(page):
    """Yields the URL and the SHA-256 of each file on a page (PEP 503, PEP 691). One that is not named is empty."""
    accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
    with urllib.request.urlopen(urllib.request.Request(page, headers={"Accept": accept}), None, 60, context=tls) as a:
        base, body = a.geturl(), a.read()
        as_json = a.headers.get_content_type() == "application/vnd.pypi.simple.v1+json"
    if not base.startswith("https://"):
        sys.exit("the index has led to %r, which is not encrypted" % base)
    if as_json:
        for f in json.loads(body)["files"]:
            yield urllib.parse.urljoin(base, f["url"]), f.get("hashes", {}).get("sha256", "")
        return
    p = Page()
    p.feed(body.decode("utf-8", "replace"))
    for to in p.links:
        to, fragment = urllib.parse.urldefrag(urllib.parse.urljoin(urllib.parse.urljoin(base, p.base), to))
        yield to, urllib.parse.parse_qs(fragment).get("sha256", [""])[0]


index, ca = sys.argv[1:]
tls = ssl.create_default_context(cafile=ca or None)
tls.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)  # from Python 3.13 on; pip does not ask for it
locked, wanted = [], []
for wheel in sorted(os.listdir("scratch/wheels")):
    name, version = wheel.split("-")[:2]
    project = re.sub("[-_.]+", "-", name).lower()
    for url, digest in files(index.rstrip("/") + "/" + project + "/"):
        file = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rsplit("/", 1)[-1])
        if file == wheel and re.fullmatch("[0-9a-f]{64}", digest):
            break
    else:
        sys.exit("the index names no SHA-256 of %s, so nobody can tell whether the file is the published one; use an "
                 "index that does, or install the package by hand and declare its command" % wheel)
    wanted.append("%s==%s --hash=sha256:%s\n" % (name, version.replace("_", "-"), digest))
    hashes = {"hashes": {"sha256": digest}}
    locked.append({"metadata": {"name": name, "version": version},
                   "download_info": {"url": url, "archive_info": hashes}})
with open("lock.json", "w") as f:
    json.dump({"install": locked}, f, indent=1)
with open("scratch/requirements.txt", "w") as f:
    f.writelines(wanted)
