package resolver

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// Sizes of a response over UDP, in octets.
const (
	minUDP = 512  // RFC 1035 section 2.3.4
	maxUDP = 1232 // fits IPv6's smallest packet, so that it is never fragmented (DNS flag day 2020)
)

// answer is a response as it grows, with what is told about it.
type answer struct {
	question dns.Question
	message  dns.Msg
	opt      *dns.OPT // of the response, if the query had one
	version  uint8    // of EDNS, that the query wants
	asked    Question
}

func newAnswer(q *query) *answer {
	a := &answer{question: q.question}
	a.message.MsgHdr = dns.MsgHdr{
		Id: q.header.Id, Response: true, Opcode: q.header.Opcode,
		// Without RA, glibc and Go take an empty answer for a lame server's and go on to the next, or ask again.
		RecursionDesired: q.header.RecursionDesired, RecursionAvailable: true, CheckingDisabled: q.header.CheckingDisabled,
	}
	a.message.Compress = true
	if q.question.Name != "" {
		a.message.Question = []dns.Question{q.question}
		a.asked.Name, a.asked.Type = shorten(q.question.Name), dns.Type(q.question.Qtype).String()
	}
	if q.opt != nil {
		a.version = q.opt.Version()
		a.opt = &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		a.opt.SetUDPSize(maxUDP)
		a.opt.SetDo(q.opt.Do()) // RFC 3225 section 3
		a.message.Extra = []dns.RR{a.opt}
	}
	return a
}

// shorten returns a name in the escaped form of RFC 1035 section 5.1, which is printable ASCII, without its trailing
// dot.
func shorten(name string) string {
	const longest = 253
	if len(name) > longest {
		return name[:longest] + "..."
	}
	if name != "." && !strings.HasSuffix(name, `\.`) {
		name = strings.TrimSuffix(name, ".")
	}
	return name
}

// unsupported refuses what is no lookup of a name.
func (a *answer) unsupported() bool {
	t := a.question.Qtype
	switch {
	case a.message.Opcode != dns.OpcodeQuery:
		a.refuse(dns.RcodeNotImplemented, NotSupported)
	case a.version > 0:
		a.refuse(dns.RcodeBadVers, NotSupported)
	case a.question.Qclass != dns.ClassINET, t == dns.TypeAXFR, t == dns.TypeIXFR:
		a.refuse(dns.RcodeRefused, NotSupported)
		a.explain(dns.ExtendedErrorCodeNotSupported, "")
	default:
		return false
	}
	return true
}

func (a *answer) refuse(rcode int, reason string) {
	a.message.Rcode, a.asked.Refused, a.asked.Reason = rcode, true, reason
}

// prohibit says that the name does not exist. REFUSED would say it better, but has musl wait for its timeout and glibc
// ask again.
func (a *answer) prohibit(reason, text string) {
	a.refuse(dns.RcodeNameError, reason)
	a.negative(refusedTTL)
	a.explain(dns.ExtendedErrorCodeProhibited, text)
}

// exhaust is prohibit for a declared name that can have no address. SERVFAIL has musl wait, too.
func (a *answer) exhaust(reason string, err error) {
	a.refuse(dns.RcodeNameError, reason)
	a.asked.Learned, a.asked.Err = false, err
	a.negative(refusedTTL)
	a.explain(dns.ExtendedErrorCodeOther, "pfar: no address is left for "+a.asked.Name)
}

// explain adds an extended error, which only a query with EDNS can be given (RFC 8914 section 2).
func (a *answer) explain(code uint16, text string) {
	if a.opt != nil {
		a.opt.Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: code, ExtraText: text}}
	}
}

// addresses answers for a name that exists. To every other type the answer is that there is nothing of it: without
// HTTPS and SVCB there are neither hints nor keys for ECH (RFC 9460), and clients ask for A.
func (a *answer) addresses(v4, v6 netip.Addr) {
	switch t := a.question.Qtype; {
	case t == dns.TypeA && v4.IsValid():
		a.add(&dns.A{A: v4.AsSlice()})
	case t == dns.TypeAAAA && v6.IsValid():
		a.add(&dns.AAAA{AAAA: v6.AsSlice()})
	default:
		a.none()
	}
}

// pointer answers with the name of an address.
func (a *answer) pointer(name string) {
	if a.question.Qtype == dns.TypePTR {
		a.add(&dns.PTR{Ptr: name + "."})
		return
	}
	a.none()
}

// none answers that the name has no record of the type.
func (a *answer) none() {
	if a.question.Qtype == dns.TypeANY {
		a.add(&dns.HINFO{Cpu: "RFC8482"}) // section 4.2
		return
	}
	a.negative(ttl)
}

// add answers with a record whose owner is spelled as in the question: clients compare (draft-vixie-dnsext-dns0x20).
func (a *answer) add(rr dns.RR) {
	t := a.question.Qtype
	if t == dns.TypeANY {
		t = dns.TypeHINFO
	}
	*rr.Header() = dns.RR_Header{Name: a.question.Name, Rrtype: t, Class: dns.ClassINET, Ttl: ttl}
	a.message.Answer = []dns.RR{rr}
}

// negative says for how many seconds there is nothing (RFC 2308 section 3). The zone is the root: all names are here.
func (a *answer) negative(seconds uint32) {
	a.message.Ns = []dns.RR{&dns.SOA{
		Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: seconds},
		Ns:  "localhost.", Mbox: "nobody.invalid.", // RFC 6303 section 3
		Serial: 1, Refresh: 3600, Retry: 1200, Expire: 604800, Minttl: seconds,
	}}
}

// maxSize returns how many octets a response may have.
func maxSize(opt *dns.OPT, tcp bool) int {
	switch {
	case tcp:
		return dns.MaxMsgSize
	case opt == nil:
		return minUDP
	}
	return max(minUDP, min(maxUDP, int(opt.UDPSize()))) // below 512 means 512: RFC 6891 section 6.2.3
}

// pack returns the response in at most size octets. It rather leaves a text for people out than has the client come
// again over TCP.
func (a *answer) pack(size int) []byte {
	b, err := a.message.Pack()
	if err == nil && len(b) > size && a.opt != nil {
		for _, o := range a.opt.Option {
			o.(*dns.EDNS0_EDE).ExtraText = ""
		}
		b, err = a.message.Pack()
	}
	if err == nil && len(b) > size {
		a.message.Truncated, a.message.Answer, a.message.Ns = true, nil, nil
		b, err = a.message.Pack()
	}
	if err != nil { // of a message that was not built here
		return nil
	}
	return b
}
