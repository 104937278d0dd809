# Looks for texts in all that a machine lets this process look at, and prints what it finds and where: python3 hunt.py SINCE,
# the time of the oldest change that counts, with the texts on stdin, as lists by name in JSON. What is mounted over is seen
# by every process's own root.
import array, itertools, json, os, re, socket, stat, subprocess, sys

needles = {name: {text.encode() for text in texts} for name, texts in json.load(sys.stdin).items()}
since = float(sys.argv[1])
most = 1 << 28  # bytes of a file
me = os.getpid()
looked = {"files": 0, "of processes": 0, "bytes of memory": 0}


def within(*texts):
    return [name for name, forms in needles.items() if any(form in text for form in forms for text in texts)]


def find(where, *texts):
    for name in within(*texts):
        print(name, where)


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read(most)
    except OSError:
        return b""


seen = {}  # what is in a file, which many processes may have at other places


def walk(top):
    for d, dirs, files in os.walk(top):
        inside = d[len(top.rstrip("/")):] or "/"
        if inside == "/":
            dirs[:] = [n for n in dirs if n not in ("proc", "sys", "dev")]
        for n in files:
            p = os.path.join(d, n)
            try:
                st = os.lstat(p)
            except OSError:
                continue
            if stat.S_ISREG(st.st_mode) and st.st_ctime >= since and st.st_size < most:
                looked["files"] += 1
                same = (st.st_dev, st.st_ino, st.st_ctime_ns, st.st_size)
                if same not in seen:
                    seen[same] = within(read(p))
                for name in seen[same]:
                    print(name, "file " + inside.rstrip("/") + "/" + n)


def descriptors(pid, who):
    try:
        fds = os.listdir("/proc/%s/fd" % pid)
    except OSError:
        return
    for fd in fds:
        p = "/proc/%s/fd/%s" % (pid, fd)
        try:
            st = os.stat(p)
        except OSError:
            continue
        if stat.S_ISREG(st.st_mode) and st.st_size < most:
            find("descriptor " + who, read(p))


def unchanged(pid, mapping):
    """Whether a mapping is of a file that nobody has changed since, so that only pages of the process's own can have a text."""
    try:
        return os.stat("/proc/%s/map_files/%s" % (pid, mapping)).st_ctime < since
    except OSError:
        return False


def memory(pid, who):
    try:
        maps, mem, pages = open("/proc/%s/maps" % pid), open("/proc/%s/mem" % pid, "rb", 0), open("/proc/%s/pagemap" % pid, "rb", 0)
    except OSError:
        return
    page, chunk, lap = 1 << 12, 1 << 22, 256
    found = set()
    for line in maps:
        m = re.match("([0-9a-f]+)-([0-9a-f]+) r", line)
        if not m or "[v" in line:
            continue
        start, end = int(m[1], 16), int(m[2], 16)
        files = unchanged(pid, line.split(" ", 1)[0])
        for at in range(start, end, chunk):
            pages.seek(at // page * 8)
            entries = array.array("Q", pages.read(min(chunk, end - at) // page * 8))
            # Present or swapped, and not of such a file (pagemap(5)).
            counts = (bool(e >> 62) and not (files and e >> 61 & 1) for e in entries)
            for counted, run in itertools.groupby(enumerate(counts), lambda one: one[1]):
                if not counted:
                    continue
                run = [number for number, _ in run]
                first, last = run[0], run[-1] + 1
                begin = max(start, at + first * page - lap)
                try:
                    mem.seek(begin)
                    text = mem.read(at + last * page - begin)
                except (OSError, ValueError, OverflowError):
                    continue
                looked["bytes of memory"] += len(text)
                found.update(within(text))
    for name in found:
        print(name, "memory " + who)


def processes():
    roots = set()
    for pid in [p for p in os.listdir("/proc") if p.isdigit() and int(p) != me]:
        unit = read("/proc/%s/cgroup" % pid).decode().strip().rsplit("/", 1)[-1]
        if unit == "internet.service":  # where it went
            continue
        who = read("/proc/%s/comm" % pid).decode().strip() + " " + unit
        for f in ("cmdline", "environ", "auxv", "comm", "status", "stack", "syscall", "wchan", "mountinfo", "maps"):
            looked["of processes"] += 1
            find(f + " " + who, read("/proc/%s/%s" % (pid, f)))
        descriptors(pid, who)
        memory(pid, who)
        try:
            root = os.stat("/proc/%s/ns/mnt" % pid).st_ino
        except OSError:
            continue
        if root not in roots:
            roots.add(root)
            walk("/proc/%s/root" % pid)
            walk("/proc/%s/root/dev/shm" % pid)


# What a stranger may say at sockets. By some of them root is let in, rightly.
packets = [
    b"",
    b'{"hello":{"digest":""}}', b'{"hello":{"digest":"","again":true}}', b'{"hello":{"digest":"","bridge":true}}', b'{"hello":{"digest":"","refresh":true}}',
    b'{"verb":"secrets"}\n', b'{"verb":"export","recipient":"age1g73rasdy3w3h5xaxt9h96jmlaftk4r2qwmnl8a7lzunksvs5nfxqakh52h"}\n', b'{"verb":"redaction"}\n', b'{"verb":"status"}\n',
]
requests = [
    b"GET /metrics HTTP/1.0\r\n\r\n", b"GET /mcp HTTP/1.0\r\nHost: localhost\r\n\r\n",
    b'POST /mcp HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 46\r\n\r\n{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
]


def listening():
    for line in open("/proc/net/unix"):
        f = line.split()
        if len(f) == 8 and f[3] == "00010000" and re.search("pfar|careless", f[7]):
            yield socket.AF_UNIX, {"0001": socket.SOCK_STREAM, "0005": socket.SOCK_SEQPACKET}[f[4]], re.sub("^@", "\0", f[7])
    for line in list(open("/proc/net/tcp"))[1:]:
        f = line.split()
        if f[3] == "0A":
            address, port = f[1].split(":")
            yield socket.AF_INET, socket.SOCK_STREAM, (socket.inet_ntoa(bytes.fromhex(address)[::-1]), int(port, 16))


def converse(family, kind, address, greeting, name=None):
    """What is said to whoever says that, under that name; None to whom the door stays shut."""
    said = b""
    with socket.socket(family, kind) as s:
        s.settimeout(1)
        if name:
            s.bind(name)
        try:
            s.connect(address)
        except OSError:
            return None
        for step in (lambda: s.send(greeting), *[lambda: s.recv(1 << 16)] * 20):  # that one fails need not mean that nothing was said
            try:
                got = step()
                said += got if isinstance(got, bytes) else b""
            except socket.timeout:
                break
            except OSError:
                pass
    return said


def sockets():
    asked = set()
    for family, kind, address in set(listening()):
        answers = [converse(family, kind, address, r) for r in requests]
        if family == socket.AF_UNIX:
            answers += [converse(family, kind, address, p) for p in packets]
            answers += [converse(family, kind, address, b"", "\0%x/unit/pfar-mcp@%s.service/secrets" % (len(asked), n)) for n in ("inenv", "infile", "brokered")]
        where = address if family == socket.AF_UNIX else "%s:%d" % address
        asked.add(where)
        let_in = [a for a in answers if a is not None]
        find("socket " + where, *let_in)
        if let_in:
            print("open", where)
    for want in ("attach", "control", "credentials", "gateway", "servers"):
        if "/run/pfar/%s.sock" % want not in asked:
            print("did not look at:", want)


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL).stdout


def commands():
    for command in (
        "systemctl show *", "systemctl --no-pager status --all --full", "systemctl --no-pager cat pfar* careless*", "systemd-analyze dump",
        "pfar plan", "pfar explain inenv", "pfar status --json", "pfar vault list --json", "pfar doctor", "pfar egress brokered", "pfar top --once --json", "pfar pins",
        "pfar logs inenv", "pfar logs infile", "pfar logs brokered", "pfar tools --json", "pfar call inenv.attack --name environment --target PATH",
    ):
        find("output " + command, run(*command.split(" ")))


run("journalctl", "--sync")  # what is under way; root's to say
walk("/")
walk("/dev/shm")
processes()
journal = run("journalctl", "--no-pager", "--all", "--output=export")
find("journal", journal)
commands()
if os.geteuid() != 0:
    sockets()
elif looked["files"] < 50 or looked["of processes"] < 8 or looked["bytes of memory"] < 1 << 22 or len(journal) < 10000:
    print("looked at too little:", looked, len(journal))
