package resolver

import (
	"encoding/binary"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/pfar/pfar/policies/egress"
)

// Messages are built by hand here: what is tested must not be what a library can write.

const (
	typeA, typePTR, typeTXT, typeAAAA, typeSRV, typeOPT = 1, 12, 16, 28, 33, 41
	typeSVCB, typeHTTPS, typeIXFR, typeAXFR, typeANY    = 64, 65, 251, 252, 255
)

func u16(n ...int) string {
	var b []byte
	for _, v := range n {
		b = binary.BigEndian.AppendUint16(b, uint16(v))
	}
	return string(b)
}

// head is a header: ID 0x7066, recursion desired beside flags, and the four counts.
func head(flags int, counts ...int) string {
	return u16(0x7066, flags|0x0100) + u16(append(counts, make([]int, 4-len(counts))...)...)
}

// wire is a name of these labels, whatever they hold.
func wire(labels ...string) string {
	var b strings.Builder
	for _, l := range labels {
		b.WriteString(string([]byte{byte(len(l))}) + l)
	}
	return b.String() + "\x00"
}

// host is wire of a name in text.
func host(name string) string { return wire(strings.Split(name, ".")...) }

// one is a message with one question.
func one(name string, qtype int) string { return head(0, 1) + name + u16(qtype, 1) }

// opt is a record of EDNS.
func opt(size, version, flags int, options string) string {
	return "\x00" + u16(typeOPT, size, version, flags, len(options)) + options
}

// edns is a message with one question and EDNS.
func edns(name string, qtype, size int) string {
	return head(0, 1, 0, 0, 1) + name + u16(qtype, 1) + opt(size, 0, 0, "")
}

func policy(t testing.TB, entries ...string) egress.Policy {
	t.Helper()
	var p egress.Policy
	for _, s := range entries {
		e, err := egress.ParseEndpoint(s)
		if err != nil {
			t.Fatal(err)
		}
		p.Endpoints = append(p.Endpoints, e)
	}
	return p
}

var declaredHere = []string{
	"api.example.com", "db.lan:5432", "*.wild.example.org", "api.example.com:8443", "bücher.example",
	"192.0.2.7", "[2001:db8::1]:443", "10.0.0.0/8", "printer", strings.Repeat("a", 63) + ".example.net",
}

func newAddresses(t testing.TB, p egress.Policy, leases string) *Addresses {
	t.Helper()
	a, err := NewAddresses(p, leases)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func newResolver(t testing.TB, learn, ipv6 bool) *Resolver {
	t.Helper()
	p := policy(t, declaredHere...)
	p.Learn = learn
	return New(p, newAddresses(t, p, filepath.Join(t.TempDir(), "leases")), ipv6)
}

// answer answers, and wants of the response what every one must be.
func (r *Resolver) answer(t testing.TB, message string, tcp bool) (*dns.Msg, Question) {
	t.Helper()
	b, asked := r.Answer([]byte(message), tcp)
	if b == nil {
		if asked != (Question{}) {
			t.Fatalf("no response, and %+v", asked)
		}
		return nil, asked
	}
	var m dns.Msg
	if err := m.Unpack(b); err != nil {
		t.Fatalf("%x: %v", b, err)
	}
	if string(b[:2]) != message[:2] || !m.Response || !m.RecursionAvailable || m.Authoritative || m.AuthenticatedData || m.Zero {
		t.Fatalf("header of %v", m.MsgHdr)
	}
	if m.RecursionDesired != (message[2]&1 != 0) || m.CheckingDisabled != (message[3]&0x10 != 0) || m.Opcode != int(message[2]>>3&15) {
		t.Fatalf("header of %v, asked with %x", m.MsgHdr, message[2:4])
	}
	if limit := 1232; !tcp && len(b) > limit {
		t.Fatalf("%d octets over UDP", len(b))
	}
	if len(m.Question) == 1 && !strings.HasPrefix(string(b[12:]), message[12:12+strings.IndexByte(message[12:], 0)]) {
		t.Fatalf("the question %q is not the one asked in %q", b[12:], message)
	}
	for _, rr := range m.Answer {
		if rr.Header().Name != m.Question[0].Name {
			t.Fatalf("%v answers %q", rr, m.Question[0].Name)
		}
	}
	return &m, asked
}

// extended returns the extended error of a response, nil if there is none.
func extended(m *dns.Msg) *dns.EDNS0_EDE {
	if o := m.IsEdns0(); o != nil && len(o.Option) == 1 {
		return o.Option[0].(*dns.EDNS0_EDE)
	}
	return nil
}

// addressesIn returns what a response holds of addresses, wherever it does.
func addressesIn(m *dns.Msg) []netip.Addr {
	var list []netip.Addr
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			switch rr := rr.(type) {
			case *dns.A:
				a, _ := netip.AddrFromSlice(rr.A.To4())
				list = append(list, a)
			case *dns.AAAA:
				a, _ := netip.AddrFromSlice(rr.AAAA.To16())
				list = append(list, a)
			}
		}
	}
	return list
}
