package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/tests/trust"
)

const (
	gatewayKills = 30
	killsTime    = 30 * time.Second // after which no more are tried, if there were minKills
	minKills     = 25
	fewKills     = 8 // with -short
)

// numbered is one kind of request, about a number that no other request has.
type numbered struct {
	server, method string
	params         func(name, number string) map[string]any
	about          string // the parameter of which the record has the digest; "": all
}

// numberedRequests are of a server of which the owner says that nothing in it is a stranger's, and of one of which they
// do not: that one's client has a session that is tainted by it, and so it only reads.
var numberedRequests = []numbered{
	{"clean", "tools/call", searching(""), "arguments"},
	{"clean", "tools/call", searching(strings.Repeat("x", 200<<10)), "arguments"}, // more than a pipe holds
	{"clean", "prompts/get", triage, "arguments"},
	{"strange", "prompts/get", triage, "arguments"},
	{"strange", "resources/read", func(_, number string) map[string]any { return map[string]any{"uri": "tracker://search/" + number} }, ""},
}

func searching(more string) func(name, number string) map[string]any {
	return func(server, number string) map[string]any {
		return map[string]any{"name": server + "__search", "arguments": map[string]any{"query": number + more}}
	}
}

func triage(server, number string) map[string]any {
	return map[string]any{"name": server + "__triage", "arguments": map[string]any{"note": number}}
}

// digest is how the record of the request tells what it is about.
func (q numbered) digest(t testing.TB, number string) string {
	t.Helper()
	params := q.params(q.server, number)
	about := any(params)
	if q.about != "" {
		about = params[q.about]
	}
	b, err := json.Marshal(about)
	if err != nil {
		t.Error(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// counted are requests that are made all the time, each of another number.
type counted struct {
	end  chan struct{}
	all  sync.WaitGroup
	next atomic.Int64

	mu       sync.Mutex
	digests  map[string]string // of all that were made, by number
	answered map[string]bool   // that had a result
}

// number is one in a text, marked so that none is part of another.
var number = regexp.MustCompile(`n-[0-9]+\.`)

// caller makes requests of one kind, one after the other. After one that failed its session may be gone.
func (c *counted) caller(a *agent, q numbered) {
	c.all.Go(func() {
		for {
			select {
			case <-c.end:
				return
			default:
			}
			n := "n-" + strconv.FormatInt(c.next.Add(1), 10) + "."
			digest := q.digest(a.t, n)
			c.mu.Lock()
			c.digests[n] = digest
			c.mu.Unlock()
			got := a.ask(q.method, q.params(q.server, n))
			if !strings.Contains(got, `"result":`) || strings.Contains(got, `"isError":true`) {
				time.Sleep(time.Millisecond)
				a.connect()
				continue
			}
			c.mu.Lock()
			c.answered[n] = true
			c.mu.Unlock()
		}
	})
}

func (c *counted) answers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.answered)
}

// TestKilledGateways kills the gateway with SIGKILL at random moments, while it starts and while many calls are under
// way, on each of the ways that there are. All that has arrived at a server is in the record, and whole; nothing has
// arrived twice.
func TestKilledGateways(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		check(t, err)
	}
	t.Logf("%s=%d", seedVariable, seed)
	random := rand.New(rand.NewPCG(seed, seed))
	p, tokens, received := startTrackers(t)
	c := &counted{end: make(chan struct{}), digests: map[string]string{}, answered: map[string]bool{}}
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * len(numberedRequests)}
	t.Cleanup(transport.CloseIdleConnections)
	for _, modern := range []bool{false, true} {
		for _, q := range numberedRequests {
			a := &agent{t: t, url: p.last().Endpoint, token: tokens[q.server], modern: modern, http: &http.Client{Transport: transport}, patience: soon}
			a.connect()
			c.caller(a, q)
		}
	}
	kills := killGateways(t, p, c, random)
	answers := c.answers()
	if err := again(t, func() error { return c.progress(answers) }); err != nil {
		t.Error(err)
	}
	close(c.end)
	c.all.Wait()
	p.stop()
	if out, _, code := p.command("audit", "verify"); code != 0 {
		t.Errorf("pfar audit verify: %d: %s", code, out)
	}
	c.compare(t, p, received, kills)
}

// progress is an error unless more has been answered than once was.
func (c *counted) progress(than int) error {
	if n := c.answers(); n <= than {
		return fmt.Errorf("no more than %d answers", n)
	}
	return nil
}

// startTrackers brings the two servers up, and returns the tokens of their clients and the files in which each notes
// what arrives, before it does anything with it.
func startTrackers(t *testing.T) (p *pfar, tokens map[string]string, received []string) {
	t.Helper()
	dir := directory(t, "")
	check(t, os.Chmod(dir, 0o777))
	text := filepath.Join(dir, "text")
	check(t, os.WriteFile(text, []byte("a text"), 0o644))
	tokens = map[string]string{}
	p = prepare(t, nil)
	check(t, os.Mkdir(filepath.Join(p.home, "clients.d"), 0o755))
	for name, trusted := range map[string]string{"clean": trust.Honest, "strange": strings.Replace(trust.Honest, "public_source    = false", "public_source    = true", 1)} {
		path := filepath.Join(dir, name)
		received = append(received, path)
		p.write(name+".hcl", declare(program(t, "tracker"), []string{"-text", text, "-received", path}, trusted+fmt.Sprintf("pins = \"trust-first\"\nsandbox { writable = [%s] }\n", quote(dir))))
		tokens[name] = clientToken(len(tokens))
		sum := sha256.Sum256([]byte(tokens[name]))
		client := fmt.Sprintf("token_sha256 = [%q]\nservers = [%q]\n", hex.EncodeToString(sum[:]), name)
		check(t, os.WriteFile(filepath.Join(p.home, "clients.d", name+".hcl"), []byte(client), 0o644))
	}
	p.up()
	p.awaitRunning("clean", "strange")
	return p, tokens, received
}

// killGateways kills one gateway after the other, and returns how many. Some are killed as soon as they are there, most
// while they answer.
func killGateways(t *testing.T, p *pfar, c *counted, random *rand.Rand) (kills int) {
	t.Helper()
	var before process
	most := gatewayKills
	if testing.Short() {
		most = fewKills
	}
	for begun := time.Now(); kills < most && (kills < minKills || time.Since(begun) < killsTime); kills++ {
		g := p.gateway(before)
		if starts := random.IntN(5) == 0; !starts {
			answers := c.answers()
			if err := again(t, func() error { return c.progress(answers + 10) }); err != nil {
				t.Fatalf("after %d kills: %v", kills, err)
			}
		}
		time.Sleep(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
		if err := syscall.Kill(g.pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitGone(t, soon, []process{g})
		before = g
	}
	return kills
}

// compare holds what was recorded against what has arrived and what was answered.
func (c *counted) compare(t *testing.T, p *pfar, received []string, kills int) {
	t.Helper()
	opened, closed, begins := recordedCalls(t, p)
	arrived, unrecorded := 0, 0
	seen := map[string]int{}
	for _, path := range received {
		b, err := os.ReadFile(path)
		check(t, err)
		for _, n := range number.FindAll(b, -1) {
			seen[string(n)]++
		}
	}
	for n, times := range seen {
		arrived++
		if times > 1 {
			t.Errorf("%s has arrived %d times", n, times)
		}
		if _, ok := opened[c.digests[n]]; !ok {
			unrecorded++
			t.Errorf("%s has arrived, and there is no record of it", n)
		}
	}
	for n := range c.answered {
		if seen[n] == 0 || closed[opened[c.digests[n]]] != "ok" {
			t.Errorf("%s was answered: it has arrived %d times, and its record is closed with %q", n, seen[n], closed[opened[c.digests[n]]])
		}
	}
	t.Logf("%d kills: %d requests made, %d arrived, %d answered; %d records opened, %d closed, %d beginnings", kills, len(c.digests), arrived, len(c.answered), len(opened), len(closed), begins)
	if begins < 2 || begins > kills+1 {
		t.Errorf("%d gateways have begun to record, and %d were killed", begins, kills)
	}
	if lost := len(opened) - len(closed); lost < kills/2 || len(c.answered) < 5*kills {
		t.Errorf("%d calls were cut and %d answered in %d kills, so that this shows little", lost, len(c.answered), kills)
	}
}

// recordedCalls are the calls that the gateway's chain has: the ids of those that were to be made by what they are
// about, and the outcomes of those that are over by id. None is opened twice, and none closed that is not open.
func recordedCalls(t *testing.T, p *pfar) (opened, closed map[string]string, begins int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(p.state(), "audit", "gateway-*.jsonl"))
	check(t, err)
	opened, closed = map[string]string{}, map[string]string{}
	open := map[string]bool{}
	for _, path := range paths { // oldest first
		b, err := os.ReadFile(path)
		check(t, err)
		for line := range bytes.Lines(b) {
			r, err := audit.Parse(bytes.TrimSuffix(line, []byte("\n")))
			if err != nil {
				continue // a record that was cut: verify has found the one that says so
			}
			switch {
			case r.Kind == audit.Begin:
				begins++
			case r.Kind == audit.Open && r.Outcome == "" && r.Decision != nil && r.Decision.Verdict.String() == "allow":
				if open[r.ID] || opened[r.Arguments.SHA256] != "" {
					t.Errorf("record %d opens what is open: %s", r.Seq, line)
				}
				open[r.ID], opened[r.Arguments.SHA256] = true, r.ID
			case r.Kind == audit.Open:
				t.Errorf("record %d is of a call that was not let through: %.500s", r.Seq, line)
			case r.Kind == audit.Close:
				if !open[r.ID] {
					t.Errorf("record %d closes what is not open: %s", r.Seq, line)
				}
				delete(open, r.ID)
				closed[r.ID] = r.Outcome
			}
		}
	}
	return opened, closed, begins
}
