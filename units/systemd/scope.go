package systemd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// Scope is a transient scope: a unit around processes that somebody else forked (systemd.scope(5)).
type Scope struct {
	Name        string // "pfar-mcp-notion.scope"; scopes cannot be instances of a template, "@" is refused
	Description string
	PID         int
	Memory      uint64 // MemoryMax= in bytes; 0: none
	Tasks       uint64 // TasksMax=; 0: none
	CPU         int    // CPUQuota= in percent of one core; 0: none
	Slice       string // the unit that it lies in; "": systemd's choice
	Service     string // the unit with which it ends, at once however that ends; "": none

	others []sd.Property // of Service's, which hold for it as they are (Within)
}

// ErrExists is returned for a scope whose name is taken.
var ErrExists = errors.New("a unit of that name exists")

// ResultOOM is the Result of a scope in which the kernel killed for memory.
const ResultOOM = "oom-kill"

// StartScope makes the scope, moves its process in and returns its cgroup as a path from the cgroup root. It has no
// After=: ordered after the unit that waits for it, it would wait forever.
func (b *Bus) StartScope(ctx context.Context, s Scope) (string, error) {
	if !strings.HasSuffix(s.Name, ".scope") || strings.ContainsAny(s.Name, "/@\x00") {
		return "", fmt.Errorf("starting scope %q: not the name of a scope", s.Name)
	}
	err := b.await(ctx, func(done chan<- string) (int, error) {
		return b.conn.StartTransientUnitContext(ctx, s.Name, "fail", s.properties(), done)
	})
	if isError(err, errUnitExists) {
		return "", fmt.Errorf("starting scope %q: %w", s.Name, ErrExists)
	}
	if errors.As(err, new(jobError)) {
		err = Final(err)
	}
	if err != nil {
		return "", fmt.Errorf("starting scope %q: %w", s.Name, err)
	}
	return b.ControlGroup(ctx, s.Name)
}

func (s Scope) properties() []sd.Property {
	list := []sd.Property{
		sd.PropDescription(s.Description),
		sd.PropPids(uint32(s.PID)),
		property("KillSignal", int32(9)), // SIGTERM is lost on a sandbox's pid 1, and a slow stop keeps the name taken
		property("TimeoutStopUSec", uint64(5_000_000)),
		property("MemoryAccounting", true),
		property("TasksAccounting", true),
	}
	if s.Slice != "" {
		list = append(list, sd.PropSlice(s.Slice))
	}
	if s.Service != "" {
		// BindsTo= stops it with the service, also when that fails. Before= has it stopped after the service when both
		// are: the launcher ends the server in order, and nothing is left to kill. (After= would wait for a service that
		// waits for the scope, forever.)
		list = append(list, sd.PropBindsTo(s.Service), sd.PropBefore(s.Service))
	}
	list = append(list, s.limits()...)
	for _, p := range s.others {
		if sets(p) {
			list = append(list, p)
		}
	}
	return list
}

func (s Scope) limits() []sd.Property {
	var list []sd.Property
	if s.Memory > 0 {
		list = append(list, property("MemoryMax", s.Memory), property("MemorySwapMax", uint64(0)))
	}
	if s.Tasks > 0 {
		list = append(list, property("TasksMax", s.Tasks))
	}
	if s.CPU > 0 {
		list = append(list, property("CPUQuotaPerSecUSec", uint64(s.CPU)*10_000))
	}
	return list
}

// SetLimits changes the limits of a scope that runs. A CPU limit that s does not have is lifted.
func (b *Bus) SetLimits(ctx context.Context, s Scope) error {
	list, err := b.changes(ctx, s)
	if err == nil && len(list) > 0 {
		err = b.conn.SetUnitPropertiesContext(ctx, s.Name, true, list...)
	}
	if err != nil {
		return fmt.Errorf("changing the limits of %q: %w", s.Name, err)
	}
	return nil
}

func property(name string, value any) sd.Property {
	return sd.Property{Name: name, Value: dbus.MakeVariant(value)}
}

// ControlGroup returns the cgroup of a scope, "" if it has none (any more).
func (b *Bus) ControlGroup(ctx context.Context, scope string) (string, error) {
	return b.scopeProperty(ctx, scope, "ControlGroup")
}

// Result returns how a scope ended, "success" if systemd does not know it (any more).
func (b *Bus) Result(ctx context.Context, scope string) (string, error) {
	return b.scopeProperty(ctx, scope, "Result")
}

func (b *Bus) scopeProperty(ctx context.Context, scope, name string) (string, error) {
	p, err := b.conn.GetUnitTypePropertyContext(ctx, scope, "Scope", name)
	if err != nil {
		return "", fmt.Errorf("reading %s of %q: %w", name, scope, err)
	}
	text, ok := p.Value.Value().(string)
	if !ok {
		return "", fmt.Errorf("reading %s of %q: it is of type %s, want a string", name, scope, p.Value.Signature())
	}
	return text, nil
}

// Delegated reports whether a cgroup is that of a scope or service with Delegate=yes: its processes may divide it.
func (b *Bus) Delegated(ctx context.Context, cgroup string) (bool, error) {
	unit, kind := path.Base(cgroup), "Scope"
	if strings.HasSuffix(unit, ".service") {
		kind = "Service"
	} else if !strings.HasSuffix(unit, ".scope") {
		return false, nil
	}
	where, err := b.conn.GetUnitTypePropertyContext(ctx, unit, kind, "ControlGroup")
	if err != nil {
		return false, fmt.Errorf("looking for the unit of %q: %w", cgroup, err)
	}
	if where.Value.Value() != cgroup { // another systemd's unit of the same name
		return false, nil
	}
	p, err := b.conn.GetUnitTypePropertyContext(ctx, unit, kind, "Delegate")
	if err != nil {
		return false, fmt.Errorf("reading Delegate of %q: %w", unit, err)
	}
	return p.Value.Value() == true, nil
}

// Stop kills what is left in a scope, waits for its end and forgets it. One that systemd does not know is no error.
func (b *Bus) Stop(ctx context.Context, scope string) error {
	err := b.await(ctx, func(done chan<- string) (int, error) {
		return b.conn.StopUnitContext(ctx, scope, "replace", done)
	})
	if err != nil && !isError(err, errNoSuchUnit) {
		return fmt.Errorf("stopping %q: %w", scope, err)
	}
	// A scope that failed keeps its name until it is reset.
	if err := b.conn.ResetFailedUnitContext(ctx, scope); err != nil && !isError(err, errNoSuchUnit) {
		return fmt.Errorf("resetting %q: %w", scope, err)
	}
	return nil
}

// Unit is a unit that systemd knows.
type Unit struct {
	Name, Description string
}

// Scopes returns the scopes whose names begin with prefix, in whatever state.
func (b *Bus) Scopes(ctx context.Context, prefix string) ([]Unit, error) {
	list, err := b.conn.ListUnitsByPatternsContext(ctx, []string{}, []string{prefix + "*.scope"})
	if err != nil {
		return nil, fmt.Errorf("listing the scopes %q: %w", prefix+"*", err)
	}
	units := make([]Unit, len(list))
	for i, u := range list {
		units[i] = Unit{u.Name, u.Description}
	}
	return units, nil
}
