package systemd

import "testing"

// Fake is a systemd for tests of packages that use this one.
type Fake struct{ *fakeSystemd }

// NewFake begins one in which scopes have the cgroup.
func NewFake(t *testing.T, cgroup string) Fake {
	t.Helper()
	f := newFakeSystemd(t)
	f.cgroup = cgroup
	return Fake{f}
}

// Address is that of its own socket.
func (f Fake) Address() string { return f.address }

// Dies has it hang up once, at that time of the start of the next scope.
func (f Fake) Dies(at string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dies = at
}

// Ends has all jobs from now on end so.
func (f Fake) Ends(result string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.job = result
}

// Take has a scope's name taken by another cgroup's.
func (f Fake) Take(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.units[name] = properties([][]any{})
}

// Stopped are the units that were stopped.
func (f Fake) Stopped() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped
}

// Service has a service with these properties run.
func (f Fake) Service(unit string, properties map[string]any) {
	f.becomes(unit, "active", "running", properties)
}

// Property is one of a unit's, as D-Bus writes it; "": it has not been set.
func (f Fake) Property(unit, name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v, ok := f.units[unit][name]; ok {
		return v.String()
	}
	return ""
}

// Changes counts how often properties of a unit were changed that ran.
func (f Fake) Changes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes
}
