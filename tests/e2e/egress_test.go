package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

const declared = `
timeout         = "4m"
allowed_domains = [
  "api.allowed.example", "api.allowed.example:7777", "api.allowed.example:8443", "*.wild.example", "db.allowed.example:5432",
  "lan.example:7777", "secret-lan.example:7777", "rebound.example:7777", "own.example:7777", "93.184.215.14:7777",
]
allow_private = { "lan.example" = ["10.77.0.5"] }
`

// reached is what a program of the sandbox wrote, and how long it took.
type reached struct {
	Wrote   string  `json:"wrote"`
	Seconds float64 `json:"seconds"`
}

// clients is the server in the sandbox that runs programs.
type clients struct {
	p             *pfar
	node, modules string
	scripts       string
}

// findClients finds the programs.
func findClients(t *testing.T) *clients {
	t.Helper()
	node, err := exec.LookPath("node")
	check(t, err)
	node, err = filepath.EvalSymlinks(node)
	check(t, err)
	c := &clients{node: node, modules: filepath.Dir(npm(t, "x")), scripts: directory(t, "")} // a clone may be where the server's user cannot read
	for _, name := range []string{"reach.mjs", "reach.py"} {
		b, err := os.ReadFile(filepath.Join("..", "clients", name))
		check(t, err)
		put(t, filepath.Join(c.scripts, name), string(b))
	}
	return c
}

// startClients brings the server up with the internet around it.
func startClients(t *testing.T) (*clients, *world) {
	t.Helper()
	in, wrap := startInternet(t)
	in.startPostgres(t)
	c := findClients(t)
	c.p = prepare(t, map[string]string{"clients.hcl": declared + declare(program(t, "clients"), nil, fmt.Sprintf(`
env     = { NODE_EXTRA_CA_CERTS = %[1]q, REQUESTS_CA_BUNDLE = %[1]q, SSL_CERT_FILE = %[1]q }
sandbox {
  read_only    = [%[1]q, %[2]q, %[3]q%[4]s]
  memory_limit = "1g"
  tasks_max    = 1000
}`, in.authority, c.scripts, c.modules, alsoShow(c.node)))})
	c.p.up(wrap...)
	c.p.awaitRunning("clients")
	return c, in
}

// alsoShow is a program's folder for read_only, unless the system's programs are shown anyway.
func alsoShow(program string) string {
	if strings.HasPrefix(program, "/usr/") {
		return ""
	}
	return fmt.Sprintf(", %q", filepath.Dir(filepath.Dir(program)))
}

// argv completes the short form that the tables have: the language, the way, the target.
func (c *clients) argv(short []string) []string {
	switch short[0] {
	case "node":
		return append([]string{c.node, filepath.Join(c.scripts, "reach.mjs"), c.modules}, short[1:]...)
	case "python":
		return append([]string{"/usr/bin/python3", filepath.Join(c.scripts, "reach.py")}, short[1:]...)
	case "psql":
		return append([]string{"/usr/bin/psql", "-tA", "-c", "select 'forty-two'"}, short[1:]...)
	}
	return short
}

// lostPacket is less than what a packet that nobody answers costs a program: a query of names is sent again after 5 s.
const lostPacket = 4 * time.Second

// took is how long a program says that it was about its business, without its own start, and otherwise all of it.
func (r reached) took() time.Duration {
	if m := regexp.MustCompile(`\(([0-9]+) ms\)\n$`).FindStringSubmatch(r.Wrote); m != nil {
		ms, _ := strconv.Atoi(m[1])
		return time.Duration(ms) * time.Millisecond
	}
	return time.Duration(r.Seconds * float64(time.Second))
}

// run has a program run in the sandbox.
func (c *clients) run(to *client, proxy bool, short ...string) reached {
	var r reached
	text := to.must("clients__run", map[string]any{"argv": c.argv(short), "proxy": proxy, "env": []string{"PGPASSWORD=open sesame", "PGCONNECT_TIMEOUT=10"}})
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		c.p.t.Errorf("%q: %v: %s", short, err, text)
	}
	return r
}

// answered is what each language does that gets an answer.
var answered = map[string][]string{
	"node":   {"node", "fetch", "https://api.allowed.example/"},
	"python": {"python", "requests", "https://api.allowed.example/"},
	"go":     {"go", "http", "https://api.allowed.example/"},
	"psql":   {"psql", "host=db.allowed.example user=pfar dbname=postgres sslmode=disable"},
}

// waits reports whether a program waits for a packet that nobody answers. A busy machine delays what is answered as
// well: only what takes longer by a lost packet, each time that it is tried, waits.
func (c *clients) waits(to *client, proxy bool, argv []string, took time.Duration) bool {
	for n := 0; took > lostPacket; n++ {
		if n == 5 {
			return true
		}
		busy := c.run(to, proxy, answered[argv[0]]...).took()
		took = c.run(to, proxy, argv...).took() - busy
	}
	return false
}

// egressRow is one program, with what it has to say.
type egressRow struct {
	argv  []string
	wants string // in what it writes
	proxy string // the same, if its proxy variables are set; "": no difference
}

func fields(s string) []string { return strings.Fields(s) }

// paired reports whether the ith library tries the jth address that is not declared. With -short each one tries every
// third address, and each address is tried by every third library: what pfar does for it does not depend on the
// library.
func paired(i, j int) bool { return !testing.Short() || (i+j)%3 == 0 }

// pairedRows are those of the libraries for the jth address.
func pairedRows(j int, rows ...egressRow) (some []egressRow) {
	for i, row := range rows {
		if paired(i, j) {
			some = append(some, row)
		}
	}
	return some
}

// knowsProxies reports whether the program reads the proxy's variables, of itself or in a newer version.
func (row egressRow) knowsProxies() bool {
	return row.proxy != "" || slices.Contains([]string{"fetch", "node-fetch", "axios", "undici", "http", "https", "ws",
		"twice", "urllib", "requests"}, row.argv[1])
}

// reachable are ways to what is declared, by whatever library and with or without the proxy's variables.
func reachable() []egressRow {
	var rows []egressRow
	for i, library := range []string{"node fetch", "node node-fetch", "node axios", "node undici", "python urllib", "python requests", "go http"} {
		for j, url := range []string{"https://api.allowed.example/", "http://api.allowed.example/", "https://a.wild.example/"} {
			if testing.Short() && (i+j)%3 == 0 {
				continue // each library reaches two of the three, one of them by TLS
			}
			name := strings.Split(url, "/")[2]
			rows = append(rows, egressRow{argv: append(fields(library), url), wants: "200 hello from " + name})
		}
	}
	for _, r := range [][2]string{
		{"node https https://api.allowed.example/", "200 hello from api.allowed.example"},
		{"node http http://api.allowed.example/", "200 hello from api.allowed.example"},
		{"node ws wss://api.allowed.example/ws", "hello"},
		{"node ws ws://api.allowed.example/ws", "hello"},
		{"node net api.allowed.example:7777", "echo of hello"},
		{"node tls api.allowed.example:8443", "echo of hello"},
		{"python tcp api.allowed.example:7777", "echo of hello"},
		{"go tcp api.allowed.example:7777", "echo of hello"},
		{"node net 93.184.215.14:7777", "echo of hello"}, // declared as a literal
		{"node net lan.example:7777", "echo of hello"},   // private, as declared
		{"node lookup api.allowed.example", "2001:2::c612:101"},
		{"node resolve4 api.allowed.example", "198.18.1.1"},
		{"node http http://api.allowed.example/ API.allowed.example.", "200 hello from API.allowed.example."},
	} {
		rows = append(rows, egressRow{argv: fields(r[0]), wants: r[1]})
	}
	for _, mode := range []string{"disable", "require"} {
		rows = append(rows, egressRow{argv: []string{"psql", "host=db.allowed.example user=pfar dbname=postgres sslmode=" + mode}, wants: "forty-two"})
	}
	return rows
}

// byProxy is what a library makes of the proxy's refusal: of plain HTTP, what the proxy itself says.
func byProxy(target, reason, tunnel string) string {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" {
		return tunnel
	}
	return "403 pfar refuses " + net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")) + ": " + reason
}

// unreachable are ways to what is not declared; each fails at once, with an error that the program understands.
func unreachable() []egressRow {
	const refused, noName = "ECONNREFUSED", "ENOTFOUND"
	var rows []egressRow
	for j, url := range []string{"https://evil.example/", "http://evil.example/", "https://wild.example/", "https://b.a.wild.example/"} {
		name := strings.Split(url, "/")[2]
		rows = append(rows, pairedRows(j,
			egressRow{fields("node fetch " + url), noName + " getaddrinfo " + noName + " " + name, ""},
			egressRow{fields("node node-fetch " + url), noName, ""},
			egressRow{fields("node axios " + url), noName, byProxy(url, "name-not-declared", "403 pfar refuses "+name+":443: name-not-declared")},
			egressRow{fields("node undici " + url), noName, "UND_ERR_ABORTED Proxy response (403)"}, // tunnels http as well
			egressRow{fields("python urllib " + url), "Name or service not known", byProxy(url, "name-not-declared", "URLError <urlopen error Tunnel connection failed: 403 Forbidden>")},
			egressRow{fields("python requests " + url), "Name or service not known", byProxy(url, "name-not-declared", "OSError('Tunnel connection failed: 403 Forbidden')")},
			egressRow{fields("go http " + url), "no such host", byProxy(url, "name-not-declared", ": Forbidden")},
		)...)
	}
	for j, r := range []struct{ url, node, python, reason string }{
		{"http://93.184.215.66/", refused, "Connection refused", "address-literal"},
		{"https://93.184.215.14/", refused, "Connection refused", "port-not-declared"},  // declared with another port
		{"http://[2606:4700::1111]/", refused, "Connection refused", "address-literal"}, // requests takes whatever ends in ::1 for NO_PROXY's
		{"http://169.254.169.254/", refused, "Connection refused", "address-literal"},
		{"http://10.77.0.5/", refused, "Connection refused", "address-literal"},
		{"http://api.allowed.example:22/", "ECONNRESET", "Connection reset by peer", "port-not-declared"},
	} {
		axios := byProxy(r.url, r.reason, "403 pfar refuses 93.184.215.14:443: "+r.reason)
		if strings.Contains(r.url, "[") {
			axios = "400 pfar refuses [2606:4700::1111]:80: bad-request" // its Host has no brackets
		}
		rows = append(rows, pairedRows(j,
			egressRow{fields("node axios " + r.url), r.node, axios},
			egressRow{fields("node undici " + r.url), r.node, "UND_ERR_ABORTED Proxy response (403)"},
			egressRow{fields("python urllib " + r.url), r.python, byProxy(r.url, r.reason, "Tunnel connection failed: 403 Forbidden")},
			egressRow{fields("python requests " + r.url), r.python, byProxy(r.url, r.reason, "Tunnel connection failed: 403 Forbidden")},
			egressRow{fields("go http " + r.url), strings.ToLower(r.python), byProxy(r.url, r.reason, ": Forbidden")},
		)...)
	}
	for _, r := range [][2]string{
		{"node ws wss://evil.example/ws", noName},
		{"node net evil.example:7777", noName},
		{"node tls evil.example:8443", noName},
		{"node lookup evil.example", noName},
		{"node resolve4 secret.evil.example", noName},
		{"node resolver evil.example 8.8.8.8", refused},              // c-ares' word for what cannot be sent
		{"node resolver api.allowed.example 93.184.215.53", refused}, // not even a declared name
		{"node net api.allowed.example:22", "ECONNRESET"},            // a declared name on another port
		{"node net a.wild.example:7777", "ECONNRESET"},
		{"python tcp api.allowed.example:22", "ConnectionResetError"},
		{"go tcp api.allowed.example:22", "connection reset by peer"},
		{"node fetch https://db.allowed.example/", "ECONNRESET"},
		{"node net 93.184.215.14:443", refused}, // the declared host's own address
		{"node net 93.184.215.66:443", refused},
		{"node https https://93.184.215.66/", refused},
		{"python tcp 93.184.215.66:80", "ConnectionRefusedError"},
		{"go tcp 93.184.215.66:7777", "connection refused"},
		{"go tcp 10.77.0.5:7777", "connection refused"}, // private by its name only
		{"go tcp 93.184.215.13:7777", "connection refused"},
		{"go tcp 169.254.169.254:80", "connection refused"},
		{"go tcp [2606:4700::1]:443", "connection refused"},
		{"python tcp [2606:4700::1]:443", "ConnectionRefusedError"},
		{"go udp 93.184.215.53:53", "operation not permitted"},
		{"python udp 8.8.8.8:53", "PermissionError"},
		{"go udp 198.18.1.1:443", "operation not permitted"}, // QUIC
		{"go udp [2606:4700::1]:443", "operation not permitted"},
		{"node net secret-lan.example:7777", "ECONNRESET"}, // declared, and leads into a private network
		{"node net rebound.example:7777", "ECONNRESET"},
		{"node net own.example:7777", "ECONNRESET"},
		{"node tls api.allowed.example:443 evil.example", "ECONNRESET"}, // another server's name in TLS
		{"node tls api.allowed.example:443 a.wild.example", "ECONNRESET"},
		{"node undici https://api.allowed.example/ evil.example", "ECONNRESET"}, // and in a tunnel
		{"node ws ws://93.184.215.66/ws", refused},
		{"node http http://api.allowed.example/ evil.example", "403 pfar refuses api.allowed.example:80: host-contradicts"},
		{"node twice http://api.allowed.example/ evil.example", "200 hello from api.allowed.example / 403 pfar refuses"},
		{"psql host=api.allowed.example", "error"},
	} {
		rows = append(rows, egressRow{argv: fields(r[0]), wants: r[1]})
	}
	return rows
}

// TestEgress has real programs, which know nothing of pfar, reach what is declared and nothing else.
func TestEgress(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	c, in := startClients(t)
	w := in.tap(t, c.p.cmd.Process.Pid)
	gateway, err := url.Parse(c.p.last().Endpoint)
	check(t, err)
	closed := append(unreachable(), egressRow{argv: []string{"go", "tcp", gateway.Host}, wants: "connection refused"})
	for name, rows := range map[string][]egressRow{"reachable": reachable(), "unreachable": closed} {
		t.Run(name, func(t *testing.T) { c.try(t, rows, name == "unreachable") })
	}
	told := server(c.p.last(), "clients").LastRefusal
	if !strings.HasPrefix(told, "refused ") && !strings.HasPrefix(told, "failed ") {
		t.Errorf("the last refusal is %q", told)
	}
	allowed := []string{hostAddress + ":443", hostAddress + ":80", hostAddress + ":7777", hostAddress + ":8443", lanAddress + ":7777"}
	names := []string{"api.allowed.example.", "a.wild.example.", "db.allowed.example.", "lan.example.", "secret-lan.example.", "rebound.example.", "own.example."}
	w.only(t, "tcp "+hostAddress+":443", "tcp "+hostAddress+":80", "tcp "+hostAddress+":7777", "tcp "+hostAddress+":8443", "tcp "+hostAddress+":5432",
		"tcp "+lanAddress+":7777")
	for _, e := range in.seen() {
		if e.To != "" && !slices.Contains(allowed, e.To) && !slices.Contains(allowed, strings.Trim(strings.Replace(e.To, "::ffff:", "", 1), "[]")) {
			t.Errorf("the internet was connected to at %s", e.To)
		}
		if e.Query != "" && !slices.Contains(names, e.Query) {
			t.Errorf("the internet was asked for %s", e.Query)
		}
	}
}

// try runs each program with and without the proxy's variables, a few at a time. With -short one that does not read
// them is run without.
func (c *clients) try(t *testing.T, rows []egressRow, atOnce bool) {
	to := c.p.client("/mcp")
	var all sync.WaitGroup
	slots := make(chan struct{}, 4)
	for _, row := range rows {
		for _, proxy := range []bool{false, true} {
			if proxy && testing.Short() && !row.knowsProxies() {
				continue
			}
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				r := c.run(to, proxy, row.argv...)
				want := row.wants
				if proxy && row.proxy != "" {
					want = row.proxy
				}
				if !strings.Contains(r.Wrote, want) && !(atOnce && proxy && row.newerNode() && refusedByProxy(r.Wrote)) {
					t.Errorf("%s (proxy %t): %.300q, want %q", strings.Join(row.argv, " "), proxy, r.Wrote, want)
				}
				if atOnce && c.waits(to, proxy, row.argv, r.took()) {
					t.Errorf("%s (proxy %t): refused after %v", strings.Join(row.argv, " "), proxy, r.took())
				}
			})
		}
	}
	all.Wait()
}

// newerNode reports whether the program is a part of Node that reads the proxy's variables from Node 22.21 on.
func (row egressRow) newerNode() bool {
	return row.argv[0] == "node" && slices.Contains([]string{"fetch", "http", "https", "twice"}, row.argv[1])
}

// refusedByProxy reports whether a library said in its own words that the proxy refuses.
func refusedByProxy(wrote string) bool {
	return strings.Contains(wrote, "403") || strings.Contains(wrote, "Forbidden")
}

// TestEgressFollowsTheFile takes a host away from a server that runs, which leaves the others theirs.
func TestEgressFollowsTheFile(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	t.Parallel()
	c, _ := startClients(t)
	to := c.p.client("/mcp")
	if got := c.run(to, false, "go", "tcp", "api.allowed.example:7777"); !strings.Contains(got.Wrote, "echo of hello") {
		t.Fatalf("before: %q", got.Wrote)
	}
	before := c.run(to, false, "node", "resolve4", "a.wild.example")
	mark := c.p.mark()
	b, err := os.ReadFile(c.p.path("clients.hcl"))
	check(t, err)
	c.p.write("clients.hcl", strings.Replace(string(b), `"api.allowed.example:7777", `, "", 1))
	c.p.awaitFrom(mark, "the edit", soon, func(r control.Report) bool {
		return !slices.Contains(server(r, "clients").Domains, "api.allowed.example:7777")
	})
	if got := c.run(to, false, "go", "tcp", "api.allowed.example:7777"); !strings.Contains(got.Wrote, "connection reset by peer") {
		t.Errorf("after: %q", got.Wrote)
	}
	if after := c.run(to, false, "node", "resolve4", "a.wild.example"); !strings.HasPrefix(before.Wrote, "198.19.0.") || strings.Fields(after.Wrote)[0] != strings.Fields(before.Wrote)[0] {
		t.Errorf("a.wild.example was %q, is %q", before.Wrote, after.Wrote)
	}
}
