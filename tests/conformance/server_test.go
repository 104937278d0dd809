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

	"github.com/pfar/pfar/tests/trust"
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

// Ways by which pfar reaches the reference server. On stdio both generations are one declaration.
const (
	onStdio  = "reference"
	remotely = "remote"
)

// TestServer judges the reference server, and the same one behind one pfar, which starts it and also has it as a remote
// server: in all revisions of the protocol at the same time, as clients of both generations side by side must not notice
// each other. A server that closes the stream of a call by itself passes server-sse-disconnect-resume on HTTP alone, as
// the TypeScript reference server does: on stdio it has no stream to close, and the suite then says INFO. TestReadOn of
// cmd/pfar-gateway/serve holds what pfar does when a connection breaks.
func TestServer(t *testing.T) {
	_, dir := both(t)
	behind := behindPfar(t, declared(t, dir))
	alone := func(way string, stateless bool) string { return behind(declarationOf(way, stateless)) }
	verdicts := judgeAll(t, dir, alone)
	wantAll(t, dir, "server", verdicts, func(string) bool { return false })
	table("server scenarios, all at once on one pfar", verdicts)
}

// TestServerAlone gives each revision, and each way, a pfar of its own.
func TestServerAlone(t *testing.T) {
	if testing.Short() {
		return // TestServer is the example
	}
	_, dir := both(t)
	verdicts := judgeAll(t, dir, func(way string, stateless bool) string {
		name := declarationOf(way, stateless)
		return behindPfar(t, map[string]string{name: declared(t, dir)[name]})(name)
	})
	table("server scenarios, each on a pfar of its own", verdicts)
}

// judgeAll puts the reference server, and pfar before it in each way, through all runs at the same time. open returns
// where pfar serves it.
func judgeAll(t *testing.T, dir string, open func(way string, stateless bool) string) (verdicts []verdict) {
	t.Helper()
	var running sync.WaitGroup // not t.Parallel, which runs no more at once than there are processors
	took := make([]time.Duration, len(serverRuns))
	for i, r := range serverRuns {
		direct := results{}
		target := reference(t, dir, r.stateless)
		running.Go(func() { took[i] = serve(t, suite{name: r.suite, dir: dir}, direct, target, r.args) })
		for _, way := range []string{onStdio, remotely} {
			v := newVerdict(r.suite, dir, r.revision)
			v.direct, v.way = direct, way
			verdicts = append(verdicts, v)
		}
	}
	for i := range verdicts {
		v, r := &verdicts[i], serverRuns[i/2]
		target := open(v.way, r.stateless)
		running.Go(func() { v.took[1] = serve(t, v.suite, v.through, target, r.args) })
	}
	running.Wait()
	for i := range verdicts {
		verdicts[i].took[0] = took[i/2]
		verdicts[i].judge(t, serverRuns[i/2].least)
	}
	return verdicts
}

// declared are the declarations of the reference server, by name.
func declared(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{onStdio: declare(filepath.Join(dir, "bin", "everything-server"), nil, "")}
	for _, stateless := range []bool{false, true} {
		all[declarationOf(remotely, stateless)] = fmt.Sprintf(
			"server {\n  transport = \"stream-http\"\n  url = %s\n}\n%s%s", quote(reference(t, dir, stateless)+"/"), asksAll, trust.Honest)
	}
	return all
}

func declarationOf(way string, stateless bool) string {
	if way == remotely && stateless {
		return "stateless"
	}
	return way
}

// serve puts a server through the suite.
func serve(t testing.TB, by suite, into results, target string, runs [][]string) time.Duration {
	t.Helper()
	return timed(t, func() (err error) {
		for _, args := range runs {
			_, e := by.run(t.Context(), into, "server", nil, append(args, "--url", target)...)
			err = errors.Join(err, e)
		}
		return err
	})
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
		c := exec.Command(filepath.Join(dir, "bin", "everything-server"), "-http", address,
			fmt.Sprintf("-stateless=%v", stateless))
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

// behindPfar brings declarations up, and returns what opens a front to one of them.
func behindPfar(t testing.TB, declarations map[string]string) (open func(name string) (target string)) {
	t.Helper()
	bin, _ := both(t)
	p, err := up(bin, declarations)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.log())
		}
		if err := p.down(); err != nil {
			t.Error(err)
		}
	})
	return func(name string) string {
		target, f, err := before(p, name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.close)
		return target
	}
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
