package resolver

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/pfar/pfar/policies/egress"
)

// labelsOf reads the name of a message's question by itself: an octet of length and as many octets, up to a zero.
func labelsOf(message []byte) []string {
	var labels []string
	for b := message[12:]; len(b) > 0 && b[0] != 0; b = b[1+b[0]:] {
		labels = append(labels, string(b[1:1+b[0]]))
	}
	return labels
}

// mayHaveAddress says it again in other words: the labels are a declared name's, or all of them a host name's if names
// are learnt.
func mayHaveAddress(labels []string, learn bool) bool {
	for _, l := range labels {
		if strings.Trim(l, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
			return false
		}
	}
	if len(labels) == 0 {
		return false
	}
	name := strings.ToLower(strings.Join(labels, "."))
	switch name {
	case "api.example.com", "db.lan", "xn--bcher-kva.example", "printer", strings.Repeat("a", 63) + ".example.net":
		return true
	}
	below, wild := strings.CutSuffix(name, ".wild.example.org")
	return learn || wild && !strings.Contains(below, ".") || strings.ToLower(labels[len(labels)-1]) == "localhost"
}

func FuzzAnswer(f *testing.F) {
	for _, c := range hostileNames {
		f.Add([]byte(one(c.name, typeA)), false, false, true)
		f.Add([]byte(edns(c.name, typeAAAA, 1232)), true, true, true)
	}
	for _, name := range []string{api, "a.wild.example.org", "localhost", "1.1.18.198.in-addr.arpa"} {
		for _, qtype := range []int{typeA, typeAAAA, typePTR, typeANY, typeHTTPS, typeAXFR} {
			f.Add([]byte(edns(host(name), qtype, 512)), false, false, false)
		}
	}
	f.Add([]byte(head(0, 1, 0, 1)+host(api)+u16(typeIXFR, 1)+"\xc0\x0c"+u16(6, 1, 0, 0, 22)+nul(22)), true, false, true)
	f.Add([]byte(head(0, 1, 0, 0, 1)+host(api)+u16(typeA, 1)+opt(1232, 0, 0, u16(8, 7, 1)+"\x18\x00\xc0\x00\x02")), false, false, true)
	f.Add([]byte(head(0, 1)+"\x03api\xc0\x0c"+u16(typeA, 1)), false, false, true)
	p := policy(f, declaredHere...)
	f.Fuzz(func(t *testing.T, message []byte, tcp, learn, ipv6 bool) {
		p := p
		p.Learn = learn
		r := New(p, newAddresses(t, p, ""), ipv6)
		original := bytes.Clone(message)
		b, asked := r.Answer(message, tcp)
		if !bytes.Equal(message, original) {
			t.Fatal("the query was changed")
		}
		if none := len(message) < 12 || message[2]&0x80 != 0; none != (b == nil) || none && asked != (Question{}) {
			t.Fatalf("response %x, %+v", b, asked)
		}
		if b == nil {
			return
		}
		var m dns.Msg
		if err := m.Unpack(b); err != nil {
			t.Fatal(err)
		}
		checkFuzzed(t, r, message, b, &m, asked)
		if again, same := r.Answer(message, tcp); !bytes.Equal(again, b) || same != asked {
			t.Fatalf("asked again: %x, %+v; before %x, %+v", again, same, b, asked)
		}
	})
}

func checkFuzzed(t *testing.T, r *Resolver, message, b []byte, m *dns.Msg, asked Question) {
	if !bytes.Equal(b[:2], message[:2]) || !m.Response || asked.Refused != (m.Rcode != dns.RcodeSuccess) || asked.Reason == "" || asked.Err != nil {
		t.Fatalf("%+v\n%v", asked, m)
	}
	if !printable(asked.Name) || !printable(asked.Type) || len(asked.Name) > 256 {
		t.Fatalf("%+v", asked)
	}
	if len(b) > 1232 {
		t.Fatalf("%d octets", len(b))
	}
	if len(m.Question) == 1 && !bytes.HasPrefix(b[12:], message[12:12+len(strings.Join(labelsOf(message), "."))]) {
		t.Fatalf("the question %x is not that of %x", b, message)
	}
	for _, addr := range addressesIn(m) {
		labels := labelsOf(message)
		if !mayHaveAddress(labels, r.policy.Learn) {
			t.Fatalf("%q has the address %v", labels, addr)
		}
		if addr.Is6() && !r.ipv6 {
			t.Fatalf("%q has the address %v", labels, addr)
		}
		if loopback := addr.IsLoopback(); loopback != (asked.Reason == Loopback) {
			t.Fatalf("%q has the address %v", labels, addr)
		} else if name, ok := r.addresses.Name(addr); !loopback && (!ok || name != strings.ToLower(strings.Join(labels, "."))) {
			t.Fatalf("%q has the address %v of %q", labels, addr, name)
		}
	}
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

func FuzzLeases(f *testing.F) {
	f.Add([]byte("198.19.0.1 a.wild.example.org\n198.19.0.2 b.wild.example.org\n"), false)
	f.Add([]byte("198.19.0.1 a.wild.example.org\n198.19.0.2 b.wild"), false)
	f.Add([]byte("198.19.0.2 a.wild.example.org\n198.19.0.2 b.wild.example.org\n198.19.0.1 a.wild.example.org\n"), true)
	f.Add([]byte("198.19.16.0 evil.test\n\n198.19.16.1 evil.test\n127.0.0.1 localhost\n198.18.1.1 api.example.com\n"), true)
	f.Add([]byte("\x00\xff\n198.19.0.1\n 198.19.0.1 a\n198.19.0.1 a\r\n"), true)
	p := policy(f, declaredHere...)
	f.Fuzz(func(t *testing.T, content []byte, learn bool) {
		p := p
		p.Learn = learn
		path := filepath.Join(t.TempDir(), "leases")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		a := newAddresses(t, p, path)
		checkLeases(t, a)
		for _, name := range []string{"api.example.com", "new.wild.example.org"} {
			if _, _, err := a.Of(name); err != nil {
				t.Fatal(err)
			}
		}
		checkLeases(t, a)
		again := newAddresses(t, p, path)
		if !slices.Equal(again.names, a.names) {
			t.Fatalf("%q, then %q", a.names, again.names)
		}
		b, err := os.ReadFile(path)
		if err != nil || bytes.Count(b, []byte("\n")) != len(a.leased) || len(b) > 0 && b[len(b)-1] != '\n' {
			t.Fatalf("the file holds %q, %v", b, err)
		}
	})
}

func checkLeases(t *testing.T, a *Addresses) {
	t.Helper()
	leases := 0
	for i, name := range a.names {
		if name == "" {
			continue
		}
		leases++
		if !mayHaveAddress(strings.Split(name, "."), a.policy.Learn) || name != strings.ToLower(name) || special(name) {
			t.Fatalf("%q has a lease", name)
		}
		if d := a.policy.Decide(name, 443); d.Host != name || d.Reason == egress.BadName {
			t.Fatalf("%q is %+v", name, d)
		}
		v4, v6, err := a.Of(name)
		if back, ok := a.Name(v6); err != nil || !ok || back != name || v4 != netip.AddrFrom4([4]byte{198, 19, byte((i + 1) >> 8), byte(i + 1)}) {
			t.Fatalf("%q: %v, %v, %v, back %q", name, v4, v6, err, back)
		}
	}
	if leases != len(a.leased) || len(a.names) > maxLeases {
		t.Fatalf("%d leases and %d of them", leases, len(a.leased))
	}
}
