"""An MCP server on stdio whose one tool reaches out with Python's own library and Debian's python3-requests.

What is asked for bare runs in a child without the proxy variables.
"""

import base64
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import requests

UNREACHABLE = 5  # seconds: nothing here may take so long


def by_urllib(a):
    try:
        with urllib.request.urlopen(a["to"], timeout=UNREACHABLE) as r:
            return {"status": r.status, "body": r.read().decode()}
    except urllib.error.HTTPError as e:
        return {"status": e.code, "body": e.read().decode()}


def by_requests(a):
    r = requests.get(a["to"], headers={"Host": a["host"]} if "host" in a else {}, timeout=UNREACHABLE)
    return {"status": r.status_code, "body": r.text}


def host_port(s):
    host, _, port = s.rpartition(":")
    return host.strip("[]"), int(port)


def exchange(s, a):
    s.sendall(a.get("send", "hello\n").encode())
    data = s.recv(4096)
    if not data:
        raise EOFError("the other side ended the connection")
    return {"body": data.decode()}


def by_socket(a):
    with socket.create_connection(host_port(a["to"]), timeout=UNREACHABLE) as s:
        return exchange(s, a)


def by_tls(a):
    host, port = host_port(a["to"])
    with socket.create_connection((host, port), timeout=UNREACHABLE) as s:
        with ssl.create_default_context().wrap_socket(s, server_hostname=a.get("servername", host)) as t:
            return exchange(t, a)


def by_udp(a):
    host, port = host_port(a["to"])
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, proto) as s:
        s.settimeout(UNREACHABLE)
        s.sendto(base64.b64decode(a["send"]), address)
        return {"body": "%d octets" % len(s.recv(4096))}


def by_lookup(a):
    found = socket.getaddrinfo(a["to"], None, socket.AF_INET, socket.SOCK_STREAM)
    return {"body": found[0][4][0]}


WAYS = {"urllib": by_urllib, "requests": by_requests, "socket": by_socket, "tls": by_tls, "udp": by_udp, "lookup": by_lookup}


def root(e):
    """The exception that all the others wrap."""
    while True:
        inner = e.reason if isinstance(getattr(e, "reason", None), BaseException) else e.__cause__ or e.__context__
        if inner is None:
            return e
        e = inner


def reach(a):
    began = time.monotonic()
    try:
        result = WAYS[a["via"]](a)
    except Exception as e:
        result = {"error": type(root(e)).__name__, "text": str(e)}
    return {**result, "ms": round((time.monotonic() - began) * 1000)}


class Child:
    """A process like this one without the proxy variables. It answers a line with a line."""

    def __init__(self):
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        self.lock = threading.Lock()
        self.process = subprocess.Popen([sys.executable, __file__, "bare"], env=env, text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def reach(self, a):
        with self.lock:
            print(json.dumps(a), file=self.process.stdin)
            return json.loads(self.process.stdout.readline())


TOOL = {"name": "reach", "description": "reaches out and says what came of it", "inputSchema": {"type": "object"}}


def serve(m, child):
    if m["method"] == "initialize":
        version = m["params"]["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "reach", "version": "1"}}
    if m["method"] == "tools/list":
        return {"tools": [TOOL]}
    if m["method"] == "tools/call":
        a = m["params"]["arguments"]
        result = child.reach(a) if a.get("bare") else reach(a)
        return {"content": [{"type": "text", "text": json.dumps(result)}]}
    return {}


def main():
    if sys.argv[1:] == ["bare"]:
        for line in sys.stdin:
            print(json.dumps(reach(json.loads(line))), flush=True)
        return
    child, out = Child(), threading.Lock()

    def answer(m):
        text = json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": serve(m, child)})
        with out:
            print(text, flush=True)

    for line in sys.stdin:
        m = json.loads(line)
        if "id" in m and "method" in m:
            threading.Thread(target=answer, args=[m], daemon=True).start()


main()
