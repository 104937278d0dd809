package systemd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// shipped opens a bed with the programs as they are shipped, and boots a machine from it.
func shipped(b *testing.B) *bed.Machine {
	b.Helper()
	plain, err := bed.Open(context.Background(), cache+"/plain", install())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { plain.Close() })
	m := plain.Boot(b)
	m.Run(b, "systemctl", "enable", "--now", "--quiet", "pfar.target")
	return m
}

// served waits until the gateway has said that it serves as many more servers as names, and returns when it said so of
// the last.
func served(b *testing.B, m *bed.Machine, names ...string) time.Time {
	b.Helper()
	var last time.Time
	bed.Eventually(b, time.Minute, func() error {
		up := map[string]time.Time{}
		for line := range strings.Lines(m.Journal(b, "pfar-gateway.service", "--output=json")) {
			var e struct {
				Message string `json:"MESSAGE"`
				Server  string `json:"PFAR_SERVER"`
				Time    string `json:"_SOURCE_REALTIME_TIMESTAMP"`
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil || !strings.HasPrefix(e.Message, "server up") {
				continue
			}
			micro, err := strconv.ParseInt(e.Time, 10, 64)
			if err != nil {
				return err
			}
			up[e.Server] = time.UnixMicro(micro)
		}
		for _, name := range names {
			at, ok := up[name]
			if !ok {
				return fmt.Errorf("the gateway does not serve %q", name)
			}
			if at.After(last) {
				last = at
			}
		}
		return nil
	})
	return last
}

// within reports a median in milliseconds, and fails if it is over the limit.
func within(b *testing.B, limit time.Duration, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	p50 := took[len(took)/2]
	b.ReportMetric(float64(p50.Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms-max")
	b.ReportMetric(0, "ns/op")
	b.Logf("p50 %s of %d, max %s; the limit is %s", p50.Round(time.Millisecond), len(took), took[len(took)-1].Round(time.Millisecond), limit)
	if p50 > limit {
		b.Errorf("p50 %s, over the limit of %s", p50, limit)
	}
}

// BenchmarkProgram is a program that a test runs in a machine.
func BenchmarkProgram(b *testing.B) {
	m := machines.Boot(b)
	var took []time.Duration
	for range 20 {
		start := time.Now()
		m.Run(b, "true")
		took = append(took, time.Since(start))
	}
	within(b, 100*time.Millisecond, took)
}

// BenchmarkInstall is from the first command of pfard(8) for a machine that lacks pfar to the answer of the first call,
// without the downloads.
func BenchmarkInstall(b *testing.B) {
	lines := manualBlock(b, exampleDeclared)
	var took []time.Duration
	for range 3 {
		m := bare(b)
		start := time.Now()
		m.Shell(b, typed(lines[:len(lines)-1]))
		bed.Eventually(b, time.Minute, func() error {
			if r := m.Try("pfar", "call", "memory.read_graph"); r.Code != 0 {
				return errors.New(r.String())
			}
			return nil
		})
		took = append(took, time.Since(start))
	}
	within(b, 15*time.Second, took)
}

// BenchmarkDropAFile is from the file's coming to the tools of a server that itself starts in a few milliseconds.
func BenchmarkDropAFile(b *testing.B) {
	m := shipped(b)
	var took []time.Duration
	for i := range 15 {
		name := fmt.Sprintf("hello%d", i)
		m.Shell(b, "cat > /root/new.hcl <<'END'\n"+echo("")+"END")
		start := time.Now()
		m.Run(b, "mv", "/root/new.hcl", "/etc/pfar/mcp.d/"+name+".hcl")
		took = append(took, served(b, m, name).Sub(start))
		time.Sleep(3 * time.Second) // systemd reads its units again, and nothing else is to happen
	}
	within(b, 500*time.Millisecond, took)
}

// BenchmarkNode is from the start of pfar to the tools of so many node servers, with the gateway and pfard starting
// too.
func BenchmarkNode(b *testing.B) {
	for n, limit := range map[int]time.Duration{5: 3 * time.Second, 20: 12 * time.Second} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			m := shipped(b)
			var names []string
			for i := range n {
				name := fmt.Sprintf("node%d", i)
				names = append(names, name)
				m.Put(b, "/etc/pfar/mcp.d/"+name+".hcl", nodeServer, 0o644)
			}
			served(b, m, names...)
			var took []time.Duration
			for range 3 {
				m.Run(b, "systemctl", "stop", "pfar.target")
				bed.Eventually(b, time.Minute, func() error { // which is over when what everything is a part of has ended
					if r := m.Try("systemctl", "is-active", "pfar-base.service"); r.Stdout != "inactive\n" {
						return errors.New(r.String())
					}
					return nil
				})
				m.Shell(b, "journalctl --rotate --quiet && journalctl --vacuum-time=1ms --quiet")
				start := time.Now()
				m.Run(b, "systemctl", "start", "pfar.target")
				took = append(took, served(b, m, names...).Sub(start))
			}
			within(b, limit, took)
		})
	}
}

const nodeServer = `label = "public"
server {
  command = "node"
  args    = ["${servers}/node_modules/@modelcontextprotocol/server-everything/dist/index.js"]
}
`

// BenchmarkIdle is what pfar costs when nothing happens: memory, and how often its processes wake up.
func BenchmarkIdle(b *testing.B) {
	const limit = 40.0 // MB
	m := shipped(b)
	for _, name := range []string{"one", "two", "three"} {
		m.Put(b, "/etc/pfar/mcp.d/"+name+".hcl", echo(""), 0o644)
	}
	served(b, m, "one", "two", "three")
	time.Sleep(40 * time.Second) // for what comes after a start, the garbage collector's part of it too
	var pids []string
	for _, unit := range []string{"pfard", "pfar-gateway", "pfar-mcp@one"} {
		pids = append(pids, strings.TrimSpace(m.Run(b, "systemctl", "show", "--property=MainPID", "--value", unit)))
	}
	count := "cat /proc/" + pids[0] + "/task/*/status /proc/" + pids[1] + "/task/*/status /proc/" + pids[2] + "/task/*/status | awk '/ctxt_switches/ {n += $2} END {print n}'"
	switches := func() (n int) {
		n, err := strconv.Atoi(strings.TrimSpace(m.Shell(b, count)))
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	const watched = 20 * time.Second
	before := switches()
	time.Sleep(watched)
	wakeups := float64(switches()-before) / watched.Seconds()
	var kilobytes int
	for _, pid := range pids[:2] {
		var pss int
		text := m.Shell(b, "grep ^Pss: /proc/"+pid+"/smaps_rollup")
		if _, err := fmt.Sscanf(text, "Pss: %d kB", &pss); err != nil {
			b.Fatalf("%q: %v", text, err)
		}
		kilobytes += pss
	}
	megabytes := float64(kilobytes) / 1024
	b.ReportMetric(megabytes, "MB")
	b.ReportMetric(wakeups, "switches/s")
	b.ReportMetric(0, "ns/op")
	if megabytes > limit {
		b.Errorf("pfard and the gateway take %.1f MB together, over the limit of %.0f", megabytes, limit)
	}
	if wakeups > 0.5 {
		b.Errorf("pfard, the gateway and a launcher switch %.1f times a second with nothing to do", wakeups)
	}
	if s, err := server(m, "one"); err != nil || s.State != control.Running {
		b.Errorf("%+v, %v", s, err)
	}
}
