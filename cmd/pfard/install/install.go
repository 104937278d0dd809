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
	Installed(p source.Package) // there is another package
	Log(instance string) string // says where to read what a job's process writes
}

// longest is how long a job may take.
const longest = 20 * time.Minute

// Jobs are the packages that are being installed.
type Jobs struct {
	log    *slog.Logger
	dir    string // of the packages
	around Around
	steps  func(step string) error // called before each step of finish; nil: nobody is

	mu      sync.Mutex
	machine Machine // nil: nothing can be installed yet
	of      map[source.Package]*Job
}

// New returns Jobs that install below a directory, once Run has said by what.
func New(log *slog.Logger, dir string, around Around) *Jobs {
	return &Jobs{log: log, dir: dir, around: around, of: map[source.Package]*Job{}}
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

// staged is the folder in which jobs leave packages.
func (j *Jobs) staged() string { return filepath.Join(j.dir, ".staged") }

// Job is the installation of one package.
type Job struct {
	pkg    source.Package
	handle string
	ended  chan string   // takes one: why it failed, "" unless the job has said so
	done   chan struct{} // closed when the package is there, or will not be

	mu      sync.Mutex
	state   control.Installing
	err     error
	changed chan struct{} // closed when state is another
}

// Begin installs a package, unless that is under way: then the job is that one. It does not wait. For a package without
// a version, the job installs nothing: in the end its state names the newest version.
func (j *Jobs) Begin(p source.Package) (*Job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if job := j.of[p]; job != nil {
		return job, nil
	}
	job := &Job{
		pkg: p, handle: units.NewSession(), ended: make(chan string, 1), done: make(chan struct{}),
		changed: make(chan struct{}),
		state:   control.Installing{Package: p.String()},
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
		return nil, errors.New("pfard is only starting")
	}
	j.of[p] = job
	go j.run(job)
	return job, nil
}

// Under reports whether a package is being installed.
func (j *Jobs) Under(p source.Package) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.of[p] != nil
}

// Take takes what a machine tells, and reports whether it was about a job.
func (j *Jobs) Take(u units.Update) bool {
	if u.Server != installer.Server {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, job := range j.of {
		if job.handle != u.Session || !u.Ended {
			continue
		}
		why := ""
		if u.State == units.StateFailed {
			why = cmp.Or(j.around.Clean(u.Detail), "the job failed")
		}
		if u.Refusal.Reason != "" && why != "" {
			why += "; " + u.Refusal.Clean(j.around.Clean).String()
		}
		if u.Refusal.Reason == "address-refused" && why != "" {
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

// run carries a job out.
func (j *Jobs) run(job *Job) {
	err := j.install(job)
	j.mu.Lock()
	delete(j.of, job.pkg)
	j.mu.Unlock()
	looks := job.pkg.Version == ""
	switch {
	case err != nil && looks:
		err = fmt.Errorf("looking for the newest version of %s: %w", job.pkg, err)
	case err != nil:
		err = fmt.Errorf("installing %s: %w", job.pkg, err)
		j.log.Error("a package is not installed", "package", job.pkg.String(), "error", err)
	case !looks:
		j.log.Info("a package is installed", "package", job.pkg.String())
		j.around.Installed(job.pkg)
	}
	job.mu.Lock()
	job.err, job.state.Done = err, err == nil && !looks
	job.mu.Unlock()
	close(job.done)
}

// install runs npm or pip, and puts in place what it has made.
func (j *Jobs) install(job *Job) (err error) {
	stage := filepath.Join(j.staged(), units.Instance(installer.Server, job.handle))
	defer func() {
		if rerr := remove(stage); rerr != nil && err == nil {
			j.log.Warn("removing what was not installed, ignoring", "error", rerr)
		}
		err = spaceless(err)
	}()
	if err := j.prepare(stage); err != nil {
		return err
	}
	p, err := j.around.Settings().Plan(installer.Job{Package: job.pkg, Session: job.handle, Stage: stage})
	if err != nil {
		return err
	}
	if err := j.fetch(job, p); err != nil {
		return err
	}
	if job.pkg.Version == "" {
		return job.found(stage)
	}
	job.tell("checking")
	return j.finish(job.pkg, stage)
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

// fetch runs the job's process to its end.
func (j *Jobs) fetch(job *Job, p plan.Plan) error {
	j.mu.Lock()
	m := j.machine
	j.mu.Unlock()
	instance := units.Instance(p.Name, p.Gateway.Session)
	if err := m.Start(p, units.Secrets{}); err != nil {
		m.Stop(instance)
		return err
	}
	job.tell("fetching")
	late := time.NewTimer(longest)
	defer late.Stop()
	var err error
	select {
	case why := <-job.ended:
		if why != "" {
			err = fmt.Errorf("%s; its log: %s", why, j.around.Log(instance))
		}
	case <-late.C:
		err = fmt.Errorf("it took longer than %s; its log: %s", longest, j.around.Log(instance))
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

// found has the job's state name the newest version.
func (job *Job) found(stage string) error {
	p, err := newest(job.pkg, stage)
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
