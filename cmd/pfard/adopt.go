package main

import (
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/systemd"
)

// adopt begins with what systemd runs, and with what is known of what it does not.
func (f *fleet) adopt(found []systemd.Found) {
	for _, x := range found {
		if x.Plan.Gateway.Session != "" {
			continue
		}
		if s := f.recall(x); s != nil {
			f.servers[s.name] = s
		} else {
			f.runner.Forget(x.Plan.Name)
		}
	}
	for _, x := range found {
		f.adoptSession(x)
	}
	for _, name := range f.intents.servers() {
		if f.servers[name] == nil {
			f.intents.forget(name)
			f.delivery.stood.forget(name)
		}
	}
}

// recall makes a server what the last pfard left it as, and what others have made of it since: one that it had started
// has been stopped, or the other way round. It returns nil if it had begun to make something else of it.
func (f *fleet) recall(x systemd.Found) *server {
	p := x.Plan
	want := p
	want.Egress.Learn = false // whoever learned has lost the connection
	i, ok := f.intents.read(p.Name)
	s := newServer(p.Name, f.runner.Of(p.Name))
	s.off = f.disabled(p.Name)
	s.want, s.word, s.asleep, s.before = &want, i.Word, ok && i.Asleep && !x.Outside, i.stay
	switch {
	case x.Idle && !ok:
		return nil
	case x.Idle:
		s.run = i.Run && x.Applied == "" // or it has been stopped since by somebody else
	default:
		s.has.Found(&p)
		s.run, s.given, s.again = !ok || i.Run || x.Outside, i.Given, x.Half
		if i.Renew {
			s.renew = renewalDue
		}
		f.take(s, x.Update)
	}
	return s
}

func (f *fleet) adoptSession(x systemd.Found) {
	handle := x.Plan.Gateway.Session
	if handle == "" {
		return
	}
	s := f.servers[x.Plan.Name]
	if s == nil || s.has.Started == nil {
		f.runner.Stray(units.Instance(x.Plan.Name, handle))
		return
	}
	e := newSession(handle)
	e.begin(nil)
	s.sessions[handle] = e
	s.has.FoundSession(handle)
	e.set(control.State(x.Update.State))
	e.served = e.status.State == control.Running
	if x.Update.Ended {
		e.close()
	}
}
