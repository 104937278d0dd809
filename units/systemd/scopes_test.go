package systemd_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/local"
	"github.com/pfar/pfar/units/sandbox"
	"github.com/pfar/pfar/units/systemd"
)

// ownCgroup is the cgroup of this process, and of those that it starts.
func ownCgroup(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path
		}
	}
	t.Fatalf("no control groups of version 2, which the test takes: %s", text)
	return ""
}

// child is a process that waits.
func child(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// TestPlace: only what systemd has answered, or this side refuses, is an answer. Otherwise it is asked again, and what
// a try that got no answer has begun is not ended by the next one: the server is in it.
func TestPlace(t *testing.T) {
	const scope = "pfar-mcp-hello.scope"
	good := sandbox.Limits{Memory: 1 << 28, Tasks: 10}
	for name, c := range map[string]struct {
		prepare func(f systemd.Fake, l *systemd.Link)
		within  time.Duration // 0: as long as it takes
		limits  sandbox.Limits
		cgroup  string // of the scope; "": where the process is
		want    string // in the error
		final   bool
		stopped []string
	}{
		"placed":             {limits: good},
		"dies before":        {prepare: func(f systemd.Fake, _ *systemd.Link) { f.Dies("start") }, limits: good},
		"dies at the job":    {prepare: func(f systemd.Fake, _ *systemd.Link) { f.Dies("job") }, limits: good},
		"dies before it":     {prepare: func(f systemd.Fake, _ *systemd.Link) { f.Dies("end") }, limits: good},
		"an earlier one's":   {prepare: func(f systemd.Fake, _ *systemd.Link) { f.Take(scope) }, limits: good, stopped: []string{scope}},
		"no limits":          {limits: sandbox.Limits{Tasks: 10}, want: "both must be set", final: true},
		"systemd fails":      {prepare: func(f systemd.Fake, _ *systemd.Link) { f.Ends("failed") }, limits: good, want: `ended with "failed"`, final: true},
		"is not moved":       {cgroup: "/elsewhere", limits: good, want: `want "/elsewhere"`, final: true, stopped: []string{scope}},
		"pfard ends":         {prepare: func(_ systemd.Fake, l *systemd.Link) { l.Close() }, limits: good, want: "pfard is ending"},
		"does not end a job": {prepare: func(f systemd.Fake, _ *systemd.Link) { f.Ends("") }, within: 5 * time.Second, limits: good, want: "waiting for systemd's job"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.cgroup == "" {
				c.cgroup = ownCgroup(t)
			}
			f := systemd.NewFake(t, c.cgroup)
			link := systemd.NewLink(func(ctx context.Context) (*systemd.Bus, error) { return systemd.ConnectTo(ctx, f.Address()) })
			defer link.Close()
			if c.prepare != nil {
				c.prepare(f, link)
			}
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(c.within, time.Minute))
			defer cancel()
			how, err := local.NewUnitScopes(link, systemd.LauncherUnit).Place(ctx, "hello", child(t), c.limits)
			switch {
			case c.want == "" && (err != nil || !strings.Contains(how, "(cgroup "+c.cgroup+")")):
				t.Errorf("held %q, %v", how, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || systemd.Answered(err) != c.final):
				t.Errorf("%v, want %q; final: %t", err, c.want, systemd.Answered(err))
			}
			if got := f.Stopped(); !slices.Equal(got, c.stopped) {
				t.Errorf("stopped %q, want %q", got, c.stopped)
			}
		})
	}
}

// TestPlaceWithoutSystemd: nobody is there for a while.
func TestPlaceWithoutSystemd(t *testing.T) {
	t.Parallel()
	f := systemd.NewFake(t, ownCgroup(t))
	tries := 0
	link := systemd.NewLink(func(ctx context.Context) (*systemd.Bus, error) {
		if tries++; tries < 4 {
			return nil, errors.New("connection refused")
		}
		return systemd.ConnectTo(ctx, f.Address())
	})
	defer link.Close()
	scopes := local.NewUnitScopes(link, systemd.LauncherUnit)
	if _, err := scopes.Place(t.Context(), "hello", child(t), sandbox.Limits{Memory: 1 << 28, Tasks: 10}); err != nil || tries != 4 {
		t.Errorf("%v, after %d tries", err, tries)
	}
}

// TestDropIns: what an administrator says of the launcher's unit holds for its server, in whose scope the stricter of
// two limits holds, and again for one that runs when that has changed.
func TestDropIns(t *testing.T) {
	const scope, service = "pfar-mcp-hello.scope", "pfar-mcp@hello.service"
	f := systemd.NewFake(t, ownCgroup(t))
	link := systemd.NewLink(func(ctx context.Context) (*systemd.Bus, error) { return systemd.ConnectTo(ctx, f.Address()) })
	defer link.Close()
	expect := func(want map[string]string) {
		t.Helper()
		for name, value := range want {
			if got := f.Property(scope, name); got != value {
				t.Errorf("%s is %s, want %s", name, got, value)
			}
		}
	}
	type device struct {
		Path  string
		Value uint64
	}
	const none = math.MaxUint64
	f.Service(service, map[string]any{
		"MemoryMax": uint64(1 << 27), "TasksMax": uint64(4000), "CPUQuotaPerSecUSec": uint64(200_000), "MemoryHigh": uint64(1 << 26),
		"CPUWeight": uint64(none), "AllowedCPUs": []byte{1}, "IOReadBandwidthMax": []device{{"/dev/sda", 1 << 20}}, "IOWriteBandwidthMax": []device{},
		"Slice": "guests.slice",
	})
	scopes := local.NewUnitScopes(link, systemd.LauncherUnit)
	limits := sandbox.Limits{Memory: 1 << 28, Tasks: 10, CPU: 50}
	how, err := scopes.Place(t.Context(), "hello", child(t), limits)
	if err != nil || !strings.Contains(how, "MemoryMax= and CPUQuota= by "+service+", not the declaration") {
		t.Errorf("held %q, %v", how, err)
	}
	expect(map[string]string{
		"MemoryMax": "@t 134217728", "TasksMax": "@t 10", "CPUQuotaPerSecUSec": "@t 200000", "MemoryHigh": "@t 67108864", "CPUWeight": "",
		"AllowedCPUs": "@ay [0x1]", "IOReadBandwidthMax": `@a(st) [("/dev/sda", 1048576,)]`, "IOWriteBandwidthMax": "", "Slice": `"guests.slice"`,
	})

	bus, err := systemd.ConnectTo(t.Context(), f.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	f.Service(service, map[string]any{"MemoryMax": uint64(none), "TasksMax": uint64(5), "MemoryHigh": uint64(none), "AllowedCPUs": []byte{}})
	if how, err = scopes.Relimit(t.Context(), bus, "hello", limits); err != nil || !strings.Contains(how, "; TasksMax= by "+service) {
		t.Errorf("held %q, %v", how, err)
	}
	expect(map[string]string{
		"MemoryMax": "@t 268435456", "TasksMax": "@t 5", "CPUQuotaPerSecUSec": "@t 500000", "MemoryHigh": "@t 18446744073709551615", "AllowedCPUs": "@ay []",
	})
	changes := f.Changes()
	if _, err = scopes.Relimit(t.Context(), bus, "hello", limits); err != nil || f.Changes() != changes {
		t.Errorf("nothing was to be changed: %v, %d changes", err, f.Changes()-changes)
	}
}
