package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/drift"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// listingTime is how long a listing may take. The adapter gives its server less.
const listingTime = time.Minute

// out is the file in which a listing's job leaves what it has found.
const out = "listing"

// Planner plans the job of a listing, which has a session, and writes a file.
type Planner func(session, out string) (plan.Plan, error)

// List has a server say what it offers, in a job that is planned around a file for it. What comes back is that file, as
// the job has left it: a stranger's text, which is not read here. The job ends with ctx.
func (j *Jobs) List(ctx context.Context, server string, plans Planner) (l control.Listing, err error) {
	job := newJob(work{name: "list " + server, longest: listingTime})
	job.plan = func(session, stage string) (plan.Plan, error) {
		if err := makeOut(stage); err != nil {
			return plan.Plan{}, err
		}
		return plans(session, filepath.Join(stage, out))
	}
	job.take = func(stage string) (err error) {
		l.Found, err = readOut(stage)
		return err
	}
	j.mu.Lock()
	_, busy := j.of[job.name]
	switch {
	case busy:
		err = fmt.Errorf("%w: somebody else has %q listed", control.ErrBusy, server)
	case j.machine == nil:
		err = errStarting
	default:
		j.of[job.name] = job
	}
	j.mu.Unlock()
	if err != nil {
		return l, err
	}
	err = j.carryOut(ctx, job)
	job.mu.Lock()
	l.Refused = job.refused
	job.mu.Unlock()
	return l, err
}

// makeOut makes the file, and lets its owner come to it.
func makeOut(stage string) error {
	if err := os.Chmod(stage, 0o711); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(stage, out), nil, 0o600)
}

// readOut reads the file, whatever it has become.
func readOut(stage string) ([]byte, error) {
	f, err := os.OpenFile(filepath.Join(stage, out), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > drift.MaxListing:
		return nil, fmt.Errorf("the job left something that is not a file of at most %d bytes", drift.MaxListing)
	case info.Size() == 0:
		return nil, errors.New("the job left nothing")
	}
	return io.ReadAll(io.LimitReader(f, drift.MaxListing))
}
