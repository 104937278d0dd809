// Package install has packages installed, each once, by a job that may do only that.
package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pfar/pfar/generator/installer"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// Machine runs jobs as it runs servers: in a sandbox, with a bridge that reaches what the plan says.
type Machine interface {
	Start(p plan.Plan, secrets units.Secrets) error
	Stop(instance string) // returns when nothing is left
}

// Around is what jobs want of pfard.
type Around interface {
	Settings() installer.Reader // of this host, as it is now
	Clean(text string) string   // without secrets
	// Integrity is the digest that an npm package must have, in the form of the registry; "": none is known.
	Integrity(p source.Package) string
	Installed(p source.Package) // there is another package
	Log(instance string) string // says where to read what a job's process writes
}

// longest is how long a job may take.
const longest = 20 * time.Minute

// Jobs are what is being installed, and the servers that are asked what they offer.
type Jobs struct {
	log    *slog.Logger
	dir    string // of the packages
	around Around
	steps  func(step string) error // called before each step of finish; nil: nobody is

	mu      sync.Mutex
	machine Machine // nil: nothing can be run yet
	of      map[string]*Job
}

// New returns Jobs that install below a directory, once Run has said by what.
func New(log *slog.Logger, dir string, around Around) *Jobs {
	return &Jobs{log: log, dir: dir, around: around, of: map[string]*Job{}}
}

// Run has jobs run by a machine. What an earlier pfard has left of its own jobs is removed.
func (j *Jobs) Run(m Machine) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.machine = m
	if err := remove(j.staged()); err != nil {
		j.log.Warn("removing what an earlier pfard has not installed to its end, ignoring", "error", err)
	}
}

// staged is the folder in which jobs leave what they make.
func (j *Jobs) staged() string { return filepath.Join(j.dir, ".staged") }

// work is what a job does.
type work struct {
	name    string // no two jobs of one name are under way
	plan    func(session, stage string) (plan.Plan, error)
	detail  string                   // of the state, while its process runs
	take    func(stage string) error // takes what the process has left
	longest time.Duration
}

// Job is one run of a process, and what is made of what it leaves: the installation of one package, or a listing.
type Job struct {
	work
	handle string
	ended  chan string   // takes one: why it failed, "" unless the job has said so
	done   chan struct{} // closed when the package is there, or will not be

	mu      sync.Mutex
	state   control.Installing
	refused string // the last connection that it was refused, in words
	err     error
	changed chan struct{} // closed when state is another
}

func newJob(w work) *Job {
	return &Job{
		work: w, handle: units.NewSession(), ended: make(chan string, 1), done: make(chan struct{}),
		changed: make(chan struct{}),
	}
}

var errStarting = errors.New("pfard is only starting")

// Begin installs a package, unless that is under way: then the job is that one. It does not wait. For a package without
// a version, the job installs nothing: in the end its state names the newest version.
func (j *Jobs) Begin(p source.Package) (*Job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if job := j.of[p.String()]; job != nil {
		return job, nil
	}
	job := newJob(work{name: p.String(), detail: "fetching", longest: longest})
	job.state.Package = p.String()
	job.plan = func(session, stage string) (plan.Plan, error) {
		return j.around.Settings().Plan(installer.Job{Package: p, Session: session, Stage: stage})
	}
	job.take = func(stage string) error {
		if p.Version == "" {
			return job.found(p, stage)
		}
		job.tell("checking")
		scripted, err := j.finish(p, stage)
		job.mu.Lock()
		defer job.mu.Unlock()
		job.state.Scripted = scripted
		return err
	}
	err := fs.ErrNotExist
	if p.Version != "" {
		host := j.around.Settings().Host
		job.state.Folder, err = host.Folder(p), host.Installed(p)
	}
	switch {
	case err == nil:
		job.state.Done, job.state.Already = true, true
		close(job.done)
		return job, nil
	case j.machine == nil:
		return nil, errStarting
	}
	j.of[job.name] = job
	go j.install(job, p)
	return job, nil
}

// Under reports whether a package is being installed.
func (j *Jobs) Under(p source.Package) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.of[p.String()] != nil
}

// Take takes what a machine tells, and reports whether it was about a job.
func (j *Jobs) Take(u units.Update) bool {
	if u.Server != installer.Server {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, job := range j.of {
		if job.handle != u.Session {
			continue
		}
		refused := ""
		if u.Refusal.Reason != "" {
			refused = u.Refusal.Clean(j.around.Clean).String()
			job.refuse(refused)
		}
		if !u.Ended {
			continue
		}
		why := ""
		if u.State == units.StateFailed {
			why = cmp.Or(j.around.Clean(u.Detail), "the job failed")
		}
		if refused != "" && why != "" {
			why += "; " + refused
		}
		if u.Refusal.Reason == egress.AddressRefused && why != "" {
			why += "; to use a registry at a private address, name it: npm config set registry URL, " +
				"or pip config set global.index-url URL"
		}
		select {
		case job.ended <- why:
		default: // it has been told
		}
	}
	return true
}

// install carries an installation out.
func (j *Jobs) install(job *Job, p source.Package) {
	err := j.carryOut(context.Background(), job)
	looks := p.Version == ""
	switch {
	case err != nil && looks:
		err = fmt.Errorf("looking for the newest version of %s: %w", p, err)
	case err != nil:
		err = fmt.Errorf("installing %s: %w", p, err)
		j.log.Error("a package is not installed", "package", p.String(), "error", err)
	case !looks:
		j.log.Info("a package is installed", "package", p.String())
		j.around.Installed(p)
	}
	job.mu.Lock()
	job.err, job.state.Done = err, err == nil && !looks
	job.mu.Unlock()
	close(job.done)
}

// carryOut runs a job's process, and takes what it has made. Then the job is forgotten, with all that it has left.
func (j *Jobs) carryOut(ctx context.Context, job *Job) (err error) {
	stage := filepath.Join(j.staged(), units.Instance(installer.Server, job.handle))
	defer func() {
		if rerr := remove(stage); rerr != nil && err == nil {
			j.log.Warn("removing what a job has left, ignoring", "error", rerr)
		}
		err = remedy(err)
		j.mu.Lock()
		delete(j.of, job.name)
		j.mu.Unlock()
	}()
	if err := j.prepare(stage); err != nil {
		return err
	}
	p, err := job.plan(job.handle, stage)
	if err != nil {
		return err
	}
	if err := j.process(ctx, job, p); err != nil {
		return err
	}
	return job.take(stage)
}

// prepare makes the folder of a job.
func (j *Jobs) prepare(stage string) error {
	if err := open(filepath.Dir(j.dir), j.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(j.staged(), 0o711); err != nil {
		return err
	}
	if err := os.Chmod(j.staged(), 0o711); err != nil { // the job's user has to get through
		return err
	}
	return os.Mkdir(stage, 0o700)
}

// process runs the job's process to its end.
func (j *Jobs) process(ctx context.Context, job *Job, p plan.Plan) error {
	j.mu.Lock()
	m := j.machine
	j.mu.Unlock()
	instance := units.Instance(p.Name, p.Gateway.Session)
	if err := m.Start(p, units.Secrets{}); err != nil {
		m.Stop(instance)
		return err
	}
	job.tell(job.detail)
	late := time.NewTimer(job.longest)
	defer late.Stop()
	var err error
	select {
	case why := <-job.ended:
		if why != "" {
			err = fmt.Errorf("%s; its log: %s", why, j.around.Log(instance))
		}
	case <-late.C:
		err = fmt.Errorf("the job took longer than %s; its log: %s", job.longest, j.around.Log(instance))
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	m.Stop(instance) // nothing of it can write any more
	return err
}

func (job *Job) tell(words string) {
	job.mu.Lock()
	defer job.mu.Unlock()
	job.state.Detail = words
	close(job.changed)
	job.changed = make(chan struct{})
}

func (job *Job) refuse(words string) {
	job.mu.Lock()
	defer job.mu.Unlock()
	job.refused = words
}

// found has the job's state name the newest version.
func (job *Job) found(wanted source.Package, stage string) error {
	p, err := newest(wanted, stage)
	job.mu.Lock()
	defer job.mu.Unlock()
	job.state.Package = p.String()
	return err
}

// Watch calls each with what becomes of a job, until it is over or ctx ends. The job goes on.
func (job *Job) Watch(ctx context.Context, each func(control.Installing) error) error {
	for {
		job.mu.Lock()
		state, changed := job.state, job.changed
		job.mu.Unlock()
		select {
		case <-job.done:
			job.mu.Lock()
			defer job.mu.Unlock()
			if job.err != nil {
				return job.err
			}
			job.state.Detail = ""
			return each(job.state)
		default:
		}
		if err := each(state); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-job.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// remove deletes a folder of a job, which may have made folders that nobody can write to.
func remove(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			_ = os.Chmod(at, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
