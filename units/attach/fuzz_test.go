package attach

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
)

// FuzzMessage: what is received is what is sent on, to the last member.
func FuzzMessage(f *testing.F) {
	for _, m := range []Message{
		{Hello: &Hello{Bridge: true, Digest: "d", Again: true}}, {Place: &Place{7}}, {Ended: true}, {Search: &Search{Cut: true}}, {Sockets: true}, {Notify: map[string]string{"READY": "1"}},
		{Allow: &Allow{ID: 1 << 63, Name: "a.test", Port: 443, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, For: time.Minute}},
		{Errand: Errand{Refreshed: &Refreshed{Base: "b", Asked: time.Unix(1, 0).UTC(), Error: "e", Code: "invalid_grant",
			Final: true, After: time.Second}}},
		{Errand: Errand{Progress: &Progress{URL: "https://a.test", Complete: "https://a.test/?c", Code: "A-B", Port: 1,
			Life: time.Minute}}}, {Welcome: &Welcome{Held: "h", Redact: true}},
		{Placed: &Placed{How: "h"}}, {End: &End{OOM: true}}, {Found: &Found{Secrets: []string{"a"}, Behind: 3}}, {Allowed: &Allowed{1, "no"}}, {Error: "why", Later: true},
	} {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, seed := range []string{`{}`, `null`, `{"allow":{"addresses":["192.0.2.1%eth0"]}}`, `{"allow":{"addresses":["::ffff:1.2.3.4",""]}}`, `{"allow":{"port":65536}}`, `{"notify":{"a":null}}`, `{"refreshed":{"asked":"0000-01-01T00:00:00Z"}}`} {
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
		if first.Allow != nil && !reflect.DeepEqual(*first.Allow, *again.Allow) && len(first.Allow.Addresses) > 0 {
			t.Errorf("%+v is allowed as %+v", *first.Allow, *again.Allow)
		}
		if last, err := json.Marshal(again); err != nil || !bytes.Equal(last, sent) {
			t.Errorf("%q is sent as %s and then as %s, %v", b, sent, last, err)
		}
	})
}

// FuzzLines: there are as many lines as were asked about, each as it came, or none.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb"), 2)
	f.Add([]byte(""), 1)
	f.Add([]byte("\n\n"), 3)
	f.Add([]byte("a\r\nb\x00"), 1)
	f.Add(bytes.Repeat([]byte("x"), 2*MaxLine), 1)
	f.Add([]byte("a"), 0)
	f.Fuzz(func(t *testing.T, text []byte, count int) {
		if count < 0 || count > 1000 || len(text) > 1<<20 {
			return
		}
		file, err := units.Sealed("found", text)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := new(Found).Lines([]*os.File{file}, count)
		if fits := len(text) <= count*(MaxLine+1<<10) && strings.Count(string(text), "\n") == count-1; fits != (err == nil) {
			t.Errorf("%d lines in %d bytes, %d asked about: %v", strings.Count(string(text), "\n")+1, len(text), count, err)
		}
		if err == nil && strings.Join(lines, "\n") != string(text) || err != nil && lines != nil {
			t.Errorf("%q is %q, %v", text, lines, err)
		}
		if _, err := file.Stat(); err == nil {
			t.Error("the file stays open")
		}
	})
}
