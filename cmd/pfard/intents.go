package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/pfar/pfar/cmd/pfard/control"
	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/systemd"
)

// intents are what is to become of each server, for a pfard that is started again while the servers stay: files in a
// directory that does not outlive the machine's run, so that what somebody stopped starts with the machine. The zero
// value keeps none: without systemd nothing outlives pfard.
type intents struct {
	dir     string
	log     *slog.Logger
	written map[string]intent
	applied map[string]string // by server, the digest of the plan that the last pfard had started and not stopped
}

// intent is one server's.
type intent struct {
	Digest string `json:"digest"` // of the declaration's plan
	Run    bool   `json:"run"`
}

func newIntents(dir string, log *slog.Logger) (intents, error) {
	return intents{dir: dir, log: log, written: map[string]intent{}}, os.MkdirAll(dir, 0o700)
}

func (n intents) file(server string) string { return filepath.Join(n.dir, server+".json") }

// keep writes down what is to become of a server, before anything is done about it.
func (n intents) keep(s *server) {
	if n.dir == "" || s.want == nil {
		return
	}
	now := intent{generator.Digest(*s.want), s.run}
	if n.written[s.name] == now {
		return
	}
	text, err := json.Marshal(now)
	if err == nil {
		err = systemd.Replace(n.file(s.name), text)
	}
	if err != nil {
		n.log.Warn("remembering whether a server is to run, ignoring", "server", s.name, "error", err)
		return
	}
	n.written[s.name] = now
}

func (n intents) forget(server string) {
	if n.dir == "" {
		return
	}
	delete(n.written, server)
	if err := os.Remove(n.file(server)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.log.Warn("forgetting a server, ignoring", "server", server, "error", err)
	}
}

func (n intents) read(server string) (i intent, ok bool) {
	text, err := os.ReadFile(n.file(server))
	if n.dir == "" || err != nil {
		return i, false
	}
	return i, json.Unmarshal(text, &i) == nil
}

// recall makes a server that does not run what the last pfard left it as, if its declaration is still the same. One that
// was to run and had been started has been stopped by somebody else since.
func (d *daemon) recall(s *server, p generator.Plan) {
	if i, ok := d.intents.read(s.name); ok && i.Digest == generator.Digest(p) {
		s.want, s.run = &p, i.Run && d.intents.applied[s.name] != i.Digest
	}
}

// adopt begins with what systemd runs.
func (d *daemon) adopt(found []systemd.Found, applied map[string]string) {
	d.intents.applied = applied
	for _, f := range found {
		p := f.Plan
		if p.Gateway.Session != "" {
			continue
		}
		want := p
		want.Egress.Learn = false // whoever learned has lost the connection
		s := newServer(p.Name)
		s.want, s.started, s.run, s.off = &want, &p, true, d.disabled(p.Name)
		if i, ok := d.intents.read(p.Name); ok && i.Digest == generator.Digest(want) {
			s.run = i.Run
		}
		s.take(f.Update)
		d.servers[p.Name] = s
	}
	for _, f := range found {
		d.adoptSession(f)
	}
}

func (d *daemon) adoptSession(f systemd.Found) {
	handle := f.Plan.Gateway.Session
	if handle == "" {
		return
	}
	s := d.servers[f.Plan.Name]
	if s == nil || s.started == nil {
		go d.runner.Stop(units.Instance(f.Plan.Name, handle))
		return
	}
	e := newSession(handle)
	e.begin(nil)
	s.sessions[handle] = e
	e.set(control.State(f.Update.State))
	if f.Update.Ended {
		d.endSession(s, e)
	}
}
