package systemd

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// Resources are settings of a launcher's unit that its server's scope takes over (systemd.resource-control(5)). An
// administrator's drop-in for the unit is meant for the server, which runs outside of the unit's own cgroup.
type Resources struct {
	Memory uint64 // MemoryMax= in bytes; 0: none
	Tasks  uint64 // TasksMax=; 0: none, or the system's default
	CPU    int    // CPUQuota= in percent of one core, at least 1; 0: none
	Slice  string // Slice=; "": not known
	others []sd.Property
}

// passedOn are the settings that the scope takes as they are, with the values that set nothing: of a number that, of a
// list the empty one.
var passedOn = map[string]uint64{
	"MemoryHigh": math.MaxUint64, "MemoryMin": 0, "MemoryLow": 0,
	"CPUWeight": math.MaxUint64, "StartupCPUWeight": math.MaxUint64,
	"IOWeight": math.MaxUint64, "StartupIOWeight": math.MaxUint64,
	"AllowedCPUs": 0, "AllowedMemoryNodes": 0,
	"IODeviceWeight": 0, "IOReadBandwidthMax": 0, "IOWriteBandwidthMax": 0, "IOReadIOPSMax": 0, "IOWriteIOPSMax": 0,
}

// Resources returns those of a service.
func (b *Bus) Resources(ctx context.Context, unit string) (Resources, error) {
	all, err := b.conn.GetUnitTypePropertiesContext(ctx, unit, "Service")
	if err != nil {
		return Resources{}, fmt.Errorf("asking for the limits of %q: %w", unit, err)
	}
	byDefault, err := b.conn.GetManagerProperty("DefaultTasksMax")
	if err != nil {
		return Resources{}, fmt.Errorf("asking for systemd's DefaultTasksMax=: %w", err)
	}
	var r Resources
	r.Slice, _ = all["Slice"].(string)
	r.Memory = limit(all["MemoryMax"])
	if v, ok := all["TasksMax"]; ok && dbus.MakeVariant(v).String() != byDefault {
		r.Tasks = limit(v)
	}
	const percent = 10_000 // microseconds in a second
	if quota := limit(all["CPUQuotaPerSecUSec"]); quota > 0 {
		r.CPU = int(min(max(quota/percent, 1), math.MaxInt32))
	}
	for name := range passedOn {
		if v, ok := all[name]; ok {
			r.others = append(r.others, property(name, encodable(v)))
		}
	}
	slices.SortFunc(r.others, func(a, b sd.Property) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

// limit reads a number of which the largest means none.
func limit(v any) uint64 {
	if n, ok := v.(uint64); ok && n != math.MaxUint64 {
		return n
	}
	return 0
}

// deviceLimit is an element of the settings that go by device: a(st).
type deviceLimit struct {
	Path  string
	Value uint64
}

// encodable returns a value as it can be sent: godbus reads structures as lists, which it would send as lists.
func encodable(v any) any {
	pairs, ok := v.([][]any)
	if !ok {
		return v
	}
	list := make([]deviceLimit, 0, len(pairs))
	for _, p := range pairs {
		var d deviceLimit
		if err := dbus.Store(p, &d.Path, &d.Value); err == nil {
			list = append(list, d)
		}
	}
	return list
}

// sets reports whether a property that is passed on says anything.
func sets(p sd.Property) bool {
	switch v := reflect.ValueOf(p.Value.Value()); v.Kind() {
	case reflect.Slice:
		return v.Len() > 0
	case reflect.Uint64:
		return v.Uint() != passedOn[p.Name]
	}
	return false
}

// Within returns the scope under the settings of its service too: of two limits the lower one holds. lowered names the
// settings by which a limit has become lower.
func (s Scope) Within(r Resources) (_ Scope, lowered []string) {
	lower := func(name string, limit *uint64, to uint64) {
		if to > 0 && (*limit == 0 || to < *limit) {
			*limit, lowered = to, append(lowered, name)
		}
	}
	cpu := uint64(s.CPU)
	lower("MemoryMax=", &s.Memory, r.Memory)
	lower("TasksMax=", &s.Tasks, r.Tasks)
	lower("CPUQuota=", &cpu, uint64(r.CPU))
	s.CPU, s.others = int(cpu), r.others
	if r.Slice != "" {
		s.Slice = r.Slice
	}
	return s, lowered
}

// changes returns those of the scope's settings that are not in force.
func (b *Bus) changes(ctx context.Context, s Scope) ([]sd.Property, error) {
	now, err := b.conn.GetUnitTypePropertiesContext(ctx, s.Name, "Scope")
	if err != nil {
		return nil, err
	}
	want := append(s.limits(), s.others...)
	if s.CPU == 0 {
		want = append(want, property("CPUQuotaPerSecUSec", uint64(math.MaxUint64)))
	}
	return slices.DeleteFunc(want, func(p sd.Property) bool {
		return reflect.DeepEqual(encodable(now[p.Name]), p.Value.Value())
	}), nil
}

// unreached are settings of a launcher's unit that its server never sees, since the sandbox has an environment of its
// own, and the keys of the declaration to write instead.
var unreached = []struct{ setting, instead string }{
	{"Environment", "env"}, {"EnvironmentFiles", "env"}, {"PassEnvironment", "env"},
	{"LoadCredential", "auth"}, {"LoadCredentialEncrypted", "auth"}, {"ImportCredential", "auth"},
	{"SetCredential", "auth"}, {"SetCredentialEncrypted", "auth"},
}

// shippedCredentials are those that pfar's own units load.
var shippedCredentials = []string{"user", "plan", "secrets"}

// unreachedBy says in words which settings of a launcher's unit do not reach its server, and what to write instead; "":
// there are none. The values may be secret.
func unreachedBy(unit string, properties map[string]any) string {
	var names, instead []string
	for _, u := range unreached {
		if !isSet(u.setting, properties[u.setting]) {
			continue
		}
		names = append(names, strings.TrimSuffix(u.setting, "s")+"=")
		if !slices.Contains(instead, u.instead) {
			instead = append(instead, u.instead)
		}
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s of %s does not reach the server: write %s in the declaration", names[0], unit, instead[0])
	}
	return fmt.Sprintf("%s of %s do not reach the server: write %s in the declaration",
		strings.Join(names, " and "), unit, strings.Join(instead, " and "))
}

func isSet(setting string, value any) bool {
	list := reflect.ValueOf(value)
	if list.Kind() != reflect.Slice {
		return false
	}
	if pairs, ok := value.([][]any); ok && setting == "LoadCredential" {
		return slices.ContainsFunc(pairs, func(p []any) bool {
			name, _ := p[0].(string)
			return !slices.Contains(shippedCredentials, name)
		})
	}
	return list.Len() > 0
}
