package conformance

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// asksAll lets a server ask its clients for all that it can be allowed to, and gives each session a process of its own.
// The stable suite has a session for each scenario and ends none of them.
const asksAll = `client_capabilities = ["elicitation", "roots", "sampling"]
sessions            = "own"
sessions_max        = 64
`

// serverRuns are what a server is put through: every scenario, in each revision of the protocol. The flag is what the
// reference server is to be told for HTTP; least is how many checks it passed when this was written.
var serverRuns = []struct {
	suite, revision string
	stateless       bool
	args            [][]string
	least           int
}{
	{"conformance-stable", "2025-11-25", false, [][]string{{"--suite", "all"}}, 44},
	{"conformance-alpha", "2025-06-18", false, [][]string{{"--suite", "all", "--spec-version", "2025-06-18"}}, 56},
	{"conformance-alpha", "2025-11-25", false, [][]string{{"--suite", "all", "--spec-version", "2025-11-25"}}, 82},
	// The requirements are all of the suite, and its extensions but skills.
	{"conformance-alpha", "2026-07-28", true, [][]string{{"--requirements", "2026-07-28"}, {"--scenario", "sep-2640-skills-directory"},
		{"--scenario", "sep-2640-skills-enumeration"}, {"--scenario", "sep-2640-skills-manifest"}}, 168},
}

// TestServer judges the reference server, and the same one behind pfar. A server that closes the stream of a call by
// itself passes server-sse-disconnect-resume on HTTP alone, as the TypeScript reference server does: on stdio it has no
// stream to close, and the suite then says INFO. TestReadOn of cmd/pfar-gateway/serve holds what pfar does when a
// connection breaks.
func TestServer(t *testing.T) {
	_, dir := both(t)
	verdicts := make([]verdict, len(serverRuns))
	t.Run("runs", func(t *testing.T) {
		for i, r := range serverRuns {
			v := &verdicts[i]
			*v = newVerdict(r.suite, dir, r.revision)
			t.Run(v.name(), func(t *testing.T) {
				t.Parallel()
				v.took[0] = serve(t, *v, v.direct, reference(t, dir, r.stateless), r.args)
				v.took[1] = serve(t, *v, v.through, behindPfar(t, "reference"), r.args)
				v.judge(t, r.least)
			})
		}
	})
	wantAll(t, dir, "server", verdicts, func(string) bool { return false })
	table("server scenarios", verdicts)
}

// serve puts a server through the suite.
func serve(t testing.TB, v verdict, into results, target string, runs [][]string) time.Duration {
	t.Helper()
	return timed(t, func() (err error) {
		for _, args := range runs {
			_, e := v.suite.run(t.Context(), into, "server", nil, append(args, "--url", target)...)
			err = errors.Join(err, e)
		}
		return err
	})
}

// TestGenerationsTogether puts one pfar and one declaration through all revisions at the same time: clients of both
// generations side by side must not notice each other.
func TestGenerationsTogether(t *testing.T) {
	_, dir := both(t)
	target := behindPfar(t, "reference")
	verdicts := make([]verdict, len(serverRuns))
	var running sync.WaitGroup // not t.Parallel, which runs no more at once than there are processors
	for i, r := range serverRuns {
		verdicts[i] = newVerdict(r.suite, dir, r.revision)
		running.Go(func() { verdicts[i].took[1] = serve(t, verdicts[i], verdicts[i].through, target, r.args) })
	}
	running.Wait()
	for i, r := range serverRuns {
		verdicts[i].took[0] = serve(t, verdicts[i], verdicts[i].direct, reference(t, dir, r.stateless), r.args)
		verdicts[i].judge(t, r.least)
	}
	table("server scenarios, all at once on one pfar", verdicts)
}

// timed fails with what f returns.
func timed(t testing.TB, f func() error) time.Duration {
	t.Helper()
	begin := time.Now()
	if err := f(); err != nil {
		t.Error(err)
	}
	return time.Since(begin)
}

// reference starts the reference server on HTTP and returns its URL.
func reference(t testing.TB, dir string, stateless bool) string {
	t.Helper()
	for range 5 { // the port is free when it is looked for, and may not be a moment later
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		c := exec.Command(filepath.Join(dir, "bin", "everything-server"), "-http", address, fmt.Sprintf("-stateless=%v", stateless))
		ended, err := spawn(c)
		if err != nil {
			t.Fatal(err)
		}
		if answers(address, ended) {
			t.Cleanup(func() {
				c.Process.Kill()
				<-ended
			})
			return "http://" + address
		}
		c.Process.Kill()
		<-ended
	}
	t.Fatal("the reference server does not listen")
	return ""
}

// answers waits until something listens. The server does not say when, so this asks again and again.
func answers(address string, ended <-chan struct{}) bool {
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	timeout := time.After(soon)
	for {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			select {
			case <-ended: // somebody else does
				return false
			default:
				return true
			}
		}
		select {
		case <-ended:
			return false
		case <-timeout:
			return false
		case <-retry.C:
		}
	}
}

// behindPfar starts the reference server on stdio below a pfar of its own, and returns the URL of a front to it.
func behindPfar(t testing.TB, name string) string {
	t.Helper()
	bin, dir := both(t)
	p, err := up(bin, map[string]string{name: declare(filepath.Join(dir, "bin", "everything-server"), nil, "")})
	if err != nil {
		t.Fatal(err)
	}
	var f *front
	t.Cleanup(sync.OnceFunc(func() {
		if f != nil {
			f.close()
		}
		if t.Failed() {
			t.Log(p.log())
		}
		if err := p.down(); err != nil {
			t.Error(err)
		}
	}))
	target, f, err := before(p, name)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// before opens a front to one server of a pfar.
func before(p *pfar, name string) (target string, f *front, err error) {
	endpoint, err := url.Parse(p.report.Endpoint)
	if err != nil {
		return "", nil, err
	}
	if f, err = newFront(endpoint.Host, p.token); err != nil {
		return "", nil, err
	}
	return "http://" + f.address() + strings.TrimRight(endpoint.Path, "/") + "/" + name, f, nil
}
