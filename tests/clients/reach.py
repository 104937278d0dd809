# What Python and its libraries see of the network, and after how many milliseconds: python3 reach.py HOW TARGET
import socket
import sys
import time
import urllib.error
import urllib.request

how, target = sys.argv[1:3]
if how == "requests":
    import requests


def with_urllib():
    try:
        with urllib.request.urlopen(target, timeout=15) as r:
            return "%d %s" % (r.status, r.read().decode())
    except urllib.error.HTTPError as e:
        return "%d %s" % (e.code, e.read().decode())


def with_requests():
    r = requests.get(target, timeout=15)
    return "%d %s" % (r.status_code, r.text)


def with_socket(kind):
    host, port = target.rsplit(":", 1)
    if kind == socket.SOCK_DGRAM:
        s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind)
        s.settimeout(15)
        s.sendto(b"hello\n", (host.strip("[]"), int(port)))
    else:
        s = socket.create_connection((host.strip("[]"), int(port)), 15)
        s.sendall(b"hello\n")
    return s.recv(100).decode().strip() or "closed"


ways = {
    "urllib": with_urllib,
    "requests": with_requests,
    "tcp": lambda: with_socket(socket.SOCK_STREAM),
    "udp": lambda: with_socket(socket.SOCK_DGRAM),
}
began = time.monotonic()
try:
    said = ways[how]()
except Exception as e:
    said = "error: %s %s" % (type(e).__name__, e)
print("%s (%d ms)" % (said, (time.monotonic() - began) * 1000))
