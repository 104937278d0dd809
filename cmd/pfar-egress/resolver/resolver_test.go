package resolver

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/pfar/pfar/policies/egress"
)

// records returns the answer section as text, without the question's name and the class.
func records(m *dns.Msg) string {
	var list []string
	for _, rr := range m.Answer {
		h := rr.Header()
		list = append(list, fmt.Sprint(h.Ttl, " ", dns.Type(h.Rrtype), " ", strings.TrimPrefix(rr.String(), h.String())))
	}
	return strings.Join(list, ", ")
}

func TestAnswers(t *testing.T) {
	long := strings.Repeat("a", 63) + ".example.net"
	for _, c := range []struct {
		name    string
		qtype   int
		ipv6    string // records, with IPv6
		without string // records, without; "" beside an SOA
		reason  string
		told    string
	}{
		{api, typeA, "60 A 198.18.1.1", "60 A 198.18.1.1", egress.Declared, api},
		{api, typeAAAA, "60 AAAA 2001:2::c612:101", "", egress.Declared, api},
		{"aPi.eXample.COM", typeA, "60 A 198.18.1.1", "60 A 198.18.1.1", egress.Declared, api},
		{"API.EXAMPLE.COM", typeAAAA, "60 AAAA 2001:2::c612:101", "", egress.Declared, api},
		{"db.lan", typeA, "60 A 198.18.1.2", "60 A 198.18.1.2", egress.Declared, "db.lan"},
		{"printer", typeA, "60 A 198.18.1.9", "60 A 198.18.1.9", egress.Declared, "printer"},
		{"XN--bcher-KVA.example", typeA, "60 A 198.18.1.5", "60 A 198.18.1.5", egress.Declared, "xn--bcher-kva.example"},
		{long, typeA, "60 A 198.18.1.10", "60 A 198.18.1.10", egress.Declared, long},
		{"x.wild.example.org", typeTXT, "", "", egress.Declared, "x.wild.example.org"}, // takes no lease
		{"b.wild.example.org", typeA, "60 A 198.19.0.1", "60 A 198.19.0.1", egress.Declared, "b.wild.example.org"},
		{"A.Wild.example.org", typeAAAA, "60 AAAA 2001:2::c613:2", "", egress.Declared, "a.wild.example.org"},
		{"B.wild.EXAMPLE.org", typeAAAA, "60 AAAA 2001:2::c613:1", "", egress.Declared, "b.wild.example.org"},
		{"xn--bcher-kva.wild.example.org", typeTXT, "", "", egress.Declared, "xn--bcher-kva.wild.example.org"},

		{api, typeHTTPS, "", "", egress.Declared, api},
		{api, typeSVCB, "", "", egress.Declared, api},
		{api, typeTXT, "", "", egress.Declared, api},
		{api, typeSRV, "", "", egress.Declared, api},
		{api, typePTR, "", "", egress.Declared, api},
		{api, 0, "", "", egress.Declared, api},
		{api, 2, "", "", egress.Declared, api},
		{api, 5, "", "", egress.Declared, api},
		{api, 6, "", "", egress.Declared, api},
		{api, typeOPT, "", "", egress.Declared, api},
		{api, 48, "", "", egress.Declared, api},
		{api, 65535, "", "", egress.Declared, api},
		{api, typeANY, `60 HINFO "RFC8482" ""`, `60 HINFO "RFC8482" ""`, egress.Declared, api},

		{"localhost", typeA, "60 A 127.0.0.1", "60 A 127.0.0.1", Loopback, "localhost"},
		{"LocalHost", typeAAAA, "60 AAAA ::1", "", Loopback, "localhost"},
		{"a.b.localhost", typeA, "60 A 127.0.0.1", "60 A 127.0.0.1", Loopback, "a.b.localhost"},
		{"localhost", typeHTTPS, "", "", Loopback, "localhost"},
		{"localhost", typeANY, `60 HINFO "RFC8482" ""`, `60 HINFO "RFC8482" ""`, Loopback, "localhost"},

		{"1.1.18.198.in-addr.arpa", typePTR, "60 PTR api.example.com.", "60 PTR api.example.com.", egress.Declared, "1.1.18.198.in-addr.arpa"},
		{"10.1.18.198.IN-ADDR.arpa", typePTR, "60 PTR " + long + ".", "60 PTR " + long + ".", egress.Declared, "10.1.18.198.in-addr.arpa"},
		{"1.1.18.198.in-addr.arpa", typeA, "", "", egress.Declared, "1.1.18.198.in-addr.arpa"},
		{"1.1.18.198.in-addr.arpa", typeANY, `60 HINFO "RFC8482" ""`, `60 HINFO "RFC8482" ""`, egress.Declared, "1.1.18.198.in-addr.arpa"},
		{"1.0.19.198.in-addr.arpa", typePTR, "60 PTR b.wild.example.org.", "60 PTR b.wild.example.org.", egress.Declared, "1.0.19.198.in-addr.arpa"},
		{api6 + ".ip6.arpa", typePTR, "60 PTR api.example.com.", "60 PTR api.example.com.", egress.Declared, api6 + ".ip6.arpa"},
		{"2.0.1.0.2.1.6.C." + strings.Repeat("0.", 16) + "2.0.0.0.1.0.0.2.ip6.arpa", typePTR, "60 PTR db.lan.", "60 PTR db.lan.", egress.Declared, "2.0.1.0.2.1.6.c." + strings.Repeat("0.", 16) + "2.0.0.0.1.0.0.2.ip6.arpa"},
	} {
		for _, ipv6 := range []bool{true, false} {
			r := newResolver(t, false, ipv6)
			if _, _, err := r.addresses.Of("b.wild.example.org"); err != nil {
				t.Fatal(err)
			}
			for _, message := range []string{one(host(c.name), c.qtype), edns(host(c.name), c.qtype, 1232)} {
				for _, tcp := range []bool{false, true} {
					m, asked := r.answer(t, message, tcp)
					want := map[bool]string{true: c.ipv6, false: c.without}[ipv6]
					if m.Rcode != dns.RcodeSuccess || m.Truncated || records(m) != want {
						t.Errorf("%s, type %d, IPv6 %t: %q, want %q\n%v", c.name, c.qtype, ipv6, records(m), want, m)
					}
					if want == "" {
						if len(m.Ns) != 1 || m.Ns[0].String() != ".\t60\tIN\tSOA\tlocalhost. nobody.invalid. 1 3600 1200 604800 60" {
							t.Errorf("%s, type %d: %v", c.name, c.qtype, m.Ns)
						}
					} else if len(m.Ns) != 0 {
						t.Errorf("%s, type %d: %v", c.name, c.qtype, m.Ns)
					}
					if asked != (Question{Name: c.told, Type: dns.Type(c.qtype).String(), Reason: c.reason}) {
						t.Errorf("%s, type %d: %+v", c.name, c.qtype, asked)
					}
					if extended(m) != nil {
						t.Errorf("%s, type %d: %v", c.name, c.qtype, extended(m))
					}
				}
			}
		}
	}
}

// Only a query for an address is a name's first use.
func TestLeaseOnlyForAddresses(t *testing.T) {
	r := newResolver(t, true, false)
	for _, qtype := range []int{typeAAAA, typeHTTPS, typeSVCB, typeTXT, typePTR, typeANY} {
		for _, name := range []string{"a.wild.example.org", "evil.test"} {
			m, asked := r.answer(t, one(host(name), qtype), false)
			if m.Rcode != dns.RcodeSuccess || asked.Refused || asked.Learned != (name == "evil.test") || len(r.addresses.names) != 0 {
				t.Errorf("%q, type %d: %+v, leases %q", name, qtype, asked, r.addresses.names)
			}
		}
	}
}

func TestHeaderIsEchoed(t *testing.T) {
	r := newResolver(t, false, true)
	for flags := range 1 << 8 { // RD is in the octet before
		message := one(host(api), typeA)
		for _, rd := range []byte{0, 1, 2, 4, 7} { // and so are TC and AA
			message = message[:2] + string([]byte{rd, byte(flags)}) + message[4:]
			if m, _ := r.answer(t, message, false); m.Rcode != dns.RcodeSuccess || records(m) != "60 A 198.18.1.1" {
				t.Fatalf("flags %x %x: %v", rd, flags, m)
			}
		}
	}
}

func TestEDNS(t *testing.T) {
	r := newResolver(t, false, true)
	for _, c := range []struct {
		flags   int
		options string
	}{
		{0, ""}, {0x8000, ""}, {0xffff, ""},
		{0, u16(10, 8) + "12345678"},                        // cookie, RFC 7873
		{0, u16(12, 100) + nul(100)},                        // padding, RFC 7830
		{0, u16(8, 7, 1) + "\x18\x00\xc0\x00\x02"},          // subnet, RFC 7871
		{0, u16(65001, 3) + "abc" + u16(3, 0) + u16(11, 0)}, // local, NSID, keepalive
	} {
		m, asked := r.answer(t, head(0, 1, 0, 0, 1)+host(api)+u16(typeA, 1)+opt(4096, 0, c.flags, c.options), false)
		o := m.IsEdns0()
		if records(m) != "60 A 198.18.1.1" || asked.Refused || o == nil {
			t.Fatalf("%x %q: %v", c.flags, c.options, m)
		}
		if o.UDPSize() != 1232 || o.Version() != 0 || o.Do() != (c.flags&0x8000 != 0) || o.Z() != 0 || o.Co() || len(o.Option) != 0 {
			t.Errorf("%x %q: %v", c.flags, c.options, o)
		}
	}
}

// Every response fits what the client takes, down to what every client does; only a text for people is left out for it.
func TestSizes(t *testing.T) {
	long := strings.Repeat(strings.Repeat("b", 60)+".", 4) + "test.x" // 250 octets
	p := policy(t, long, "*.wild.example.org")
	r := New(p, newAddresses(t, p, ""), true)
	if v4, _, err := r.addresses.Of(long); err != nil || v4.String() != "198.18.1.1" {
		t.Fatal(v4, err)
	}
	for _, name := range []string{host(long), host(longest), wire(nul(63), nul(63), nul(63), nul(61)), host("1.1.18.198.in-addr.arpa")} {
		for _, qtype := range []int{typeA, typeAAAA, typePTR, typeANY, typeTXT, typeAXFR} {
			for _, size := range []int{-1, 0, 1, 511, 512, 513, 600, 1231, 1232, 1233, 4096, 65535} {
				message, limit := edns(name, qtype, size), max(512, min(1232, size))
				if size < 0 {
					message, limit = one(name, qtype), 512
				}
				b, _ := r.Answer([]byte(message), false)
				if m, _ := r.answer(t, message, false); m.Truncated || len(b) > limit {
					t.Errorf("type %d, size %d: %d octets\n%v", qtype, size, len(b), m)
				}
			}
		}
	}
	small, _ := r.answer(t, edns(host(longest), typeA, 512), false)
	checkRefused(t, "512 octets", small)
	if e := extended(small); e == nil || e.InfoCode != 18 || e.ExtraText != "" {
		t.Errorf("512 octets: %v", e)
	}
	for _, m := range []*dns.Msg{first(r.answer(t, edns(host(longest), typeA, 1232), false)), first(r.answer(t, edns(host(longest), typeA, 512), true))} {
		if e := extended(m); e == nil || e.ExtraText != "pfar: "+longest+" is not in allowed_domains" {
			t.Errorf("%v", e)
		}
	}
}

func first(m *dns.Msg, _ Question) *dns.Msg { return m }

// No answer is so long today, but the client must hear of it.
func TestTruncated(t *testing.T) {
	q := query{question: dns.Question{Name: "api.example.com.", Qtype: typeA, Qclass: 1}}
	a := newAnswer(&q)
	a.addresses(netip.MustParseAddr("198.18.1.1"), netip.Addr{})
	whole := a.pack(512)
	a = newAnswer(&q)
	a.addresses(netip.MustParseAddr("198.18.1.1"), netip.Addr{})
	var m dns.Msg
	if err := m.Unpack(a.pack(len(whole))); err != nil || m.Truncated || len(m.Answer) != 1 {
		t.Errorf("%v, %v", m, err)
	}
	if err := m.Unpack(a.pack(len(whole) - 1)); err != nil || !m.Truncated || len(m.Answer) != 0 || len(m.Question) != 1 {
		t.Errorf("%v, %v", m, err)
	}
}

func TestAnswerConcurrently(t *testing.T) {
	r := newResolver(t, true, true)
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := range 200 {
				name := fmt.Sprintf("n%d.test", (i+c*25)%200)
				for _, qtype := range []int{typeA, typeAAAA, typeHTTPS} {
					b, asked := r.Answer([]byte(one(host(name), qtype)), false)
					var m dns.Msg
					if err := m.Unpack(b); err != nil || asked.Refused || (len(m.Answer) == 1) != (qtype != typeHTTPS) {
						t.Errorf("%q: %v, %+v, %v", name, err, asked, m)
					}
					for _, addr := range addressesIn(&m) {
						if back, ok := r.addresses.Name(addr); !ok || back != name {
							t.Errorf("%v is %q, want %q", addr, back, name)
						}
					}
				}
			}
		})
	}
	wg.Wait()
	if len(r.addresses.names) != 200 {
		t.Errorf("%d leases", len(r.addresses.names))
	}
}

func BenchmarkAnswer(b *testing.B) {
	for _, c := range []struct {
		what, message string
	}{
		{"declared", one(host(api), typeA)},
		{"declared EDNS", edns(host(api), typeAAAA, 1232)},
		{"wildcard", one(host("a.wild.example.org"), typeA)},
		{"none", one(host(api), typeHTTPS)},
		{"undeclared", one(host("evil.test"), typeA)},
		{"undeclared EDNS", edns(host("evil.test"), typeA, 1232)},
		{"malformed", one("\xc0\x0c", typeA)},
		{"64 KB", one(strings.Repeat("\x01a", 32000)+"\x00", typeA)},
	} {
		b.Run(c.what, func(b *testing.B) {
			r, message := newResolver(b, false, true), []byte(c.message)
			b.ReportAllocs()
			for b.Loop() {
				if response, _ := r.Answer(message, false); response == nil {
					b.Fatal("no response")
				}
			}
		})
	}
}

// TestBlocked: a blocked name does not exist, also while a server learns and where an entry has just this name.
func TestBlocked(t *testing.T) {
	for _, learn := range []bool{false, true} {
		p := policy(t, "*.wild.example.org", api)
		p.Blocked, p.Learn = policy(t, "ads.wild.example.org", api).Endpoints, learn
		r := New(p, newAddresses(t, p, ""), true)
		for _, name := range []string{"ads.wild.example.org", "ADS.wild.example.org", api} {
			m, asked := r.answer(t, edns(host(name), typeA, 1232), false)
			checkRefused(t, name, m)
			if e := extended(m); e == nil || !strings.HasSuffix(e.ExtraText, " is in blocked_domains") || asked.Reason != egress.NameBlocked || asked.Learned {
				t.Errorf("%s: %v, %+v", name, e, asked)
			}
		}
		if m, _ := r.answer(t, one(host("b.wild.example.org"), typeA), false); records(m) == "" {
			t.Error("a name beside it has no address")
		}
	}
}
