package systemd

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// fakeSystemd answers on a socket like systemd's own: no Hello, signals to every connection.
type fakeSystemd struct {
	t       *testing.T
	address string
	mu      sync.Mutex
	conns   []net.Conn
	units   map[string]map[string]dbus.Variant // name -> properties, those of the start included
	job     string                             // result of the next jobs; "": they never end
	stopped []string
	started []string
	masked  string // a unit
	changes int    // of units that ran
	cgroup  string // of scopes; "": one below app.slice
	dies    string // before it has heard of the next scope ("start"), tells of its job ("job") or of that job's end ("end")
	between func() // called once, with the lock held, between a question for properties and its answer
}

func newFakeSystemd(t *testing.T) *fakeSystemd {
	t.Helper()
	path := filepath.Join(t.TempDir(), "private")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSystemd{t: t, address: "unix:path=" + dbus.EscapeBusAddressValue(path), units: map[string]map[string]dbus.Variant{}, job: "done"}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		f.mu.Lock()
		for _, c := range f.conns {
			c.Close()
		}
		f.mu.Unlock()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { f.serve(c) })
		}
	})
	return f
}

// serve does the server's part of SASL EXTERNAL, then answers calls.
func (f *fakeSystemd) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		switch word := strings.TrimLeft(strings.TrimSpace(line), "\x00"); {
		case strings.HasPrefix(word, "AUTH EXTERNAL"):
			fmt.Fprintf(c, "OK 0123456789abcdef0123456789abcdef\r\n")
		case word == "NEGOTIATE_UNIX_FD":
			fmt.Fprintf(c, "AGREE_UNIX_FD\r\n")
		case word == "BEGIN":
			f.mu.Lock()
			f.conns = append(f.conns, c)
			f.mu.Unlock()
			for {
				m, err := dbus.DecodeMessage(r)
				if err != nil {
					return
				}
				f.answer(c, m)
			}
		default: // the bare AUTH that asks for mechanisms
			fmt.Fprintf(c, "REJECTED EXTERNAL\r\n")
		}
	}
}

func (f *fakeSystemd) answer(c net.Conn, m *dbus.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	member, _ := m.Headers[dbus.FieldMember].Value().(string)
	var unit string
	if len(m.Body) > 0 {
		unit, _ = m.Body[0].(string)
	}
	const job = dbus.ObjectPath("/org/freedesktop/systemd1/job/7")
	switch member {
	case "StartTransientUnit":
		if f.death("start") {
			return
		}
		if _, ok := f.units[unit]; ok {
			f.refuse(c, m, errUnitExists, "Unit "+unit+" was already loaded.")
			return
		}
		f.units[unit] = properties(m.Body[2])
		f.units[unit]["ControlGroup"] = dbus.MakeVariant(cmp.Or(f.cgroup, "/app.slice/"+unit))
		if f.death("job") {
			return
		}
		f.reply(c, m, job)
		if f.death("end") {
			return
		}
		f.ended(job, unit)
	case "StopUnit", "ResetFailedUnit":
		if _, ok := f.units[unit]; !ok {
			f.refuse(c, m, errNoSuchUnit, "Unit "+unit+" not loaded.")
			return
		}
		if member == "ResetFailedUnit" {
			delete(f.units, unit)
			f.reply(c, m)
			return
		}
		f.stopped = append(f.stopped, unit)
		if f.units[unit]["ActiveState"].Value() != nil {
			delete(f.units, unit)
		}
		f.reply(c, m, job)
		f.ended(job, unit)
	case "SetUnitProperties":
		for name, v := range properties(m.Body[2]) {
			f.units[unit][name] = v
		}
		f.changes++
		f.reply(c, m)
	case "StartUnit":
		f.start(c, m, unit, job)
	case "GetAll":
		path, _ := m.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
		all := f.all(path)
		if happens := f.between; happens != nil {
			f.between = nil
			happens()
		}
		f.reply(c, m, all)
	case "Get":
		path, _ := m.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
		f.reply(c, m, f.property(path, m.Body[1].(string)))
	case "ListUnitsByPatterns":
		f.list(c, m)
	default:
		f.refuse(c, m, "org.freedesktop.DBus.Error.UnknownMethod", member)
	}
}

// start is what becomes of a service: it is up at once, or what f.fate says, or nothing without a plan.
func (f *fakeSystemd) start(c net.Conn, m *dbus.Message, unit string, job dbus.ObjectPath) {
	if f.masked == unit {
		f.refuse(c, m, errMasked, "Unit "+unit+" is masked.")
		return
	}
	f.started = append(f.started, unit)
	if f.job == "done" {
		f.set(unit, "active", "running", nil)
	}
	f.reply(c, m, job)
	f.ended(job, unit)
}

// set puts a service into a state, and says so. The lock is held.
func (f *fakeSystemd) set(unit, active, sub string, more map[string]any) {
	p := map[string]dbus.Variant{
		"Description": dbus.MakeVariant(""), "ActiveState": dbus.MakeVariant(active), "SubState": dbus.MakeVariant(sub),
		"Result": dbus.MakeVariant("success"), "ExecMainStatus": dbus.MakeVariant(int32(0)), "MainPID": dbus.MakeVariant(uint32(7)), "StatusText": dbus.MakeVariant(""),
	}
	for name, v := range more {
		p[name] = dbus.MakeVariant(v)
	}
	f.units[unit] = p
	if active == "inactive" {
		delete(f.units, unit)
	}
	state := map[string]dbus.Variant{"ActiveState": dbus.MakeVariant(active), "SubState": dbus.MakeVariant(sub)}
	for _, c := range f.conns {
		f.send(c, &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/systemd1/unit/" + escape(unit))),
			dbus.FieldInterface: dbus.MakeVariant("org.freedesktop.DBus.Properties"),
			dbus.FieldMember:    dbus.MakeVariant("PropertiesChanged"),
		}, Body: []any{"org.freedesktop.systemd1.Unit", state, []string{}}})
	}
}

// becomes has somebody else change a service.
func (f *fakeSystemd) becomes(unit, active, sub string, more map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set(unit, active, sub, more)
}

// reloaded has somebody have unit files read again (daemon-reload).
func (f *fakeSystemd) reloaded() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, begins := range []bool{true, false} {
		for _, c := range f.conns {
			f.send(c, &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/systemd1")),
				dbus.FieldInterface: dbus.MakeVariant("org.freedesktop.systemd1.Manager"),
				dbus.FieldMember:    dbus.MakeVariant("Reloading"),
			}, Body: []any{begins}})
		}
	}
}

// death hangs up if now is the time, once. The lock is held.
func (f *fakeSystemd) death(now string) bool {
	if f.dies != now {
		return false
	}
	f.dies = ""
	f.drop()
	return true
}

// hangUp ends all connections, as systemd does when it executes itself anew.
func (f *fakeSystemd) hangUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
}

func (f *fakeSystemd) drop() {
	for _, c := range f.conns {
		c.Close()
	}
	f.conns = nil
}

func escape(unit string) string {
	return strings.NewReplacer("-", "_2d", ".", "_2e", "@", "_40", "_", "_5f").Replace(unit)
}

func (f *fakeSystemd) property(path dbus.ObjectPath, name string) dbus.Variant {
	if v, ok := f.all(path)[name]; ok {
		return v
	}
	return dbus.MakeVariant("") // systemd answers for units that it does not know
}

func (f *fakeSystemd) all(path dbus.ObjectPath) map[string]dbus.Variant {
	for unit, properties := range f.units {
		if strings.HasSuffix(string(path), "/"+escape(unit)) {
			return properties
		}
	}
	return map[string]dbus.Variant{"ActiveState": dbus.MakeVariant("inactive"), "SubState": dbus.MakeVariant("dead")}
}

func (f *fakeSystemd) list(c net.Conn, m *dbus.Message) {
	type status struct {
		Name, Description, Load, Active, Sub, Followed string
		Path                                           dbus.ObjectPath
		JobID                                          uint32
		JobType                                        string
		JobPath                                        dbus.ObjectPath
	}
	list := []status{}
	for unit, properties := range f.units {
		if ok, _ := filepath.Match(m.Body[1].([]string)[0], unit); ok {
			active, _ := properties["ActiveState"].Value().(string)
			sub, _ := properties["SubState"].Value().(string)
			list = append(list, status{
				Name: unit, Description: properties["Description"].Value().(string), Active: active, Sub: sub, Path: "/", JobPath: "/",
			})
		}
	}
	f.reply(c, m, list)
}

func properties(list any) map[string]dbus.Variant {
	m := map[string]dbus.Variant{}
	for _, p := range list.([][]any) {
		m[p[0].(string)] = dbus.MakeVariant(encodable(p[1].(dbus.Variant).Value())) // or it could not be sent again
	}
	return m
}

func (f *fakeSystemd) reply(c net.Conn, m *dbus.Message, values ...any) {
	r := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(m.Serial()),
	}, Body: values}
	f.send(c, r)
}

func (f *fakeSystemd) refuse(c net.Conn, m *dbus.Message, name, text string) {
	f.send(c, &dbus.Message{Type: dbus.TypeError, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(m.Serial()), dbus.FieldErrorName: dbus.MakeVariant(name),
	}, Body: []any{text}})
}

// ended tells every connection of the job's end.
func (f *fakeSystemd) ended(job dbus.ObjectPath, unit string) {
	if f.job == "" {
		return
	}
	for _, c := range f.conns {
		f.send(c, &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/systemd1")),
			dbus.FieldInterface: dbus.MakeVariant("org.freedesktop.systemd1.Manager"),
			dbus.FieldMember:    dbus.MakeVariant("JobRemoved"),
		}, Body: []any{uint32(7), job, unit, f.job}})
	}
}

func (f *fakeSystemd) send(c net.Conn, m *dbus.Message) {
	if len(m.Body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(m.Body...))
	}
	if err := m.EncodeTo(c, binary.LittleEndian); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.EPIPE) { // who asked has gone
		f.t.Errorf("answering: %v", err)
	}
}

func connect(t *testing.T, f *fakeSystemd) *Bus {
	t.Helper()
	b, err := ConnectTo(t.Context(), "unix:path=/nonexistent/private", f.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func notion() Scope {
	return Scope{Name: "pfar-mcp-notion.scope", Description: "d", PID: 42, Memory: 1 << 28, Tasks: 256, CPU: 50}
}

func TestStartScope(t *testing.T) {
	f := newFakeSystemd(t)
	path, err := connect(t, f).StartScope(t.Context(), notion())
	if err != nil || path != "/app.slice/pfar-mcp-notion.scope" {
		t.Fatalf("got %q, %v", path, err)
	}
	f.mu.Lock()
	got := f.units["pfar-mcp-notion.scope"]
	f.mu.Unlock()
	for name, want := range map[string]string{
		"PIDs": "@au [42]", "MemoryMax": "@t 268435456", "MemorySwapMax": "@t 0", "TasksMax": "@t 256",
		"CPUQuotaPerSecUSec": "@t 500000", "KillSignal": "9", "Description": `"d"`,
	} {
		if text := got[name].String(); text != want {
			t.Errorf("%s is %s, want %s", name, text, want)
		}
	}
	// After= would wait forever; CollectMode= would lose the Result that names an OOM kill.
	for _, name := range []string{"After", "CollectMode"} {
		if v, ok := got[name]; ok {
			t.Errorf("%s is %s, want it unset", name, v)
		}
	}
}

func TestStartScopeFails(t *testing.T) {
	long, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, c := range []struct {
		name, want string
		ctx        context.Context
		job        string
		scope      string
	}{
		{"instance of a template", "not the name of a scope", t.Context(), "done", "pfar-mcp@notion.scope"},
		{"service", "not the name of a scope", t.Context(), "done", "pfar-mcp-notion.service"},
		{"path", "not the name of a scope", t.Context(), "done", "../x.scope"},
		{"job fails", `ended with "failed"`, t.Context(), "failed", "a.scope"},
		{"job is canceled", `ended with "canceled"`, t.Context(), "canceled", "a.scope"},
		{"job never ends", "deadline exceeded", long, "", "a.scope"},
		{"name is taken", ErrExists.Error(), t.Context(), "done", "taken.scope"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeSystemd(t)
			f.job = c.job
			f.units["taken.scope"] = nil
			s := notion()
			s.Name = c.scope
			_, err := connect(t, f).StartScope(c.ctx, s)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestStop(t *testing.T) {
	f := newFakeSystemd(t)
	b := connect(t, f)
	if _, err := b.StartScope(t.Context(), notion()); err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(t.Context(), notion().Name); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	stopped, left := slices.Clone(f.stopped), len(f.units)
	f.mu.Unlock()
	if !slices.Equal(stopped, []string{notion().Name}) || left > 0 {
		t.Errorf("stopped %q, %d units left; want it stopped and forgotten", stopped, left)
	}
	if err := b.Stop(t.Context(), notion().Name); err != nil {
		t.Errorf("stopping what is gone: %v", err)
	}
	if _, err := b.StartScope(t.Context(), notion()); err != nil {
		t.Errorf("starting under the same name: %v", err)
	}
}

// TestRunUnit: whoever waits for a unit is let go when it has ended, however, and when nobody can say any more.
func TestRunUnit(t *testing.T) {
	const unit = "pfar-vault-key.service"
	for name, c := range map[string]struct {
		job   string // "": it never ends
		then  func(f *fakeSystemd)
		limit time.Duration
		want  string // of the error; "": none
	}{
		"done":              {"done", nil, time.Minute, ""},
		"failed":            {"failed", nil, time.Minute, `ended with "failed"`},
		"systemd hangs up":  {"", (*fakeSystemd).hangUp, time.Minute, "hung up"},
		"it takes too long": {"", nil, 50 * time.Millisecond, "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeSystemd(t)
			f.job = c.job
			b := connect(t, f)
			ctx, cancel := context.WithTimeout(t.Context(), c.limit)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- b.RunUnit(ctx, unit) }()
			if c.then != nil {
				for begun := false; !begun; time.Sleep(time.Millisecond) {
					f.mu.Lock()
					begun = slices.Contains(f.started, unit)
					f.mu.Unlock()
				}
				c.then(f)
			}
			select {
			case err := <-ended:
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
			case <-time.After(2 * time.Minute):
				t.Error("it still waits")
			}
		})
	}
}

func TestDelegated(t *testing.T) {
	unit := func(cgroup string, delegate bool) map[string]dbus.Variant {
		return map[string]dbus.Variant{"ControlGroup": dbus.MakeVariant(cgroup), "Delegate": dbus.MakeVariant(delegate)}
	}
	f := newFakeSystemd(t)
	f.units["run-1.scope"] = unit("/app.slice/run-1.scope", true)
	f.units["run-2.scope"] = unit("/app.slice/run-2.scope", false)
	f.units["a.service"] = unit("/app.slice/a.service", true)
	b := connect(t, f)
	for cgroup, want := range map[string]bool{
		"/app.slice/run-1.scope":     true,
		"/app.slice/a.service":       true,
		"/app.slice/run-2.scope":     false,
		"/other/run-1.scope":         false, // of another systemd
		"/app.slice/run-1.scope/sub": false,
		"/app.slice":                 false,
		"/app.slice/run-3.scope":     false,
	} {
		if got, err := b.Delegated(t.Context(), cgroup); got != want {
			t.Errorf("%s: got %t, %v, want %t", cgroup, got, err, want)
		}
	}
}

func TestScopes(t *testing.T) {
	f := newFakeSystemd(t)
	b := connect(t, f)
	for _, name := range []string{"pfar-mcp-a.scope", "other.scope"} {
		s := notion()
		s.Name = name
		if _, err := b.StartScope(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	list, err := b.Scopes(t.Context(), "pfar-mcp-")
	if want := []Unit{{"pfar-mcp-a.scope", "d"}}; err != nil || !slices.Equal(list, want) {
		t.Errorf("got %v, %v, want %v", list, err, want)
	}
}

func TestConnectFails(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "private"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // accepts, in the kernel, and never answers
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := ConnectTo(ctx, "unix:path="+l.Addr().String()); err == nil {
		t.Error("connected to a socket that does not answer")
	}
	if _, err := ConnectTo(t.Context()); err == nil {
		t.Error("connected to no address")
	}
}

func TestUserAddresses(t *testing.T) {
	for _, c := range []struct {
		runtimeDir, session string
		want                []string
	}{
		{"/run/user/1000", "unix:path=/x", []string{"unix:path=/run/user/1000/systemd/private", "unix:path=/x", "unix:path=/run/user/1000/bus"}},
		{"", "", []string{"unix:path=/run/user/1000/systemd/private", "unix:path=/run/user/1000/bus"}},
		{"/a,b;c", "", []string{"unix:path=/a%2cb%3bc/systemd/private", "unix:path=/a%2cb%3bc/bus"}},
	} {
		if got := userAddresses(c.runtimeDir, c.session, 1000); !slices.Equal(got, c.want) {
			t.Errorf("%q, %q: got %q, want %q", c.runtimeDir, c.session, got, c.want)
		}
	}
}
