package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/processes"
)

// usage is what a server costs now, for everybody with a console: they may run pfar top and pfar egress as well.
func (s shown) usage(server string) (string, error) {
	one, err := s.reported(func(c control.Server) bool { return c.Name == server })
	if err != nil {
		return "", fmt.Errorf("%w: %q", err, server)
	}
	now, err := usageOf(one, processes.Proc)
	if err != nil {
		return "", err
	}
	return inJSON(now)
}

// reported returns a server as pfard reports it.
func (s shown) reported(is func(control.Server) bool) (one control.Server, err error) {
	err = s.do(func() error {
		all := s.report().Servers
		i := slices.IndexFunc(all, is)
		if i < 0 {
			return control.ErrNoServer
		}
		one = all[i]
		return nil
	})
	return one, err
}

// usageOf measures a server in a directory like /proc.
func usageOf(one control.Server, proc string) (attach.Usage, error) {
	now := attach.Usage{At: time.Now(), Bridges: instancesOf(one)}
	if over := len(now.Bridges) - attach.MaxBridges; over > 0 {
		now.Bridges, now.More = now.Bridges[:attach.MaxBridges], over
	}
	if len(now.Bridges) == 0 { // it stands still
		return now, nil
	}
	table, err := processes.Read(proc)
	if err != nil {
		return now, err
	}
	if cost := table.Below(one.Launchers()); cost.Count > 0 {
		now.Cost = &cost
	}
	return now, nil
}

// instancesOf are the processes of a server that are up: its own, and those for one session each.
func instancesOf(one control.Server) (list []string) {
	if one.State.Up() {
		list = append(list, one.Name)
	}
	for _, session := range one.Sessions {
		if session.State.Up() {
			list = append(list, units.Instance(one.Name, session.Handle))
		}
	}
	return list
}

// bridge connects to the bridge of an instance, for a console that reads what it says: pfard reads none of that.
func (s shown) bridge(ctx context.Context, instance string) (*os.File, error) {
	_, err := s.reported(func(c control.Server) bool { return slices.Contains(instancesOf(c), instance) })
	if err != nil {
		return nil, fmt.Errorf("%w: %q", err, instance)
	}
	conn, err := control.Dial(ctx, s.options.dirs.Egress(instance))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.File()
}
