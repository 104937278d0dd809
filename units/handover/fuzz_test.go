package handover

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
)

// FuzzMessage: what is received is what is sent on, to the last member.
func FuzzMessage(f *testing.F) {
	for _, m := range []Message{
		{Expect: &expected, Secrets: 7}, {Hello: &Hello{"notion", "0123456789abcdef"}}, {Stopping: true},
		{Failed: "why"}, {Begin: &Begin{Wait: "for you"}},
		{Ready: &Ready{Speech: units.Speech{Protocol: "2025-11-25"}, Tools: 1, Server: "x 1", Why: []string{"a"}}},
		{Expect: &Server{
			Name: "a", Sessions: Sessions{Own: true, Max: 3, Idle: time.Minute}, OnDemand: true,
			Declared: json.RawMessage(`{"a":[1]}`), Capabilities: []string{"roots"},
		}},
	} {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, seed := range []string{
		`{}`, `null`, `{"expect":{}}`, `{"expect":{"timeout":1e3}}`, `{"expect":{"declared":null}}`,
		`{"hello":{"name":"\ud800"}}`, `{"Hello":{"name":"a"},"hello":{"session":"b"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var first, again Message
		if json.Unmarshal(b, &first) != nil {
			return
		}
		sent, err := json.Marshal(first)
		if err != nil {
			t.Fatalf("%q is %+v, which cannot be sent: %v", b, first, err)
		}
		if err := json.Unmarshal(sent, &again); err != nil {
			t.Fatalf("%q is sent as %s: %v", b, sent, err)
		}
		last, err := json.Marshal(again)
		if err != nil || string(last) != string(sent) {
			t.Errorf("%q is sent as %s and then as %s, %v", b, sent, last, err)
		}
		if (first.Hello == nil) != (again.Hello == nil) || (first.Expect == nil) != (again.Expect == nil) ||
			first.Stopping != again.Stopping || first.Failed != again.Failed || first.Secrets != again.Secrets {
			t.Errorf("%q is sent as %s", b, sent)
		}
		if first.Hello != nil && !reflect.DeepEqual(first.Hello, again.Hello) {
			t.Errorf("%+v is sent as %+v", first.Hello, again.Hello)
		}
	})
}
