package systemd

import (
	"context"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
)

// Process is the main process of an instance unit.
type Process struct {
	Instance string
	Bridge   bool // of the egress bridge; of the launcher otherwise
	PID      int
}

// Identify finds out which instance's process pid is: the kernel says which unit it is in, and systemd that it is the
// unit's main one. A server that could reach whoever asks is in another cgroup, and not the main process of anything.
func Identify(ctx context.Context, bus *Bus, pid int) (Process, error) {
	unit, err := unitOf(pid)
	if err != nil {
		return Process{}, err
	}
	p := Process{PID: pid}
	var ok bool
	if p.Instance, ok = InstanceOf(unit); !ok {
		if p.Instance, ok = bridgeOf(unit); !ok {
			return Process{}, fmt.Errorf("process %d is in %q, no unit of a server's", pid, unit)
		}
		p.Bridge = true
	}
	main, err := bus.MainPID(ctx, unit)
	if err != nil {
		return Process{}, err
	}
	if main != pid {
		return Process{}, fmt.Errorf("process %d is not the main process of %q", pid, unit)
	}
	return p, nil
}

// unitOf returns the last element of a process's cgroup, which systemd names as the unit.
func unitOf(pid int) (string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", err
	}
	return unitIn(string(text))
}

// unitIn reads cgroups(7), "/proc/[pid]/cgroup". On a hybrid host systemd's own hierarchy is a named one.
func unitIn(text string) (string, error) {
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		if controllers, group, ok := strings.Cut(rest, ":"); ok && (controllers == "" || controllers == "name=systemd") {
			return path.Base(group), nil
		}
	}
	return "", fmt.Errorf("reading a cgroup: no hierarchy of systemd's in %q", text)
}

// bridgeOf returns the instance whose bridge a unit is.
func bridgeOf(unit string) (string, bool) {
	rest, ok := strings.CutPrefix(unit, bridge)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, service)
}

// Endpoint returns the TCP address on which the gateway's socket unit listens, "" if it has none.
func (b *Bus) Endpoint(ctx context.Context) (string, error) {
	p, err := b.conn.GetUnitTypePropertyContext(ctx, "pfar-gateway.socket", "Socket", "Listen")
	if err != nil {
		return "", fmt.Errorf("asking where the gateway listens: %w", err)
	}
	list, _ := p.Value.Value().([][]any)
	for _, l := range list {
		kind, _ := l[0].(string)
		if address, ok := l[1].(string); ok && kind == "Stream" && !strings.HasPrefix(address, "/") {
			return address, nil
		}
	}
	return "", nil
}
