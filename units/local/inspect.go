package local

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
)

// examiner is an inspector's socket and, when somebody asks, its process: that of pfar-inspect@.service or
// pfar-model@.service.
type examiner struct {
	r       *Runner
	keys    func(inspector.External) units.Secrets
	name    string // of the unit
	plan    plan.Inspection
	raw     []byte // plan as JSON
	user    identity
	asked   *activation
	talks   *service // of a chat: holds the conversation; nil: it is none
	notices *os.File // of a chat: where its process takes notices
	sockets []*os.File
}

func examinerName(inspector string) string { return "pfar-inspect@" + inspector }

// Inspectors runs inspectors, whose processes belong to a Runner.
type Inspectors struct {
	r    *Runner
	keys func(inspector.External) units.Secrets // what inspectors that are models are given
	mu   sync.Mutex                             // held while inspectors change; taken before the Runner's
	of   map[string]*examiner
}

// NewInspectors returns Inspectors that run none.
func NewInspectors(r *Runner, keys func(inspector.External) units.Secrets) *Inspectors {
	return &Inspectors{r: r, keys: keys, of: map[string]*examiner{}}
}

// Inspect has the inspectors of these plans be there, by their sockets, and no others. It returns when it has.
func (i *Inspectors) Inspect(want []plan.Inspection) {
	i.mu.Lock()
	defer i.mu.Unlock()
	plans := map[string][]byte{}
	for _, p := range want {
		raw, err := json.Marshal(p)
		if err != nil {
			i.r.cfg.Log.Error("starting an inspector", "inspector", p.Inspector.Name, "error", err)
			continue
		}
		plans[p.Inspector.Name] = raw
	}
	for name, e := range i.of {
		if string(plans[name]) != string(e.raw) {
			i.end(e)
		}
	}
	for _, p := range want {
		name := p.Inspector.Name
		if plans[name] == nil || i.of[name] != nil {
			continue
		}
		e, err := i.begin(p, plans[name])
		if err != nil {
			i.r.cfg.Log.Error("starting an inspector", "inspector", name, "error", err)
			continue
		}
		i.of[name] = e
	}
}

// Reinspect has the process that asks a model begin anew with the next question: its key is another one. The
// conversation of a chat begins anew at once.
func (i *Inspectors) Reinspect(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if e := i.of[name]; e != nil {
		e.asked.again()
		if e.talks != nil {
			e.talks.stop()
			e.talks = e.conversation()
			e.talks.start()
		}
	}
}

func (i *Inspectors) begin(p plan.Inspection, raw []byte) (*examiner, error) {
	e := &examiner{r: i.r, keys: i.keys, name: examinerName(p.Inspector.Name), plan: p, raw: raw}
	i.r.mu.Lock()
	defer i.r.mu.Unlock()
	var err error
	if e.user, err = i.r.users.acquire(e.name); err != nil {
		return nil, err
	}
	f, err := i.listen(e.socket())
	if err != nil {
		return nil, err
	}
	e.sockets = []*os.File{f}
	if p.Inspector.Account != nil {
		if e.notices, err = i.listen(e.noticesSocket()); err != nil {
			f.Close()
			return nil, err
		}
	}
	e.asked = activate(e.sockets, nil, e.service)
	if p.Inspector.Account != nil {
		e.talks = e.conversation()
		e.talks.start()
	}
	return e, nil
}

// listen makes a socket at which the gateway asks.
func (i *Inspectors) listen(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) { // of a pfard that was killed
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("making the socket of an inspector: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close() // the copy stays
	// Nobody else may ask: it would use up what the gateway waits for.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("making the socket of an inspector: %w", err)
	}
	if err := i.r.gatewayUser.chown(path); err != nil {
		return nil, fmt.Errorf("giving the socket of an inspector to the gateway: %w", err)
	}
	return l.File()
}

// socket is the path of an inspector's socket.
func (e *examiner) socket() string {
	return filepath.Join(units.InspectDir(e.r.cfg.Run), e.plan.Inspector.Name+".sock")
}

// noticesSocket is the path of the socket at which the process of a chat takes notices.
func (e *examiner) noticesSocket() string {
	return units.ChatNotices(units.InspectDir(e.r.cfg.Run), e.plan.Inspector.Name)
}

// end stops an inspector and returns when nothing of it is left.
func (i *Inspectors) end(e *examiner) {
	if e.talks != nil {
		e.talks.stop()
	}
	e.asked.close()
	name := e.plan.Inspector.Name
	delete(i.of, name)
	made := []string{e.socket()}
	if e.notices != nil {
		e.notices.Close()
		made = append(made, e.noticesSocket())
	}
	for _, path := range made {
		if err := os.Remove(path); err != nil {
			i.r.cfg.Log.Warn("removing the socket of an inspector, ignoring", "inspector", name, "error", err)
		}
	}
	i.r.mu.Lock()
	defer i.r.mu.Unlock()
	i.r.users.release(e.name)
	if err := os.RemoveAll(i.r.dirs.binds(e.name)); err != nil {
		i.r.cfg.Log.Warn("removing what is left of an inspector, ignoring", "inspector", name, "error", err)
	}
}

// service is the process, activated by its socket. When it ends, for whatever reason, the next question starts it
// again.
func (e *examiner) service(*activation) *service {
	return &service{
		name: e.name, dirs: e.r.dirs, log: e.r.cfg.Log, timeout: stopTimeout, restart: never, prepare: e.prepare,
		notice: func(m notification) { m.close() }, changed: func(phase, *process, int) {},
	}
}

func (e *examiner) prepare() (spec, error) {
	sp := spec{user: e.user, log: e.r.dirs.log(units.InspectLog), credentials: map[string][]byte{"plan": e.raw}}
	if err := rotate(sp.log, units.LogSegment); err != nil {
		return spec{}, err
	}
	var err error
	if e.plan.Inspector.URL != "" {
		err = e.asks(&sp)
	} else {
		err = e.runs(&sp)
	}
	if err != nil {
		return spec{}, err
	}
	f, err := dup(e.sockets[0])
	if err != nil {
		return spec{}, err
	}
	sp.descriptors = []descriptor{{units.FDInspect, f}}
	return sp, nil
}

// runs is what pfar-inspect@.service does: a program in a sandbox.
func (e *examiner) runs(sp *spec) error {
	program, binds, err := e.r.program("pfar-sandbox", e.name, e.user)
	if err != nil {
		return err
	}
	sp.argv, sp.binds, sp.makes = []string{program, "inspect"}, binds, true
	if !e.user.set {
		return nil
	}
	p := e.plan
	p.Sandbox.Mounts = slices.Clone(p.Sandbox.Mounts)
	st := stage{dir: e.r.dirs.binds(e.name), binds: binds}
	for i, m := range p.Sandbox.Mounts {
		if !m.ReadOnly() || units.Reachable(m.Source) {
			continue
		}
		if p.Sandbox.Mounts[i].Source, err = st.add(m.Source, true); err != nil {
			return err
		}
	}
	sp.binds = st.binds
	sp.credentials["plan"], err = json.Marshal(p)
	return err
}

// asks is what pfar-model@.service does: a model is asked, and nothing else reached.
func (e *examiner) asks(sp *spec) error {
	program, binds, err := e.r.program("pfar-egress", e.name, e.user)
	if err != nil {
		return err
	}
	sp.argv, sp.binds, sp.env = []string{program, "--model"}, binds, roots(os.Environ())
	if e.r.cfg.Upstream != nil {
		sp.credentials[units.CredentialUpstream] = e.r.cfg.Upstream
	}
	if e.plan.Inspector.Key != "" {
		sp.credentials[units.CredentialSecrets], err = json.Marshal(e.keys(e.plan.Inspector))
	}
	return err
}

// LongestSocket is the longest path of a socket that the runner makes for an instance, below the run directory.
func LongestSocket(run, instance string) string { return dirs{run: run}.notify(examinerName(instance)) }
