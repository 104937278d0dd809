package local

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pfar/pfar/units/sandbox"
	"github.com/pfar/pfar/units/systemd"
)

// UnitScopes is the Limiter for servers that are units: pfar-mcp-NAME.scope lies beside pfar-mcp@NAME.service and ends
// with it. It keeps nothing of its own, so that a pfard that was started again goes on where the last one was.
type UnitScopes struct {
	kernel  kernel
	link    *systemd.Link
	service func(name string) string
}

// NewUnitScopes returns the Limiter. service is the unit of an instance.
func NewUnitScopes(link *systemd.Link, service func(name string) string) *UnitScopes {
	return &UnitScopes{newKernel(), link, service}
}

func (u *UnitScopes) scope(name string, pid int, l sandbox.Limits) systemd.Scope {
	return systemd.Scope{
		Name: scopePrefix + name + ".scope", Description: "MCP server " + name + " in its sandbox", PID: pid,
		Memory: uint64(l.Memory), Tasks: uint64(l.Tasks), CPU: l.CPU, Slice: systemd.Slice, Service: u.service(name),
	}
}

// ask has systemd answer a question, whatever befalls it or the bus meanwhile.
func (u *UnitScopes) ask(ctx context.Context, question func(context.Context, *systemd.Bus) error) error {
	ctx, cancel := context.WithTimeout(ctx, busWait)
	defer cancel()
	return u.link.Persist(ctx, question, func(error) {})
}

// Place implements Limiter. What is left of an earlier scope of that name goes first. An error that is not
// systemd.Answered is no fault of the server's.
func (u *UnitScopes) Place(ctx context.Context, name string, pid int, l sandbox.Limits) (how string, err error) {
	if err = checkPlace(u.kernel, name, pid, l); err != nil {
		err = systemd.Final(err)
	} else {
		err = u.ask(ctx, func(ctx context.Context, bus *systemd.Bus) (err error) {
			want, lowered, err := u.within(ctx, bus, u.scope(name, pid, l))
			if err == nil {
				how, err = u.place(ctx, bus, want)
				how += lowered
			}
			return err
		})
	}
	if err != nil {
		return "", fmt.Errorf("placing %q: %w", name, err)
	}
	return how, nil
}

// within returns the scope under what the unit of its launcher says too, and in words what of that is stricter.
func (u *UnitScopes) within(ctx context.Context, bus *systemd.Bus, want systemd.Scope) (systemd.Scope, string, error) {
	r, err := bus.Resources(ctx, want.Service)
	if err != nil {
		return want, "", err
	}
	want, lowered := want.Within(r)
	if len(lowered) == 0 {
		return want, "", nil
	}
	return want, fmt.Sprintf("; %s by %s, not the declaration", strings.Join(lowered, " and "), want.Service), nil
}

// limitsOf are those of a scope.
func limitsOf(s systemd.Scope) sandbox.Limits {
	return sandbox.Limits{Memory: int64(s.Memory), Tasks: int(s.Tasks), CPU: s.CPU}
}

func (u *UnitScopes) place(ctx context.Context, bus *systemd.Bus, want systemd.Scope) (string, error) {
	l := limitsOf(want)
	path, err := bus.StartScope(ctx, want)
	if errors.Is(err, systemd.ErrExists) {
		path, err = bus.ControlGroup(ctx, want.Name)
		if err != nil {
			return "", err
		}
		if g, err := u.kernel.arrived(want.PID, path); err == nil { // by a try that got no answer
			return describe(l, held(g, l), path), nil
		}
		if err := bus.Stop(ctx, want.Name); err != nil {
			return "", err
		}
		path, err = bus.StartScope(ctx, want)
	}
	if err != nil {
		return "", err
	}
	g, err := u.kernel.arrived(want.PID, path)
	if err != nil {
		return "", systemd.Final(errors.Join(err, bus.Stop(ctx, want.Name)))
	}
	return describe(l, held(g, l), path), nil
}

// Relimit implements systemd.Limits.
func (u *UnitScopes) Relimit(ctx context.Context, bus *systemd.Bus, name string, l sandbox.Limits) (how string, err error) {
	ctx, cancel := context.WithTimeout(ctx, busWait)
	defer cancel()
	want, lowered, err := u.within(ctx, bus, u.scope(name, 0, l))
	if err != nil {
		return "", err
	}
	if err := bus.SetLimits(ctx, want); err != nil {
		return "", err
	}
	path, err := bus.ControlGroup(ctx, want.Name)
	if err != nil {
		return "", err
	}
	if path == "" {
		return "", systemd.Final(fmt.Errorf("%q has ended", want.Name))
	}
	g, err := u.kernel.group(path)
	if err != nil {
		return "", systemd.Final(err)
	}
	l = limitsOf(want)
	return describe(l, held(g, l), path) + lowered, nil
}

// OOMKilled implements Limiter. The kernel knows while there is a group, systemd afterwards.
func (u *UnitScopes) OOMKilled(name string) (yes bool) {
	unit := u.scope(name, 0, sandbox.Limits{}).Name
	err := u.ask(context.Background(), func(ctx context.Context, bus *systemd.Bus) error {
		if path, err := bus.ControlGroup(ctx, unit); err == nil && path != "" {
			if g, err := u.kernel.group(path); err == nil {
				if n, err := g.event("memory.events", "oom_kill"); err == nil {
					yes = n > 0
					return nil
				}
			}
		}
		result, err := bus.Result(ctx, unit)
		yes = result == systemd.ResultOOM
		return err
	})
	return err == nil && yes
}

// Remove implements Limiter.
func (u *UnitScopes) Remove(name string) error {
	return u.ask(context.Background(), func(ctx context.Context, bus *systemd.Bus) error {
		return bus.Stop(ctx, u.scope(name, 0, sandbox.Limits{}).Name)
	})
}
