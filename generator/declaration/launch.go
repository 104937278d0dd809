package declaration

import (
	"errors"
	"net/netip"
	neturl "net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
)

const (
	maxArgs       = 512
	maxArg        = 128<<10 - 1 // MAX_ARG_STRLEN of execve(2), less the NUL
	maxSocketPath = 107         // unix(7)
)

var (
	pinned   = regexp.MustCompile(`.(@|==)v?[0-9]+\.[0-9]`)
	unpinned = regexp.MustCompile(`(.)@[^/@]*$`)
)

var errNoHost = errors.New(`the entry is no host name: write one, such as "api.example.com"`)

func (d *decoder) serverBlock(f *field) {
	if n, ok := d.table(f); ok {
		d.section(serverKeys(), n)
	}
}

func (d *decoder) transport(f *field) {
	words := []string{string(Stdio), string(UDS), string(Pipe), string(SSE), string(StreamHTTP)}
	others := map[string]string{
		"http": "stream-http", "https": "stream-http", "streamable-http": "stream-http", "streamable_http": "stream-http", "streamablehttp": "stream-http", "stream_http": "stream-http",
		"unix": "uds", "socket": "uds", "unix-socket": "uds", "fifo": "pipe", "local": "stdio", "stdin": "stdio", "process": "stdio",
	}
	if s, ok := d.enum(f, words, others); ok {
		d.server.Transport = Transport(s)
	}
}

func (d *decoder) command(f *field) {
	s, ok := d.line(f)
	if !ok {
		return
	}
	if s != strings.TrimSpace(s) || strings.HasPrefix(s, "-") {
		d.report(problem(f.val.rng, "Invalid command", "command is a program's name or path, and %s is neither. Write %s.", quote(s), d.example("command")))
		return
	}
	if words := strings.Fields(s); len(words) > 1 && !strings.Contains(words[0], "/") {
		rest := make([]string, 0, len(words))
		for _, w := range words[1:] {
			rest = append(rest, quote(w))
		}
		d.report(problem(f.val.rng, "Invalid command", "command is the program alone, no shell reads it. Write command = %s and args = [%s].", quote(words[0]), strings.Join(rest, ", ")))
		return
	}
	d.server.Command = s
}

func (d *decoder) args(f *field) {
	nodes := d.texts(f)
	if len(nodes) > maxArgs {
		d.report(problem(nodes[maxArgs].rng, "Too many arguments", "args has %d entries, and room for %d. Give the server a file to read.", len(nodes), maxArgs))
		return
	}
	for _, n := range nodes {
		switch {
		case strings.ContainsRune(n.text, 0):
			d.report(problem(n.rng, "NUL in a value", "An argument cannot contain a NUL. Remove it."))
			continue
		case len(n.text) > maxArg:
			d.report(problem(n.rng, "Too long", "The argument has %d bytes, and the kernel passes on %d. Give the server a file to read.", len(n.text), maxArg))
			continue
		}
		d.secretArgument(n)
		d.placedEntry(f.key, len(d.server.Args), n.rng)
		d.server.Args = append(d.server.Args, n.text)
	}
}

// reveals are the words by which a shell's script puts a variable into the arguments of another program.
var reveals = regexp.MustCompile(`\$\{?([A-Za-z_][A-Za-z0-9_]*)`)

// secretArgument warns of a secret in an argument: the kernel shows the arguments of every process to every user of the
// host (/proc/PID/cmdline, proc_pid_cmdline(5)), those inside of a sandbox as well. So there is no reference to the
// vault here either.
func (d *decoder) secretArgument(n *node) {
	const remedy = " Store it with `pfar vault set KEY` and give it in auth = { NAME = \"vault:KEY\" }, as a variable or a file, if the server can read one."
	switch _, _, reference := reference(n); {
	case strings.HasPrefix(n.text, "vault:") && reference:
		d.report(caution(n.rng, "Reference in args", "It is passed on as it stands: every user of this host can read arguments while the server runs, so the vault gives nothing to them. Write auth = { NAME = %s } with the variable that the server reads.", quote(n.text)))
	case tokenPrefix(n.text) || tokenPrefix(n.text[strings.LastIndexByte(n.text, '=')+1:]):
		d.hidden.add(n.rng)
		d.report(caution(n.rng, "Secret in args", "The argument looks like a token, and every user of this host can read the arguments of a process."+remedy))
	case passwordWithin(n.text):
		d.hidden.add(n.rng)
		d.report(caution(n.rng, "Secret in args", "The address has a password in it, and every user of this host can read the arguments of a process."+remedy))
	}
}

// checkShell warns of a script that has a shell put a credential into another program's arguments.
func (d *decoder) checkShell() {
	f, ok := d.given["args"]
	i := slices.Index(d.server.Args, "-c")
	if name := path.Base(d.server.Command); !ok || i < 0 || i+1 >= len(d.server.Args) || !slices.Contains([]string{"sh", "bash", "dash", "zsh", "ksh", "busybox"}, name) {
		return
	}
	for _, m := range reveals.FindAllStringSubmatch(d.server.Args[i+1], -1) {
		if slices.ContainsFunc(d.server.Credentials, func(c Credential) bool { return c.Env == m[1] && c.Deliver == broker.InEnvironment }) {
			d.report(caution(d.server.Place(f.key+"["+strconv.Itoa(i+1)+"]"), "Secret in args", "The shell puts %s where every user of this host can read it, if it becomes an argument; and pfar cannot tell which package runs, so that nothing is known of its tools. Have the server read the variable, and write service = \"NAME\" if it is of a known service.", quote(m[1])))
			return
		}
	}
}

// checkPinned warns of a package that is another program from one day to the next.
func (d *decoder) checkPinned() {
	f, ok := d.given["args"]
	if runner := path.Base(d.server.Command); !ok || !slices.Contains([]string{"npx", "bunx", "pnpx", "uvx"}, runner) {
		return
	}
	for i, a := range d.server.Args {
		switch {
		case a == "" || strings.HasPrefix(a, "-") || secretWithin(a):
			continue
		case !pinned.MatchString(a):
			d.report(caution(d.server.Place(f.key+"["+strconv.Itoa(i)+"]"), "Version not pinned", "%s runs the version that the registry has at that time. Write the version too, such as %s.", path.Base(d.server.Command), quote(unpinned.ReplaceAllString(a, "$1")+"@1.2.3")))
		}
		return
	}
}

func (d *decoder) path(f *field) {
	s, ok := d.line(f)
	if !ok {
		return
	}
	switch {
	case strings.HasPrefix(s, `\\`):
		d.report(problem(f.val.rng, "Invalid path", `%s is a pipe of Windows. On Linux it is a pair of FIFOs, PATH.in and PATH.out: write path = "/run/notion/pipe" for both.`, quote(s)))
	case !d.absolute(f.val, s):
	case len(s) > maxSocketPath:
		d.report(problem(f.val.rng, "Too long", "The path of a socket has room for %d bytes, and this one has %d. Write a shorter one.", maxSocketPath, len(s)))
	case notASocket(s):
		d.report(problem(f.val.rng, "Refused path", "%s belongs to the host, and no MCP server listens there. Write the path of the server's own socket, such as %s.", quote(s), d.example("path")))
	default:
		d.server.Path = s
	}
}

// notASocket refuses what would have the gateway talk to the host's own services.
func notASocket(s string) bool {
	for _, p := range []string{"/proc", "/sys", "/dev", "/etc", "/boot", "/var/lib/pfar", "/run/pfar", "/run/systemd", "/run/dbus", "/run/docker.sock", "/run/containerd", "/run/podman"} {
		if below(strings.Replace(s, "/var/run/", "/run/", 1), p) {
			return true
		}
	}
	return s == "/" || s == "/run" || s == "/var" || strings.HasPrefix(s, "/run/user/") && path.Base(s) == "bus"
}

// url reads the address of a remote server. What it refuses it does not repeat: people paste passwords into URLs.
func (d *decoder) url(f *field) {
	s, ok := d.line(f)
	if !ok {
		return
	}
	if strings.ContainsAny(s, "@?") || secretWithin(s) {
		d.hidden.add(f.val.rng)
	}
	fault := func(format string, args ...any) {
		d.report(problem(f.val.rng, "Invalid URL", format+" Write "+d.example("url")+".", args...))
	}
	u, err := neturl.Parse(s)
	switch {
	case err != nil:
		fault("The value is no URL.")
	case u.User != nil || strings.Contains(u.Host, "@"):
		fault("The URL holds a user name or password, which logs would show. Put the token into auth.")
	case u.Scheme != "https" && u.Scheme != "http":
		fault("The URL begins with neither https:// nor http://.")
	case u.Hostname() == "":
		fault("The URL has no host.")
	case u.Fragment != "":
		fault("The URL has a fragment (#...), which is never sent.")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		fault("http sends the token in the clear, so it is only for loopback addresses of this machine.")
	default:
		d.server.URL = s
		d.allowURL(f, u)
	}
}

// allowURL adds the host of a remote server to its allowlist.
func (d *decoder) allowURL(f *field, u *neturl.URL) {
	host, port := u.Hostname(), u.Port()
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	e, err := egress.ParseEndpoint(host + ":" + port)
	if err != nil {
		d.report(problem(f.val.rng, "Invalid URL", "The URL has a host to which pfar cannot connect: %s.", escape(err.Error())))
		return
	}
	d.remote = &e
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// checkLaunch judges which of the keys may stand together.
func (d *decoder) checkLaunch() {
	d.needs()
	t := string(d.server.Transport)
	remote := d.server.Transport == SSE || d.server.Transport == StreamHTTP
	socket := d.server.Transport == UDS || d.server.Transport == Pipe
	d.excludes("url", !remote, "url is the address of a remote server, and the transport is "+strconv.Quote(t)+`. Write transport = "stream-http" (or "sse"), or remove url.`)
	d.excludes("path", !socket, "path is the socket of a server, and the transport is "+strconv.Quote(t)+`. Write transport = "uds" (or "pipe"), or remove path.`)
	d.excludes("command", remote, "A server with the transport "+strconv.Quote(t)+" runs elsewhere, so pfar starts no command. Remove command, or write transport = \"stdio\".")
	if _, starts := d.given["command"]; starts || d.server.Transport == Stdio {
		return
	}
	for _, k := range []string{"args", "env", sandboxSection} {
		d.excludes(k, true, k+" is for a program that pfar starts, and this server has no command. Remove "+k+".")
	}
	if d.remote != nil {
		d.allow(*d.remote)
	}
}

func (d *decoder) allow(e egress.Endpoint) {
	for _, have := range d.server.Allowed {
		if have == e || have.Host == e.Host && have.Prefix == e.Prefix && !have.Wildcard && have.Port == 0 && (have.AnyPort || e.Port == 443 || e.Port == 80) {
			return
		}
	}
	d.server.Allowed = append(d.server.Allowed, e)
}

// needs reports the one key that each transport cannot do without.
func (d *decoder) needs() {
	need := map[Transport]string{Stdio: "command", UDS: "path", Pipe: "path", SSE: "url", StreamHTTP: "url"}[d.server.Transport]
	if _, ok := d.given[need]; ok {
		return
	}
	if d.meant[need] || d.meant[serverSection] && need == "command" {
		return
	}
	at := d.src.start()
	for _, k := range []string{serverSection, "transport"} {
		if f, ok := d.given[k]; ok {
			at = f.rng
			if f.val.kind == broken {
				return
			}
		}
	}
	if f, ok := d.given["transport"]; ok && string(d.server.Transport) != f.val.text {
		return // what it was meant to be is not known
	}
	if f, ok := d.given[serverSection]; ok && f.val.kind != table {
		return
	}
	detail := "A server with the transport " + strconv.Quote(string(d.server.Transport)) + " needs " + need + ". Write " + d.example(need) + "."
	if _, ok := d.given["url"]; ok && need == "command" {
		return // said of url
	}
	if _, ok := d.given["path"]; ok && need == "command" {
		return
	}
	d.report(problem(at, "Missing key", "%s", detail))
}

func (d *decoder) excludes(key string, when bool, detail string) {
	f, ok := d.given[key]
	if !ok || !when {
		return
	}
	if t, ok := d.given["transport"]; ok && t.val.text != string(d.server.Transport) {
		return
	}
	d.report(problem(f.rng, "Keys that exclude each other", "%s", detail))
}
