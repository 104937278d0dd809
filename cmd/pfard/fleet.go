package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/converge"
	"github.com/pfar/pfar/units/local"
	"github.com/pfar/pfar/units/plan"
)

// statusLines shows words in the status lines of units, and has launchers try what is offline.
type statusLines interface {
	notice(server, words string)       // of a server's
	relabelled(instance, label string) // another label of its data
	mistaken(server, words string)     // what is wrong with its file; "": nothing any more
	try(server string)                 // it is offline, and a call wants it
}

// noUnits has no status lines.
type noUnits struct{}

func (noUnits) notice(string, string)     {}
func (noUnits) relabelled(string, string) {}
func (noUnits) mistaken(string, string)   {}
func (noUnits) try(string)                {}

// localUnits has no status lines, but launchers.
type localUnits struct {
	noUnits
	runner *local.Runner
}

// try does not wait: the runner may wait for the loop.
func (l localUnits) try(server string) { go l.runner.Try(server) }

// owner is told what has failed. It does not wait.
type owner interface{ tell(failure) }

// fleet keeps the servers, and brings what runs to what is wanted. It belongs to the loop.
type fleet struct {
	inbox
	log       *slog.Logger
	dirs      control.Dirs
	around    around
	audit     *auditor
	redaction *redaction
	delivery  *delivery
	runner    *converge.Runner
	units     statusLines
	owner     owner                // nil: systemd tells it (OnFailure=)
	homes     interface{ inUse() } // is told that a server with a private home has started; nil: nobody is
	waits     bool                 // what waits for a credential has a unit that runs and says so
	intents   intents              // what the next pfard is to know
	servers   map[string]*server

	// after calls f when a time is over (time.AfterFunc).
	after func(time.Duration, func()) interface{ Stop() bool }
}

// changed takes the runner's updates.
func (f *fleet) changed(u units.Update) {
	u.Detail, u.Refusal = f.redaction.clean(u.Detail), u.Refusal.Clean(f.redaction.clean)
	f.post(func() {
		switch s := f.servers[u.Server]; {
		case s == nil:
			if u.Outside && !u.Ended { // it was started as it was removed
				f.runner.Stray(units.Instance(u.Server, u.Session))
			}
			return
		case u.Session != "":
			f.sessionChanged(s, u)
		case u.Outside:
			f.turnedOutside(s, u)
		default:
			before := s.status.State
			f.take(s, u)
			s.renewRefused(f.delivery)
			f.failed(s, before)
			f.retryCrashed(s)
			f.retryWaiting(s)
		}
		f.around.tell()
	})
}

// forget gives up a server that has no declaration, and of which nothing is left.
func (f *fleet) forget(server string) {
	f.intents.forget(server)
	f.delivery.stood.forget(server)
	delete(f.servers, server)
	f.around.forgotten()
}

// want takes what a declaration has become. A new or changed file is the owner's word: it starts also what was stopped
// or had failed. Another plan by the same file is the host's: an update of a program of the server's, or of pfar.
func (f *fleet) want(name string, p plan.Plan, word string) {
	s := f.servers[name]
	if s == nil {
		s = newServer(name, f.runner.Of(name))
		s.off = f.disabled(name)
		f.servers[name] = s
	}
	if s.want == nil || s.word != word {
		s.run, s.asleep = p.Enabled && p.Autostart, p.Enabled && !p.Autostart
		s.retries.anew()
	}
	s.want, s.word = &p, word
	f.compareScopes(s)
}

// keepApart puts the packages of servers in doubt whose programs other servers may write to: those that are wanted, and
// those whose last good version stays.
func keepApart(servers map[string]*server, wanted map[string]plan.Plan) {
	all := maps.Clone(wanted)
	for name, s := range servers {
		if _, ok := all[name]; !ok && s.want != nil {
			all[name] = *s.want
		}
	}
	for name, p := range all {
		p = generator.Apart(p, maps.Values(all))
		if _, ok := wanted[name]; ok {
			wanted[name] = p
		} else {
			servers[name].want = &p
		}
	}
}

// disabled reports whether the operator has disabled a server. If that cannot be known, it has been.
func (f *fleet) disabled(name string) bool {
	_, err := os.Lstat(f.dirs.Disabled(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.log.Error("looking whether a server is disabled", "server", name, "error", err)
	}
	return !errors.Is(err, fs.ErrNotExist)
}

// lives is what is recorded of the servers.
func (f *fleet) lives() map[string]life {
	all := make(map[string]life, len(f.servers))
	for name, s := range f.servers {
		l := life{state: string(s.status.State), detail: s.status.Detail}
		if s.want != nil {
			l.word, l.file = s.word, s.want.File
			if s.want.Insecure != "" {
				l.insecure = unencrypted(*s.want)
				l.detail = strings.TrimPrefix(l.detail+"; "+l.insecure, "; ")
			}
		}
		all[name] = l
	}
	return all
}

// startable finds a server. One that may not be started comes with the error that says so.
func (f *fleet) startable(name string) (*server, error) {
	s := f.servers[name]
	if s == nil || s.want == nil {
		return nil, fmt.Errorf("%w: %q", control.ErrNoServer, name)
	}
	if s.off {
		return s, fmt.Errorf("%w: %q", control.ErrOff, name)
	}
	if !s.want.Enabled {
		return s, fmt.Errorf("%w: %q has enabled = false in %s", control.ErrDisabled, name, s.want.File)
	}
	return s, nil
}
