package conformance

import (
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

// TestServer judges the reference server, and the same one behind pfar.
func TestServer(t *testing.T) {
	_, dir := both(t)
	verdicts := make([]verdict, len(serverRuns))
	t.Run("runs", func(t *testing.T) {
		for i, r := range serverRuns {
			v := &verdicts[i]
			*v = verdict{name: r.suite + " " + r.revision, direct: results{}, through: results{}}
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				s := suite{r.suite, dir}
				v.took[0] = timed(func() {
					target := reference(t, dir, r.stateless)
					for _, args := range r.args {
						s.run(t, v.direct, "server", nil, append(args, "--url", target)...)
					}
				})
				v.took[1] = timed(func() {
					target := behindPfar(t, "reference")
					for _, args := range r.args {
						s.run(t, v.through, "server", nil, append(args, "--url", target)...)
					}
				})
				v.judge(t, r.least)
			})
		}
	})
	for _, name := range []string{"conformance-stable", "conformance-alpha"} {
		judged := results{}
		for i, r := range serverRuns {
			for scenario := range verdicts[i].through {
				if r.suite == name {
					judged[scenario] = nil
				}
			}
		}
		suite{name, dir}.wantAll(t, "server", judged, func(string) bool { return false })
	}
	table("server scenarios", verdicts)
}

// TestGenerationsTogether puts one pfar and one declaration through all revisions at the same time: clients of both
// generations side by side must not notice each other.
func TestGenerationsTogether(t *testing.T) {
	_, dir := both(t)
	target := behindPfar(t, "reference")
	verdicts := make([]verdict, len(serverRuns))
	t.Run("runs", func(t *testing.T) {
		for i, r := range serverRuns {
			v := &verdicts[i]
			*v = verdict{name: r.suite + " " + r.revision, direct: results{}, through: results{}}
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				s := suite{r.suite, dir}
				v.took[1] = timed(func() { s.run(t, v.through, "server", nil, append(r.args[0], "--url", target)...) })
				v.took[0] = timed(func() {
					s.run(t, v.direct, "server", nil, append(r.args[0], "--url", reference(t, dir, r.stateless))...)
				})
				v.judge(t, r.least-len(r.args)+1) // each further run passes one check
			})
		}
	})
	table("server scenarios, all at once on one pfar", verdicts)
}

func timed(f func()) time.Duration {
	begin := time.Now()
	f()
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
