package resolver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/pfar/pfar/policies/egress"
)

const (
	api  = "api.example.com"
	api6 = "1.0.1.0.2.1.6.c.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.2.0.0.0.1.0.0.2" // its address in the reverse tree
)

// names that are no names, or are not declared: the rcode of each is NXDOMAIN.
var hostileNames = []struct {
	what   string
	name   string // as octets
	reason string
	told   string // Question.Name
}{
	{"the root", "\x00", egress.BadName, "."},
	{"another name", host("evil.test"), egress.NameNotDeclared, "evil.test"},
	{"data in a label", host("c2VjcmV0.evil.test"), egress.NameNotDeclared, "c2VjcmV0.evil.test"},
	{"a declared name in front", host(api + ".evil.test"), egress.NameNotDeclared, api + ".evil.test"},
	{"a declared name glued on", host("evil" + api), egress.NameNotDeclared, "evil" + api},
	{"below a declared name", host("x." + api), egress.NameNotDeclared, "x." + api},
	{"its parent", host("example.com"), egress.NameNotDeclared, "example.com"},
	{"its sibling", host("www.example.com"), egress.NameNotDeclared, "www.example.com"},
	{"its first label", host("api"), egress.NameNotDeclared, "api"},
	{"its top level", host("com"), egress.NameNotDeclared, "com"},
	{"a search domain behind it", host(api + ".lan"), egress.NameNotDeclared, api + ".lan"},
	{"the wildcard's apex", host("wild.example.org"), egress.NameNotDeclared, "wild.example.org"},
	{"two labels below a wildcard", host("a.b.wild.example.org"), egress.NameNotDeclared, "a.b.wild.example.org"},
	{"the wildcard itself", host("*.wild.example.org"), egress.BadName, "*.wild.example.org"},
	{"a wildcard of all", host("*"), egress.BadName, "*"},
	{"the A-label's U-label", host("bücher.example"), egress.BadName, `b\195\188cher.example`},
	{"an A-label of another name", host("xn--bchr-0ra.example"), egress.NameNotDeclared, "xn--bchr-0ra.example"},
	{"an A-label that does not decode", host("xn--a.example"), egress.BadName, "xn--a.example"},
	{"an A-label of nothing", host("xn--.example"), egress.BadName, "xn--.example"},
	{"an A-label of ASCII", host("xn--api-.example.com"), egress.BadName, "xn--api-.example.com"},
	{"a dot within a label", wire("api.example", "com"), egress.BadName, `api\.example.com`},
	{"a name within a label", wire(api), egress.BadName, `api\.example\.com`},
	{"a dot at a label's end", wire("api.", "example", "com"), egress.BadName, `api\..example.com`},
	{"a dot at the name's end", wire("api", "example", "com."), egress.BadName, `api.example.com\.`},
	{"a label of a dot", wire("."), egress.BadName, `\.`},
	{"a dot within a wildcard's label", wire("a.b", "wild", "example", "org"), egress.BadName, `a\.b.wild.example.org`},
	{"NUL at the end", wire("api", "example", "com\x00"), egress.BadName, `api.example.com\000`},
	{"NUL, and a name behind it", wire("api", "example", "com\x00", "evil", "test"), egress.BadName, `api.example.com\000.evil.test`},
	{"NUL in front", wire("\x00api", "example", "com"), egress.BadName, `\000api.example.com`},
	{"a backslash", wire(`api\046example`, "com"), egress.BadName, `api\\046example.com`},
	{"a new line", wire("api\nverdict=allow", "test"), egress.BadName, `api\010verdict=allow.test`},
	{"an escape sequence", wire("\x1b[2J", "test"), egress.BadName, `\027[2J.test`},
	{"white space", wire("api example", "com"), egress.BadName, `api\ example.com`},
	{"white space behind", wire("api", "example", "com "), egress.BadName, `api.example.com\ `},
	{"DEL", wire("api\x7f", "example", "com"), egress.BadName, `api\127.example.com`},
	{"octets beyond ASCII", wire("\xff\xfe", "com"), egress.BadName, `\255\254.com`},
	{"a full-width dot", wire("api。example", "com"), egress.BadName, `api\227\128\130example.com`},
	{"the Kelvin sign", wire("api", "example", "\u212aom"), egress.BadName, `api.example.\226\132\170om`},
	{"an underscore", host("_dmarc.example.com"), egress.BadName, "_dmarc.example.com"},
	{"an underscore below a wildcard", host("a_b.wild.example.org"), egress.BadName, "a_b.wild.example.org"},
	{"a service of a declared name", host("_443._tcp." + api), egress.BadName, "_443._tcp." + api},
	{"a hyphen in front", host("-a.wild.example.org"), egress.BadName, "-a.wild.example.org"},
	{"a hyphen behind", host("a-.wild.example.org"), egress.BadName, "a-.wild.example.org"},
	{"a colon and a port", wire("api", "example", "com:443"), egress.BadName, "api.example.com:443"},
	{"user information", wire("x@api", "example", "com"), egress.BadName, `x\@api.example.com`},
	{"a path", wire("api", "example", "com/"), egress.BadName, "api.example.com/"},
	{"a percent sign", wire("api%2eexample", "com"), egress.BadName, "api%2eexample.com"},
	{"an address", host("127.0.0.1"), egress.BadName, "127.0.0.1"},
	{"a declared address", host("192.0.2.7"), egress.BadName, "192.0.2.7"},
	{"an address of a declared prefix", host("10.1.2.3"), egress.BadName, "10.1.2.3"},
	{"an address in one label", wire("192.0.2.7"), egress.BadName, `192\.0\.2\.7`},
	{"an address as one number", host("3221225991"), egress.BadName, "3221225991"},
	{"an address in hexadecimal", host("0xc0000207"), egress.BadName, "0xc0000207"},
	{"an address of IPv6", wire("2001:db8::1"), egress.BadName, "2001:db8::1"},
	{"an address with a zone", wire("2001:db8::1%lo"), egress.BadName, "2001:db8::1%lo"},
	{"a mapped address", wire("::ffff:7f00:1"), egress.BadName, "::ffff:7f00:1"},
	{"a label of 63 octets", host(strings.Repeat("b", 63) + ".test"), egress.NameNotDeclared, strings.Repeat("b", 63) + ".test"},
	{"255 octets", host(longest), egress.NameNotDeclared, longest},
	{"255 octets of NUL", wire(nul(63), nul(63), nul(63), nul(61)), egress.BadName, strings.Repeat(`\000`, 63) + "...."},
	{"127 labels", host(strings.Repeat("a.", 126) + "a"), egress.NameNotDeclared, strings.Repeat("a.", 126) + "a"},
	{"localhost in front", host("localhost.evil.test"), egress.NameNotDeclared, "localhost.evil.test"},
	{"localhost glued on", host("evillocalhost"), egress.NameNotDeclared, "evillocalhost"},
	{"a bad name below localhost", host("a_b.localhost"), egress.BadName, "a_b.localhost"},
	{"a host's own domain", host("localhost.localdomain"), egress.NameNotDeclared, "localhost.localdomain"},
	{"a service's discovery", host("_dns.resolver.arpa"), egress.BadName, "_dns.resolver.arpa"},
	{"the metadata service", host("metadata.google.internal"), egress.NameNotDeclared, "metadata.google.internal"},
	{"a synthetic address that no name has", host("200.1.18.198.in-addr.arpa"), egress.NameNotDeclared, "200.1.18.198.in-addr.arpa"},
	{"the namespace's own address", host("1.0.18.198.in-addr.arpa"), egress.NameNotDeclared, "1.0.18.198.in-addr.arpa"},
	{"a lease that nobody has", host("1.0.19.198.in-addr.arpa"), egress.NameNotDeclared, "1.0.19.198.in-addr.arpa"},
	{"another address", host("1.0.0.10.in-addr.arpa"), egress.NameNotDeclared, "1.0.0.10.in-addr.arpa"},
	{"part of an address", host("18.198.in-addr.arpa"), egress.NameNotDeclared, "18.198.in-addr.arpa"},
	{"more than an address", host("x.1.1.18.198.in-addr.arpa"), egress.NameNotDeclared, "x.1.1.18.198.in-addr.arpa"},
	{"an address with a zero in front", host("1.01.18.198.in-addr.arpa"), egress.NameNotDeclared, "1.01.18.198.in-addr.arpa"},
	{"all addresses", host("in-addr.arpa"), egress.NameNotDeclared, "in-addr.arpa"},
	{"part of an address of IPv6", host("2.0.0.0.1.0.0.2.ip6.arpa"), egress.NameNotDeclared, "2.0.0.0.1.0.0.2.ip6.arpa"},
	{"another address of IPv6", host(strings.Repeat("1.", 32) + "ip6.arpa"), egress.NameNotDeclared, strings.Repeat("1.", 32) + "ip6.arpa"},
	{"no digit of IPv6", host(strings.Repeat("g.", 32) + "ip6.arpa"), egress.NameNotDeclared, strings.Repeat("g.", 32) + "ip6.arpa"},
	{"digits of IPv6 in one label", host(strings.ReplaceAll(api6, ".", "-") + ".ip6.arpa"), egress.NameNotDeclared, strings.ReplaceAll(api6, ".", "-") + ".ip6.arpa"},
}

func nul(n int) string { return strings.Repeat("\x00", n) }

// longest has 253 octets as text, and 255 in a message.
var longest = strings.Repeat(strings.Repeat("b", 49)+".", 5) + "tes"

func TestHostileNames(t *testing.T) {
	r := newResolver(t, false, true)
	for _, c := range hostileNames {
		for _, qtype := range []int{typeA, typeAAAA, typePTR, typeTXT, typeSRV, typeSVCB, typeHTTPS, typeANY, 0, typeOPT, 65535} {
			for _, tcp := range []bool{false, true} {
				m, asked := r.answer(t, one(c.name, qtype), tcp)
				checkRefused(t, fmt.Sprintf("%s, type %d, tcp %t", c.what, qtype, tcp), m)
				told := strings.ToLower(c.told)
				if c.reason == egress.BadName {
					told = c.told
				}
				want := Question{Name: told, Type: dns.Type(qtype).String(), Refused: true, Reason: c.reason}
				if asked != want {
					t.Errorf("%s, type %d: %+v, want %+v", c.what, qtype, asked, want)
				}
				if m.IsEdns0() != nil {
					t.Errorf("%s: EDNS that was not asked for", c.what)
				}
			}
		}
		m, asked := r.answer(t, edns(c.name, typeA, 4096), false)
		checkRefused(t, c.what+" with EDNS", m)
		text := "pfar: " + asked.Name + " is not in allowed_domains"
		if c.reason == egress.BadName {
			text = "pfar: " + asked.Name + " is not a host name"
		}
		if e := extended(m); e == nil || e.InfoCode != 18 || e.ExtraText != text {
			t.Errorf("%s: extended error %v, want 18 and %q", c.what, e, text)
		}
	}
}

// checkRefused wants NXDOMAIN for one second and no address.
func checkRefused(t *testing.T, what string, m *dns.Msg) {
	t.Helper()
	if m.Rcode != dns.RcodeNameError || m.Truncated || len(m.Question) != 1 || len(m.Answer) != 0 || len(m.Ns) != 1 || addressesIn(m) != nil {
		t.Fatalf("%s: %v", what, m)
	}
	if soa, ok := m.Ns[0].(*dns.SOA); !ok || soa.Hdr.Name != "." || soa.Hdr.Ttl != 1 || soa.Minttl != 1 {
		t.Fatalf("%s: %v", what, m.Ns[0])
	}
}

func TestHostileMessages(t *testing.T) {
	ok, api := host(api)+u16(typeA, 1), host(api)
	soa := "\xc0\x0c" + u16(6, 1, 0, 0, 22) + "\x00\x00" + strings.Repeat("\x00", 20)
	record := "\xc0\x0c" + u16(typeA, 1, 0, 60, 4) + "\x7f\x00\x00\x01"
	none := Question{}
	form := Question{Refused: true, Reason: BadQuery}
	asks := func(q Question, name, qtype string) Question {
		q.Name, q.Type = name, qtype
		return q
	}
	formAPI := asks(form, "api.example.com", "A")
	unsupported := Question{Refused: true, Reason: NotSupported}
	for _, c := range []struct {
		what    string
		message string
		rcode   int // -1: no response
		asked   Question
	}{
		{"nothing", "", -1, none},
		{"one octet", "p", -1, none},
		{"less than a header", head(0, 1)[:11], -1, none},
		{"a response", head(0x8000, 1) + ok, -1, none},
		{"a response with an error", head(0x8003, 1) + ok, -1, none},
		{"a response of another opcode", head(0xa800), -1, none},

		{"opcode IQUERY", head(1<<11, 1) + ok, dns.RcodeNotImplemented, unsupported},
		{"opcode STATUS", head(2<<11, 1) + ok, dns.RcodeNotImplemented, unsupported},
		{"opcode 3", head(3<<11, 1) + ok, dns.RcodeNotImplemented, unsupported},
		{"opcode NOTIFY", head(4<<11, 1) + host("example.com") + u16(6, 1), dns.RcodeNotImplemented, unsupported},
		{"opcode UPDATE", head(5<<11, 1, 0, 1) + ok + record, dns.RcodeNotImplemented, unsupported},
		{"opcode DSO", head(6 << 11), dns.RcodeNotImplemented, unsupported},
		{"opcode 15 and nonsense", head(15<<11, 9, 9, 9, 9) + "\xff\xff", dns.RcodeNotImplemented, unsupported},

		{"no question", head(0), dns.RcodeFormatError, form},
		{"no question, with EDNS", head(0, 0, 0, 0, 1) + opt(1232, 0, 0, ""), dns.RcodeFormatError, form},
		{"two questions", head(0, 2) + ok + ok, dns.RcodeFormatError, form},
		{"a declared question, and another", head(0, 2) + ok + host("evil.test") + u16(typeA, 1), dns.RcodeFormatError, form},
		{"65535 questions", head(0, 65535) + ok, dns.RcodeFormatError, form},
		{"a question that is not there", head(0, 1), dns.RcodeFormatError, form},
		{"a name that ends", head(0, 1) + "\x03ap", dns.RcodeFormatError, form},
		{"a name without an end", head(0, 1) + "\x03api\x07example\x03com", dns.RcodeFormatError, form},
		{"no type", head(0, 1) + api, dns.RcodeFormatError, form},
		{"half a type", head(0, 1) + api + "\x00", dns.RcodeFormatError, form},
		{"no class", head(0, 1) + api + u16(typeA), dns.RcodeFormatError, form},
		{"half a class", head(0, 1) + api + u16(typeA) + "\x00", dns.RcodeFormatError, form},

		{"a pointer to itself", head(0, 1) + "\xc0\x0c" + u16(typeA, 1), dns.RcodeFormatError, form},
		{"a label, and a pointer to it", head(0, 1) + "\x03api\xc0\x0c" + u16(typeA, 1), dns.RcodeFormatError, form},
		{"a pointer into the header", head(0, 1) + "\x03api\xc0\x04" + u16(typeA, 1), dns.RcodeFormatError, form},
		{"a pointer to what follows", head(0, 1) + "\xc0\x12" + u16(typeA, 1) + api, dns.RcodeFormatError, form},
		{"a pointer beyond the end", head(0, 1) + "\xff\xff" + u16(typeA, 1), dns.RcodeFormatError, form},
		{"a pointer that looks like a label", head(0, 1) + "\xc0\x04" + strings.Repeat("a", 191) + "\x00" + u16(typeA, 1), dns.RcodeFormatError, form},
		{"a pointer to the end of another name", head(0, 1) + "\x03api\xc0\x09" + u16(typeA, 1), dns.RcodeFormatError, form},
		{"half a pointer", head(0, 1) + "\xc0", dns.RcodeFormatError, form},
		{"a label of type 0x40", head(0, 1) + "\x43api\x00" + u16(typeA, 1), dns.RcodeFormatError, form},
		{"a bit label (RFC 2673)", head(0, 1) + "\x41\x08\xff\x00" + u16(typeA, 1), dns.RcodeFormatError, form},
		{"a label of type 0x80", head(0, 1) + "\x83api\x00" + u16(typeA, 1), dns.RcodeFormatError, form},
		{"a label of 64 octets", head(0, 1) + wire(strings.Repeat("a", 64)) + u16(typeA, 1), dns.RcodeFormatError, form},
		{"256 octets", head(0, 1) + host(longest+"t") + u16(typeA, 1), dns.RcodeFormatError, form},
		{"256 octets of dots", head(0, 1) + wire(strings.Repeat(".", 63), strings.Repeat(".", 63), strings.Repeat(".", 63), strings.Repeat(".", 62)) + u16(typeA, 1), dns.RcodeFormatError, form},
		{"a name of 64 KB", head(0, 1) + strings.Repeat("\x01a", 32000) + "\x00" + u16(typeA, 1), dns.RcodeFormatError, form},

		{"an answer in a query", head(0, 1, 1) + ok + record, dns.RcodeFormatError, formAPI},
		{"an answer that is not there", head(0, 1, 1) + ok, dns.RcodeFormatError, formAPI},
		{"an authority in a query", head(0, 1, 0, 1) + ok + soa, dns.RcodeFormatError, formAPI},
		{"an additional record of another type", head(0, 1, 0, 0, 1) + ok + record, dns.RcodeFormatError, formAPI},
		{"an additional record of the root's", head(0, 1, 0, 0, 1) + ok + "\x00" + record[2:], dns.RcodeFormatError, formAPI},
		{"an additional record that is not there", head(0, 1, 0, 0, 1) + ok, dns.RcodeFormatError, formAPI},
		{"a record behind EDNS", head(0, 1, 0, 0, 2) + ok + opt(1232, 0, 0, "") + record, dns.RcodeFormatError, formAPI},
		{"EDNS twice", head(0, 1, 0, 0, 2) + ok + opt(1232, 0, 0, "") + opt(1232, 0, 0, ""), dns.RcodeFormatError, formAPI},
		{"EDNS of an owner", head(0, 1, 0, 0, 1) + ok + "\x01a" + opt(1232, 0, 0, ""), dns.RcodeFormatError, formAPI},
		{"EDNS of a pointed owner", head(0, 1, 0, 0, 1) + ok + "\xc0\x1c" + opt(1232, 0, 0, "")[1:], dns.RcodeFormatError, formAPI},
		{"EDNS of an owner that looks like none", head(0, 1, 0, 0, 1) + ok + wire("\x00", strings.Repeat("a", 41)) + opt(1232, 0, 0, "")[1:], dns.RcodeFormatError, formAPI},
		{"two additional records that are not there", head(0, 1, 0, 0, 2) + ok, dns.RcodeFormatError, formAPI},
		{"EDNS cut short", head(0, 1, 0, 0, 1) + ok + opt(1232, 0, 0, "")[:7], dns.RcodeFormatError, formAPI},
		{"EDNS longer than the message", head(0, 1, 0, 0, 1) + ok + opt(1232, 0, 0, "abcd")[:13], dns.RcodeFormatError, formAPI},
		{"an option longer than EDNS", head(0, 1, 0, 0, 1) + ok + opt(1232, 0, 0, u16(10, 9)+"12345678"), dns.RcodeFormatError, formAPI},
		{"half an option", head(0, 1, 0, 0, 1) + ok + opt(1232, 0, 0, "\x00\x0a\x00"), dns.RcodeFormatError, formAPI},
		{"a client's subnet that is none (RFC 7871)", head(0, 1, 0, 0, 1) + ok + opt(1232, 0, 0, u16(8, 4, 1)+"\xff\x00"), dns.RcodeFormatError, formAPI},
		{"something behind the question", head(0, 1) + ok + "\x00", dns.RcodeFormatError, formAPI},
		{"a second query behind it", head(0, 1) + ok + one(host("evil.test"), typeA), dns.RcodeFormatError, formAPI},
		{"something behind EDNS", head(0, 1, 0, 0, 1) + ok + opt(1232, 0, 0, "") + "x", dns.RcodeFormatError, formAPI},

		{"EDNS version 1", head(0, 1, 0, 0, 1) + ok + opt(1232, 1, 0, ""), dns.RcodeBadVers, asks(unsupported, "api.example.com", "A")},
		{"EDNS version 255", head(0, 1, 0, 0, 1) + ok + opt(1232, 255, 0, ""), dns.RcodeBadVers, asks(unsupported, "api.example.com", "A")},
		{"EDNS version 1 for another name", head(0, 1, 0, 0, 1) + host("evil.test") + u16(typeA, 1) + opt(1232, 1, 0, ""), dns.RcodeBadVers, asks(unsupported, "evil.test", "A")},

		{"AXFR", one(api, typeAXFR), dns.RcodeRefused, asks(unsupported, "api.example.com", "AXFR")},
		{"AXFR of the root", one("\x00", typeAXFR), dns.RcodeRefused, asks(unsupported, ".", "AXFR")},
		{"IXFR", head(0, 1, 0, 1) + api + u16(typeIXFR, 1) + soa, dns.RcodeRefused, asks(unsupported, "api.example.com", "IXFR")},
		{"IXFR without a serial", one(api, typeIXFR), dns.RcodeRefused, asks(unsupported, "api.example.com", "IXFR")},
		{"IXFR with another record", head(0, 1, 0, 1) + api + u16(typeIXFR, 1) + record, dns.RcodeFormatError, asks(form, "api.example.com", "IXFR")},
		{"IXFR with half a serial", head(0, 1, 0, 1) + api + u16(typeIXFR, 1) + soa[:20], dns.RcodeFormatError, asks(form, "api.example.com", "IXFR")},

		{"class 0", head(0, 1) + api + u16(typeA, 0), dns.RcodeRefused, asks(unsupported, "api.example.com", "A")},
		{"class CHAOS", head(0, 1) + host("version.bind") + u16(typeTXT, 3), dns.RcodeRefused, asks(unsupported, "version.bind", "TXT")},
		{"class HESIOD", head(0, 1) + api + u16(typeA, 4), dns.RcodeRefused, asks(unsupported, "api.example.com", "A")},
		{"class NONE", head(0, 1) + api + u16(typeA, 254), dns.RcodeRefused, asks(unsupported, "api.example.com", "A")},
		{"class ANY", head(0, 1) + api + u16(typeA, 255), dns.RcodeRefused, asks(unsupported, "api.example.com", "A")},
		{"multicast DNS's bit", head(0, 1) + api + u16(typeA, 0x8001), dns.RcodeRefused, asks(unsupported, "api.example.com", "A")},
		{"an escape in another class", head(0, 1) + wire("\x1b", "test") + u16(typeA, 3), dns.RcodeRefused, asks(unsupported, `\027.test`, "A")},
	} {
		for _, learn := range []bool{false, true} {
			r := newResolver(t, learn, true)
			for _, tcp := range []bool{false, true} {
				m, asked := r.answer(t, c.message, tcp)
				if asked != c.asked {
					t.Errorf("%s: %+v, want %+v", c.what, asked, c.asked)
				}
				if m == nil {
					if c.rcode != -1 {
						t.Errorf("%s: no response", c.what)
					}
					continue
				}
				if m.Rcode != c.rcode || len(m.Answer)+len(m.Ns) != 0 || m.Truncated || (len(m.Question) == 1) != (asked.Name != "") {
					t.Errorf("%s: want rcode %d and nothing else:\n%v", c.what, c.rcode, m)
				}
				if o := m.IsEdns0(); o != nil && o.Version() != 0 {
					t.Errorf("%s: EDNS version %d", c.what, o.Version())
				}
			}
			if len(r.addresses.names) != 0 {
				t.Errorf("%s: leases %q", c.what, r.addresses.names)
			}
		}
	}
}

func TestUnsupportedIsExplained(t *testing.T) {
	r := newResolver(t, false, true)
	for _, message := range []string{edns(host(api), typeAXFR, 1232), head(0, 1, 0, 0, 1) + host(api) + u16(typeA, 3) + opt(1232, 0, 0, "")} {
		if m, _ := r.answer(t, message, true); m.Rcode != dns.RcodeRefused || extended(m) == nil || extended(m).InfoCode != 21 {
			t.Errorf("%v", m)
		}
	}
}

// A name of 255 octets can have a thousand characters, of which a log needs no more than it would of a proper name.
func TestLongEscapes(t *testing.T) {
	r := newResolver(t, false, true)
	m, asked := r.answer(t, edns(wire(nul(63), nul(63), nul(63), nul(61)), typeA, 4096), false)
	if len(asked.Name) != 256 {
		t.Errorf("%d octets: %s", len(asked.Name), asked.Name)
	}
	if e := extended(m); e == nil || e.ExtraText != "pfar: "+asked.Name+" is not a host name" {
		t.Errorf("%v", e)
	}
}

// Learning gives addresses to well-formed names that are not in the tree of addresses, and to nothing else.
func TestHostileNamesWhileLearning(t *testing.T) {
	for _, c := range hostileNames {
		r := newResolver(t, true, true)
		m, asked := r.answer(t, one(c.name, typeA), false)
		if c.reason == egress.BadName || strings.HasSuffix(c.told, ".arpa") {
			checkRefused(t, c.what, m)
			if !asked.Refused || asked.Learned || asked.Reason != c.reason || len(r.addresses.names) != 0 {
				t.Errorf("%s: %+v, leases %q", c.what, asked, r.addresses.names)
			}
			continue
		}
		name := strings.ToLower(c.told)
		if got := addressesIn(m); m.Rcode != dns.RcodeSuccess || len(got) != 1 || got[0].String() != "198.19.0.1" {
			t.Errorf("%s: %v", c.what, m)
		}
		if want := (Question{Name: name, Type: "A", Learned: true, Reason: egress.NameNotDeclared}); asked != want {
			t.Errorf("%s: %+v, want %+v", c.what, asked, want)
		}
	}
	r := newResolver(t, true, true)
	for _, name := range []string{"localhost", "a.localhost", api, "printer"} { // need no lease
		m, asked := r.answer(t, one(host(name), typeA), false)
		if m.Rcode != dns.RcodeSuccess || asked.Learned || asked.Refused || len(r.addresses.names) != 0 {
			t.Errorf("%q: %+v, leases %q", name, asked, r.addresses.names)
		}
	}
}

func TestTooManyNames(t *testing.T) {
	r := newResolver(t, true, true)
	for i := range maxLeases {
		v4, _, err := r.addresses.Of(fmt.Sprintf("n%d.test", i))
		if err != nil {
			t.Fatal(err)
		}
		r.addresses.Hold(v4) // each has an open connection
	}
	for _, learnt := range []string{"one-more.test", "one-more.wild.example.org"} {
		m, asked := r.answer(t, edns(host(learnt), typeAAAA, 1232), false)
		checkRefused(t, learnt, m)
		if want := (Question{Name: learnt, Type: "AAAA", Refused: true, Reason: TooManyNames}); asked != want {
			t.Errorf("%+v, want %+v", asked, want)
		}
		if e := extended(m); e == nil || e.InfoCode != 0 || e.ExtraText != "pfar: no address is left for "+learnt {
			t.Errorf("%v", e)
		}
	}
	for _, had := range []string{"n0.test", "n4095.test", api} { // who has an address keeps it
		if m, asked := r.answer(t, one(host(had), typeA), false); len(addressesIn(m)) != 1 || asked.Refused {
			t.Errorf("%q: %+v", had, asked)
		}
	}
}

func TestNoLease(t *testing.T) {
	p := policy(t, declaredHere...)
	a, err := NewAddresses(p, filepath.Join(t.TempDir(), "leases"))
	if err != nil {
		t.Fatal(err)
	}
	r := New(p, a, true)
	if m, _ := r.answer(t, one(host("a.wild.example.org"), typeA), false); len(addressesIn(m)) != 1 {
		t.Fatal(m)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	m, asked := r.answer(t, one(host("b.wild.example.org"), typeA), false)
	checkRefused(t, "after Close", m)
	if !errors.Is(asked.Err, os.ErrClosed) || asked.Reason != NoLease || !asked.Refused {
		t.Errorf("%+v", asked)
	}
	for _, had := range []string{"a.wild.example.org", api} {
		if m, asked := r.answer(t, one(host(had), typeA), false); len(addressesIn(m)) != 1 || asked.Refused {
			t.Errorf("%q: %+v", had, asked)
		}
	}
}
