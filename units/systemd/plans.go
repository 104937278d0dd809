package systemd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/plan"
)

// plans is what instance units are to run, as files below the run directory: plan/INSTANCE.json is their credential,
// and without it systemd does not start them (AssertPathExists=). applied/INSTANCE says that systemd has been asked to
// start it, with which plan, and what has become of that plan, or that it is being asked to stop it. A pfard that was
// killed in between asks again; one that finds the instance otherwise than this says knows that somebody else did that.
type plans struct {
	run string
	log *slog.Logger
}

const planSuffix = ".json"

func (p plans) file(instance string) string {
	return filepath.Join(p.run, "plan", instance+planSuffix)
}

func (p plans) mark(instance string) string { return filepath.Join(p.run, "applied", instance) }

func (p plans) make() error {
	for _, dir := range []string{"plan", "applied", filepath.Base(units.StagedDir(p.run))} {
		if err := os.MkdirAll(filepath.Join(p.run, dir), 0o700); err != nil {
			return fmt.Errorf("making a directory of the plans: %w", err)
		}
	}
	return nil
}

// write puts an instance's plan where its units find it, and returns the digest that they will know it by.
func (p plans) write(instance string, want plan.Plan) (string, error) {
	raw, err := json.Marshal(want)
	if err != nil {
		return "", fmt.Errorf("writing the plan of %q: %w", instance, err)
	}
	if sameText(p.file(instance), raw) {
		return units.Digest(raw), nil
	}
	if sameText(p.next(instance), raw) {
		err = os.Rename(p.next(instance), p.file(instance))
	} else {
		err = durable.Replace(p.file(instance), raw)
	}
	if err != nil {
		return "", fmt.Errorf("writing the plan of %q: %w", instance, err)
	}
	return units.Digest(raw), nil
}

// prepare writes a plan beside the one that runs. To make it the instance's takes no space any more.
func (p plans) prepare(instance string, want plan.Plan) error {
	raw, err := json.Marshal(want)
	if err == nil && !sameText(p.file(instance), raw) {
		err = durable.Replace(p.next(instance), raw)
	}
	if err != nil {
		return fmt.Errorf("writing the plan of %q: %w", instance, err)
	}
	return nil
}

func sameText(path string, text []byte) bool {
	old, err := os.ReadFile(path)
	return err == nil && bytes.Equal(old, text)
}

func (p plans) next(instance string) string { return filepath.Join(p.run, "plan", ".next-"+instance) }

// read returns an instance's plan and its digest.
func (p plans) read(instance string) (plan.Plan, string, error) {
	raw, err := os.ReadFile(p.file(instance))
	if err != nil {
		return plan.Plan{}, "", err
	}
	var found plan.Plan
	if err := json.Unmarshal(raw, &found); err != nil {
		return plan.Plan{}, "", fmt.Errorf("reading the plan of %q: %w", instance, err)
	}
	if units.Instance(found.Name, found.Gateway.Session) != instance {
		return plan.Plan{}, "", fmt.Errorf("reading the plan of %q: it is that of %q", instance, found.Name)
	}
	return found, units.Digest(raw), nil
}

// instances are those that have a plan.
func (p plans) instances() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(p.run, "plan"))
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), planSuffix); ok && !strings.HasPrefix(name, ".") {
			list = append(list, name)
		} else {
			_ = os.Remove(filepath.Join(p.run, "plan", e.Name())) // of a pfard that was killed as it wrote
		}
	}
	return list, nil
}

func (p plans) remove(instance string) error {
	return errors.Join(p.unapply(instance), removeFile(p.file(instance)), removeFile(p.next(instance)))
}

// apply notes that systemd has been asked to start a plan, and the digest of what that has become without another
// start.
func (p plans) apply(instance, started, now string) error {
	return durable.Replace(p.mark(instance), []byte(started+" "+now))
}

// note is apply for a process that runs already.
func (p plans) note(instance, started, now string) {
	if err := p.apply(instance, started, now); err != nil {
		p.log.Warn("remembering that a server was started, ignoring", "server", instance, "error", err)
	}
}

// stop notes that systemd is about to be asked to stop it.
func (p plans) stop(instance string) error {
	return durable.Replace(p.mark(instance), []byte(stopping))
}

const stopping = "stopping"

func (p plans) unapply(instance string) error { return removeFile(p.mark(instance)) }

// applied returns what apply has noted, or that stop has; "" if we have not started it, or have stopped it since.
func (p plans) applied(instance string) (started, now string) {
	b, _ := os.ReadFile(p.mark(instance))
	started, now, _ = strings.Cut(string(b), " ")
	return started, now
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
