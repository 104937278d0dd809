package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/pfar/pfar/generator/sandbox"
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

// Place implements Limiter. What is left of an earlier scope of that name goes first.
func (u *UnitScopes) Place(ctx context.Context, name string, pid int, l sandbox.Limits) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, busWait)
	defer cancel()
	how, err := u.place(ctx, name, pid, l)
	if err != nil {
		return "", fmt.Errorf("placing %q: %w", name, err)
	}
	return how, nil
}

func (u *UnitScopes) place(ctx context.Context, name string, pid int, l sandbox.Limits) (string, error) {
	if err := checkPlace(u.kernel, name, pid, l); err != nil {
		return "", err
	}
	bus, err := u.link.Bus(ctx)
	if err != nil {
		return "", err
	}
	want := u.scope(name, pid, l)
	path, err := bus.StartScope(ctx, want)
	if errors.Is(err, systemd.ErrExists) {
		if err := bus.Stop(ctx, want.Name); err != nil {
			return "", err
		}
		path, err = bus.StartScope(ctx, want)
	}
	if err != nil {
		return "", err
	}
	g, err := u.kernel.arrived(pid, path)
	if err != nil {
		return "", errors.Join(err, bus.Stop(ctx, want.Name))
	}
	return describe(l, held(g, l), path), nil
}

// Relimit holds what runs to other limits.
func (u *UnitScopes) Relimit(ctx context.Context, name string, l sandbox.Limits) (how string, err error) {
	ctx, cancel := context.WithTimeout(ctx, busWait)
	defer cancel()
	bus, err := u.link.Bus(ctx)
	if err != nil {
		return "", err
	}
	want := u.scope(name, 0, l)
	if err := bus.SetLimits(ctx, want); err != nil {
		return "", err
	}
	path, err := bus.ControlGroup(ctx, want.Name)
	if err != nil {
		return "", err
	}
	g, err := u.kernel.group(path)
	if err != nil {
		return "", err
	}
	return describe(l, held(g, l), path), nil
}

// OOMKilled implements Limiter. The kernel knows while there is a group, systemd afterwards.
func (u *UnitScopes) OOMKilled(name string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), busWait)
	defer cancel()
	bus, err := u.link.Bus(ctx)
	if err != nil {
		return false
	}
	unit := u.scope(name, 0, sandbox.Limits{}).Name
	if path, err := bus.ControlGroup(ctx, unit); err == nil && path != "" {
		if g, err := u.kernel.group(path); err == nil {
			if n, err := g.event("memory.events", "oom_kill"); err == nil {
				return n > 0
			}
		}
	}
	result, err := bus.Result(ctx, unit)
	return err == nil && result == systemd.ResultOOM
}

// Remove implements Limiter.
func (u *UnitScopes) Remove(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), busWait)
	defer cancel()
	bus, err := u.link.Bus(ctx)
	if err != nil {
		return err
	}
	return bus.Stop(ctx, u.scope(name, 0, sandbox.Limits{}).Name)
}
