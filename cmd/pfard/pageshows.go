package main

import (
	"cmp"
	"strings"

	"github.com/pfar/pfar/cmd/pfard/setups"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/units/page"
)

// shows returns the page of an order: the server, the client that asks for it, and the files, hosts and secrets of its
// declaration. A person needs these to decide.
func (f *flows) shows(o setups.Order) (page.Task, error) {
	t := page.Task{Title: o.Flow.Server, Server: o.Flow.Server, Program: o.Flow.Package}
	if o.Client {
		t.Asker = strings.TrimPrefix(o.Flow.Principal, "client ")
	}
	if s, known := f.services().Find(o.Flow.Service); known {
		t.Title = cmp.Or(s.Title, s.Name)
	}
	text, err := f.text(o)
	if err != nil {
		return t, err
	}
	has, err := f.owned(o.Flow.Server)
	if err != nil {
		return t, err
	}
	s, err := f.read(o.Flow.Server, has, text)
	if err != nil {
		return t, err
	}
	t.Program = cmp.Or(t.Program, strings.Join(append([]string{s.Command}, s.Args...), " "))
	t.Remote = s.URL
	t.Sees, t.Reaches, t.Holds = sees(s), reaches(s), holds(s)
	return t, nil
}

// sees are the files of a server.
func sees(s declaration.Server) (list []string) {
	for _, path := range s.Sandbox.ReadOnly {
		list = append(list, path+", to read")
	}
	for _, path := range s.Sandbox.Writable {
		list = append(list, path+", to read and write")
	}
	if s.Sandbox.State {
		list = append(list, "a directory of its own")
	}
	return list
}

// reaches are the hosts of a server.
func reaches(s declaration.Server) (list []string) {
	for _, e := range s.Allowed {
		list = append(list, e.String())
	}
	return list
}

// holds are the secrets of a server.
func holds(s declaration.Server) (list []string) {
	for _, c := range s.Credentials {
		how := c.Env
		if c.Deliver == broker.OnWire {
			var hosts []string
			for _, e := range c.Hosts {
				hosts = append(hosts, e.Host)
			}
			how += ": a placeholder. pfar sends the value to " + strings.Join(hosts, ", ") + " in its place"
		}
		list = append(list, how)
	}
	return list
}
