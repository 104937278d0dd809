package systemd

import (
	"context"
	"fmt"
	"strings"

	"github.com/pfar/pfar/units"
)

// Units that pfar ships (folder units), and what the names of instances are made of.
const (
	Slice       = "pfar.slice"        // holds all that pfar runs
	EgressSlice = "pfar-egress.slice" // within it, the bridges
	launcher    = "pfar-mcp@"
	bridge      = "pfar-egress@"
	refresh     = "pfar-refresh@"
	login       = "pfar-login@"
	program     = "pfar-inspect@"
	model       = "pfar-model@"
	chat        = "pfar-chat@"
	page        = "pfar-setup@"
	console     = "pfar-console@"
	remote      = "pfar-console.service" // the remote console
	service     = ".service"
	socket      = ".socket"
)

// LauncherUnit is the service of an instance's launcher.
func LauncherUnit(instance string) string { return launcher + instance + service }

// BridgeUnit is the service of an instance's egress bridge.
func BridgeUnit(instance string) string { return bridge + instance + service }

// RefreshUnit is the service that refreshes a token set (units.RefreshInstance).
func RefreshUnit(instance string) string { return refresh + instance + service }

// LoginUnit is the service that obtains a token set (units.RefreshInstance).
func LoginUnit(instance string) string { return login + instance + service }

// ModelUnit is the service of an inspector that is a model, or of a notice.
func ModelUnit(name string) string { return model + name + service }

// ChatUnit is the service that holds the conversation of a chat.
func ChatUnit(name string) string { return chat + name + service }

// PageUnit is the service of a one-time page.
func PageUnit(instance string) string { return page + instance + service }

// ConsoleUnit is the service of a user's console; the instance is the uid.
func ConsoleUnit(instance string) string { return console + instance + service }

// DoctorUnit is the service that runs the checks of pfar doctor.
const DoctorUnit = "pfar-doctor.service"

// VerifyUnit is the service that verifies the audit.
const VerifyUnit = "pfar-verify.service"

// ModelOf returns the inspector or notice whose service a unit is, if it is such a one.
func ModelOf(unit string) (string, bool) { return instanceIn(unit, model) }

// ProgramOf returns the inspector whose service a unit is, if it is one of a program.
func ProgramOf(unit string) (string, bool) { return instanceIn(unit, program) }

// InstanceOf returns the instance whose launcher a unit is.
func InstanceOf(unit string) (string, bool) {
	rest, ok := strings.CutPrefix(unit, launcher)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, service)
}

// instanceIn returns the instance of a template that a unit is.
func instanceIn(unit, template string) (string, bool) {
	rest, ok := strings.CutPrefix(unit, template)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, service)
}

// UnitState is what systemd says of a service.
type UnitState struct {
	Active  string // "active", "activating", "deactivating", "inactive", "failed"
	Sub     string // "running", "auto-restart", "dead", ...
	Result  string // "success", "exit-code", "signal", "timeout", "oom-kill", "assert", ...
	Code    int    // exit status of the main process, or its signal
	MainPID int
	Said    units.StatusLine // what it has said last (sd_notify(3))
	Queued  bool             // a job waits or runs; of an inactive unit that is its start

	Unreached string // settings of a launcher's that do not reach its server, in words; "": none
}

// State returns what systemd says of a service. One that it does not know is inactive.
func (b *Bus) State(ctx context.Context, unit string) (UnitState, error) {
	general, err := b.conn.GetUnitPropertiesContext(ctx, unit)
	if err != nil {
		return UnitState{}, fmt.Errorf("asking for the state of %q: %w", unit, err)
	}
	special, err := b.conn.GetUnitTypePropertiesContext(ctx, unit, "Service")
	if err != nil {
		return UnitState{}, fmt.Errorf("asking for the state of %q: %w", unit, err)
	}
	var s UnitState
	s.Active, _ = general["ActiveState"].(string)
	s.Sub, _ = general["SubState"].(string)
	if job, _ := general["Job"].([]any); len(job) > 0 {
		id, _ := job[0].(uint32)
		s.Queued = id != 0
	}
	s.Result, _ = special["Result"].(string)
	said, _ := special["StatusText"].(string)
	s.Said = units.ParseStatusLine(said)
	if code, ok := special["ExecMainStatus"].(int32); ok {
		s.Code = int(code)
	}
	if pid, ok := special["MainPID"].(uint32); ok {
		s.MainPID = int(pid)
	}
	if _, ok := InstanceOf(unit); ok {
		s.Unreached = unreachedBy(unit, special)
	}
	return s, nil
}

// active returns a unit's ActiveState.
func (b *Bus) active(ctx context.Context, unit string) (string, error) {
	p, err := b.conn.GetUnitPropertyContext(ctx, unit, "ActiveState")
	if err != nil {
		return "", fmt.Errorf("asking for the state of %q: %w", unit, err)
	}
	state, _ := p.Value.Value().(string)
	return state, nil
}

// MainPID returns the process that a service's unit has as its main one, 0 for none.
func (b *Bus) MainPID(ctx context.Context, unit string) (int, error) {
	p, err := b.conn.GetServicePropertyContext(ctx, unit, "MainPID")
	if err != nil {
		return 0, fmt.Errorf("asking for the process of %q: %w", unit, err)
	}
	pid, _ := p.Value.Value().(uint32)
	return int(pid), nil
}

// StartUnit starts a unit and returns once the job is queued; done is called with its result ("done", "failed",
// "timeout", "assert", ...) when it has ended, from another goroutine.
func (b *Bus) StartUnit(ctx context.Context, unit string, done func(result string)) error {
	result := make(chan string, 1)
	if err := b.resetFailed(ctx, unit); err != nil {
		return err
	}
	_, err := b.conn.StartUnitContext(ctx, unit, "replace", result)
	switch {
	case isError(err, errMasked):
		return fmt.Errorf("starting %q: %w", unit, ErrMasked)
	case err != nil:
		return fmt.Errorf("starting %q: %w", unit, err)
	}
	go func() { done(<-result) }()
	return nil
}

// resetFailed forgets that a unit has failed: it would be started all the same, but its start limit would count.
func (b *Bus) resetFailed(ctx context.Context, unit string) error {
	if err := b.conn.ResetFailedUnitContext(ctx, unit); err != nil && !isError(err, errNoSuchUnit) {
		return fmt.Errorf("resetting %q: %w", unit, err)
	}
	return nil
}

// RunUnit starts a unit and returns when its job has ended, which for one of Type=oneshot is when it has. An error need
// not mean that it does not run.
func (b *Bus) RunUnit(ctx context.Context, unit string) error {
	if err := b.resetFailed(ctx, unit); err != nil {
		return err
	}
	err := b.await(ctx, func(done chan<- string) (int, error) {
		return b.conn.StartUnitContext(ctx, unit, "replace", done)
	})
	if err != nil {
		return fmt.Errorf("starting %q: %w", unit, err)
	}
	return nil
}

// StopUnit stops a unit and returns when it has, and has been forgotten if it had failed.
func (b *Bus) StopUnit(ctx context.Context, unit string) error {
	err := b.await(ctx, func(done chan<- string) (int, error) {
		return b.conn.StopUnitContext(ctx, unit, "replace", done)
	})
	if err != nil && !isError(err, errNoSuchUnit) {
		return fmt.Errorf("stopping %q: %w", unit, err)
	}
	return b.resetFailed(ctx, unit)
}

// TryStart starts a unit if nothing of it runs, and does not wait.
func (b *Bus) TryStart(ctx context.Context, unit string) error {
	_, err := b.conn.StartUnitContext(ctx, unit, "replace", nil)
	if err != nil {
		return fmt.Errorf("starting %q: %w", unit, err)
	}
	return nil
}

// Reload has systemd read its unit files again, and run its generators.
func (b *Bus) Reload(ctx context.Context) error {
	if err := b.conn.ReloadContext(ctx); err != nil {
		return fmt.Errorf("reloading systemd: %w", err)
	}
	return nil
}

// Launchers returns the instances whose launchers systemd knows, with their states.
func (b *Bus) Launchers(ctx context.Context) (map[string]UnitState, error) {
	list, err := b.conn.ListUnitsByPatternsContext(ctx, []string{}, []string{launcher + "*" + service})
	if err != nil {
		return nil, fmt.Errorf("listing %q: %w", launcher+"*", err)
	}
	all := map[string]UnitState{}
	for _, u := range list {
		if name, ok := InstanceOf(u.Name); ok {
			all[name] = UnitState{Active: u.ActiveState, Sub: u.SubState}
		}
	}
	return all, nil
}
