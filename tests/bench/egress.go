package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The limits of bridges.
const (
	limitNew    = 400 * time.Microsecond // a new HTTPS connection above a direct one, p50
	limitTail   = 40 * time.Millisecond  // the same, p99: what a delayed acknowledgement costs
	limitKept   = 100 * time.Microsecond // a request on a connection that is kept, p50
	limitBulk   = 0.8                    // of what the least proxy moves
	limitBridge = 8 << 20                // bytes resident of a bridge that has been used and is idle
	manyConns   = 1000
)

// egressRole makes this program the part that runs in namespaces of its own.
const egressRole = "egress"

const (
	targetAddress = "93.184.215.14" // public, for the bridge refuses all others; in namespaces of the benchmark only
	ourAddress    = "93.184.215.13"
	leastProxy    = "127.0.0.1:3128"
	insideProxy   = "127.0.0.1:9876"
)

// egress measures connections from a sandbox against direct ones and against the least proxy that there can be.
func egress(ctx context.Context, dir, bin string, rounds int) ([]result, error) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "NOT MEASURED as an ordinary user: egress, whose target is in another network namespace")
		return nil, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, "unshare", "--net", "--mount", "--propagation", "private", self, "-rounds", strconv.Itoa(rounds), egressRole, dir, bin)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("measuring egress: %w", err)
	}
	var results []result
	return results, json.Unmarshal(out, &results)
}

// bed is the network in which egress is measured: this namespace, and beyond a veth pair the target's.
type bed struct {
	bin, authority string
	pfar           *pfar
	running        []*exec.Cmd
}

func egressInside(ctx context.Context, args []string, rounds int) error {
	if len(args) != 2 {
		return errors.New("want the directories of the benchmark and of the programs")
	}
	b := &bed{bin: args[1]}
	defer b.close()
	if err := b.make(ctx, args[0]); err != nil {
		return err
	}
	results, err := b.measure(ctx, rounds)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}

func (b *bed) close() {
	if b.pfar != nil {
		b.pfar.down()
	}
	for _, c := range b.running {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}

func (b *bed) make(ctx context.Context, dir string) error {
	certificate := filepath.Join(dir, "target.pem")
	b.authority = filepath.Join(dir, "authority.pem")
	if err := makeCertificate(b.authority, certificate); err != nil {
		return err
	}
	target, err := b.start(syscall.CLONE_NEWNET, "target", "-certificate", certificate)
	if err != nil {
		return err
	}
	resolver := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(resolver, []byte("nameserver "+targetAddress+"\n"), 0o644); err != nil {
		return err
	}
	script := fmt.Sprintf(`set -e
ip link set lo up
ip link add pfar0 type veth peer name pfar1 netns %[1]d
ip addr add %[2]s/24 dev pfar0
ip link set pfar0 up
nsenter --net=/proc/%[1]d/ns/net ip link set lo up
nsenter --net=/proc/%[1]d/ns/net ip addr add %[3]s/24 dev pfar1
nsenter --net=/proc/%[1]d/ns/net ip link set pfar1 up
test -e /etc/resolv.conf || touch /etc/resolv.conf
mount --bind %[4]s "$(readlink -f /etc/resolv.conf)"`, target.Process.Pid, ourAddress, targetAddress, resolver)
	if out, err := exec.CommandContext(ctx, "sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("making the network: %w: %s", err, out)
	}
	if _, err := b.start(0, "proxy", "-listen", leastProxy); err != nil {
		return err
	}
	declared := fmt.Sprintf("allowed_domains = [\"load.example\", \"load.example:7000\"]\nsandbox { read_only = [%q] }", b.authority)
	b.pfar, err = up(ctx, dir, b.bin, map[string]string{"load": declaration([]string{filepath.Join(b.bin, "load"), "server", "-authority", b.authority}, declared)})
	if err != nil {
		return err
	}
	return b.pfar.await(ctx, allRunning(1))
}

// start starts a role of load and waits until it is ready.
func (b *bed) start(unshare uintptr, args ...string) (*exec.Cmd, error) {
	c := exec.Command(filepath.Join(b.bin, "load"), args...)
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unshare, Pdeathsig: unix.SIGKILL}
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	b.running = append(b.running, c)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		return nil, fmt.Errorf("load %s says %q: %w", args[0], line, err)
	}
	return c, nil
}

// way is how a client gets to the target.
type way struct {
	name    string
	proxy   string
	sandbox bool
}

func ways() []way {
	return []way{{"direct", "", false}, {"least proxy", leastProxy, false}, {"pfar, redirected", "", true}, {"pfar, CONNECT", insideProxy, true}}
}

// do has a client do a job in one of the ways.
func (b *bed) do(ctx context.Context, w way, kind string, n int) ([]time.Duration, error) {
	job, err := json.Marshal(map[string]any{"kind": kind, "n": n, "proxy": w.proxy})
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, filepath.Join(b.bin, "load"), "client", "-authority", b.authority, "-job", string(job))
	if w.sandbox {
		c = b.pfar.command(ctx, "call", "load.do", "--json", string(job))
	}
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s, %s: %w: %s", kind, w.name, err, stderr.String())
	}
	var took []time.Duration
	if err := json.Unmarshal(stdout.Bytes(), &took); err != nil {
		return nil, fmt.Errorf("%s, %s: %w: %q", kind, w.name, err, stdout.String())
	}
	return took, nil
}

func (b *bed) measure(ctx context.Context, rounds int) ([]result, error) {
	if _, err := b.do(ctx, ways()[2], "new", 1); err != nil {
		return nil, err
	}
	idle, err := b.resident()
	if err != nil {
		return nil, err
	}
	results := []result{{
		What:  "memory of a bridge that has been used and is idle (RSS)",
		Plain: mebibytes(0), In: mebibytes(idle), Added: mebibytes(idle), Limit: mebibytes(limitBridge), Within: idle <= limitBridge, Limited: true,
	}}
	for _, part := range []func(context.Context, int) ([]result, error){b.latencies, b.throughput, b.many} {
		r, err := part(ctx, rounds)
		if err != nil {
			return nil, err
		}
		results = append(results, r...)
	}
	return results, nil
}

// resident is the resident set size of the bridge, in bytes.
func (b *bed) resident() (int, error) {
	for _, pid := range descendants(b.pfar.cmd.Process.Pid) {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if strings.TrimSpace(string(comm)) != "pfar-egress" {
			continue
		}
		return resident(pid)
	}
	return 0, errors.New("no bridge is running")
}

// rounds has every way do the same job in turn, again and again, so that what else the machine does hits all of them.
func (b *bed) rounds(ctx context.Context, kind string, n, rounds int) (map[string][]time.Duration, error) {
	all := map[string][]time.Duration{}
	for round := range rounds + 1 {
		for _, w := range ways() {
			took, err := b.do(ctx, w, kind, n)
			if err != nil {
				return nil, err
			}
			if round > 0 { // the first one fills the caches
				all[w.name] = append(all[w.name], took...)
			}
		}
	}
	return all, nil
}

func (b *bed) latencies(ctx context.Context, rounds int) ([]result, error) {
	var results []result
	for _, m := range []struct {
		kind, what string
		n          int
		limit      time.Duration
	}{
		{"new", "new HTTPS connection and a request", 40, limitNew},
		{"kept", "request on a kept HTTPS connection", 200, limitKept},
	} {
		all, err := b.rounds(ctx, m.kind, m.n, rounds)
		if err != nil {
			return nil, err
		}
		direct := all["direct"]
		for _, w := range ways()[1:] {
			for _, q := range []struct {
				name  string
				of    float64
				limit time.Duration
			}{{"p50", 0.5, m.limit}, {"p99", 0.99, limitTail}} {
				added := quantile(all[w.name], q.of) - quantile(direct, q.of)
				r := result{
					What:  fmt.Sprintf("%s, %s: %s of %d", m.what, w.name, q.name, len(all[w.name])),
					Plain: microseconds(quantile(direct, q.of)), In: microseconds(quantile(all[w.name], q.of)), Added: microseconds(added),
				}
				if w.sandbox {
					r.Limit, r.Within, r.Limited = microseconds(q.limit), added <= q.limit, true
				}
				results = append(results, r)
			}
		}
	}
	return results, nil
}

func (b *bed) throughput(ctx context.Context, rounds int) ([]result, error) {
	var results []result
	for _, m := range []struct {
		kind, what string
		bytes      int
	}{{"bulk", "download over HTTPS", 64 << 20}, {"plain", "download over a declared port, without TLS", 512 << 20}} {
		all, err := b.rounds(ctx, m.kind, m.bytes, min(rounds, 7))
		if err != nil {
			return nil, err
		}
		least := quantile(all["least proxy"], 0.5)
		for _, w := range ways() {
			took := quantile(all[w.name], 0.5)
			ratio := float64(least) / float64(took)
			r := result{
				What:  fmt.Sprintf("%s, %s (plain: least proxy)", m.what, w.name),
				Plain: rate(m.bytes, least), In: rate(m.bytes, took), Added: fmt.Sprintf("x %.2f", ratio),
			}
			if w.sandbox {
				r.Limit, r.Within, r.Limited = fmt.Sprintf("x %.2f", limitBulk), ratio >= limitBulk, true
			}
			results = append(results, r)
		}
	}
	return results, nil
}

// many opens as many connections as a bridge serves at once; each of them has to be served.
func (b *bed) many(ctx context.Context, _ int) ([]result, error) {
	all, err := b.rounds(ctx, "many", manyConns, 1)
	if err != nil {
		return nil, err
	}
	var results []result
	for _, w := range ways()[1:] {
		results = append(results, result{
			What:  fmt.Sprintf("%d HTTPS connections at once, a request on each, %s", manyConns, w.name),
			Plain: milliseconds(all["direct"][0]), In: milliseconds(all[w.name][0]), Added: milliseconds(all[w.name][0] - all["direct"][0]),
		})
	}
	return results, nil
}

func quantile(list []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(int(float64(len(sorted))*q), len(sorted)-1)]
}

func microseconds(d time.Duration) string {
	return fmt.Sprintf("%.0f µs", float64(d.Nanoseconds())/1000)
}

func rate(bytes int, took time.Duration) string {
	return fmt.Sprintf("%.0f MB/s", float64(bytes)/(1<<20)/took.Seconds())
}
