package reuse

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/gate"
)

var whole = Key{
	Client: "ann", Session: "s", Server: "files", Tool: "read", Pin: "p", Profile: "r", Policy: "q", Secrets: "f",
	Declared:  []byte(`{"a":1}`),
	Arguments: []byte(`{"path":"/a","n":1}`),
}

var found = Result{
	Value: []byte(`{"content":[]}`), Label: gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw},
}

// TestKey: a result is found under the same key alone. Each field counts.
func TestKey(t *testing.T) {
	s := New(DefaultLimits(), time.Now)
	s.Keep(whole, found)
	if r, ok := s.Find(whole); !ok || !reflect.DeepEqual(r, found) {
		t.Fatalf("%+v, %t", r, ok)
	}
	same := whole
	same.Arguments = []byte(`{ "n": 1, "path": "\u002fa" }`)
	if _, ok := s.Find(same); !ok {
		t.Error("the same arguments, written in another way, are others")
	}
	of := reflect.TypeFor[Key]()
	for i := range of.NumField() {
		k := whole
		switch f := reflect.ValueOf(&k).Elem().Field(i); of.Field(i).Name {
		case "Arguments":
			k.Arguments = []byte(`{"path":"/a","n":2}`)
		case "Declared":
			k.Declared = []byte(`{"a":2}`)
		default:
			f.SetString(f.String() + "x")
		}
		if _, ok := s.Find(k); ok {
			t.Errorf("another %s finds the result", of.Field(i).Name)
		}
	}
	// What one field ends with, another does not begin with.
	a, b := whole, whole
	a.Server, a.Tool, b.Server, b.Tool = "ab", "c", "a", "bc"
	s.Keep(a, found)
	if _, ok := s.Find(b); ok {
		t.Error("two keys are one")
	}
}

// TestUnknown: what is not known is not kept, and not found.
func TestUnknown(t *testing.T) {
	for name, change := range map[string]func(*Key, *Result){
		"client":    func(k *Key, _ *Result) { k.Client = "" },
		"server":    func(k *Key, _ *Result) { k.Server = "" },
		"tool":      func(k *Key, _ *Result) { k.Tool = "" },
		"pin":       func(k *Key, _ *Result) { k.Pin = "" },
		"profile":   func(k *Key, _ *Result) { k.Profile = "" },
		"policy":    func(k *Key, _ *Result) { k.Policy = "" },
		"arguments": func(k *Key, _ *Result) { k.Arguments = []byte(`{"a":1,"a":2}`) },
		"label":     func(_ *Key, r *Result) { r.Label = gate.Label{} },
		"integrity": func(_ *Key, r *Result) { r.Label.Integrity = 0 },
		"long":      func(_ *Key, r *Result) { r.Value = bytes.Repeat([]byte("x"), DefaultLimits().One+1) },
	} {
		k, r, s := whole, found, New(DefaultLimits(), time.Now)
		change(&k, &r)
		s.Keep(k, r)
		if _, ok := s.Find(k); ok || s.bytes != 0 || s.used.Len() != 0 {
			t.Errorf("%s: it is kept", name)
		}
	}
	none := New(Limits{}, time.Now)
	none.Keep(whole, found)
	if _, ok := none.Find(whole); ok {
		t.Error("without limits something is kept")
	}
}

// TestAge: an old result is used no more, whatever way the clock goes.
func TestAge(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := New(Limits{Bytes: 100, One: 100, Age: time.Hour}, func() time.Time { return now })
	for _, after := range []time.Duration{time.Hour, -time.Second} {
		now = time.Unix(1e9, 0)
		s.Keep(whole, found)
		if now = now.Add(time.Hour - 1); after > 0 {
			if _, ok := s.Find(whole); !ok {
				t.Error("a result of less than an hour is not found")
			}
		}
		now = time.Unix(1e9, 0).Add(after)
		if _, ok := s.Find(whole); ok || s.bytes != 0 {
			t.Errorf("a result is found %s after it was kept", after)
		}
	}
}

// TestRoom: what was not used for longest gives way, and all that is kept fits.
func TestRoom(t *testing.T) {
	s := New(Limits{Bytes: 30, One: 10, Age: time.Hour}, time.Now)
	of := func(tool string) Key { k := whole; k.Tool = tool; return k }
	ten := Result{Value: []byte(strings.Repeat("x", 10)), Label: found.Label}
	for _, tool := range []string{"a", "b", "c"} {
		s.Keep(of(tool), ten)
	}
	s.Find(of("a"))
	s.Keep(of("d"), ten)
	s.Keep(of("d"), ten) // in place of itself
	has := ""
	for _, tool := range []string{"a", "b", "c", "d"} {
		if _, ok := s.Find(of(tool)); ok {
			has += tool
		}
	}
	if has != "acd" || s.bytes != 30 || s.used.Len() != 3 || len(s.byKey) != 3 {
		t.Errorf("%q is kept, %d bytes", has, s.bytes)
	}
}
