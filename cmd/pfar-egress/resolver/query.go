package resolver

import (
	"encoding/binary"
	"errors"

	"github.com/miekg/dns"
)

const (
	headerSize = 12 // octets, RFC 1035 section 4.1.1
	maxLabel   = 63 // octets, RFC 1035 section 3.1
	typeClass  = 4  // octets of a question behind its name
)

var errForm = errors.New("no DNS message that asks one question")

// query is what a message asks, as far as it could be read.
type query struct {
	header   dns.MsgHdr
	question dns.Question // Name "" if it could not be read
	opt      *dns.OPT     // nil: no EDNS
}

// read reads a message of at least headerSize octets. It takes less than RFC 1035 allows to be written: no pointer in
// the question, since there is nothing before it to point to but the header, no records but that of EDNS, and nothing
// behind the last one. No stub resolver sends such things, and programs differ in how they read them. Only the opcode
// is known of a message whose opcode is not QUERY.
func (q *query) read(b []byte) error {
	var m dns.Msg
	if err := m.Unpack(b[:headerSize]); err != nil {
		return errForm
	}
	q.header = m.MsgHdr
	if q.header.Opcode != dns.OpcodeQuery {
		return nil
	}
	count := func(i int) uint16 { return binary.BigEndian.Uint16(b[4+2*i:]) }
	if count(0) != 1 {
		return errForm
	}
	off, err := q.readQuestion(b)
	if err != nil {
		return err
	}
	authority := count(2)
	if q.question.Qtype == dns.TypeIXFR && authority == 1 { // RFC 1995 section 3: the serial that the client has
		soa, next, err := dns.UnpackRR(b, off)
		if err != nil || soa.Header().Rrtype != dns.TypeSOA {
			return errForm
		}
		off, authority = next, 0
	}
	if count(1) != 0 || authority != 0 || count(3) > 1 {
		return errForm
	}
	if count(3) == 1 {
		if off, err = q.readOPT(b, off); err != nil {
			return err
		}
	}
	if off != len(b) {
		return errForm
	}
	return nil
}

func (q *query) readQuestion(b []byte) (end int, err error) {
	name, end, err := dns.UnpackDomainName(b, headerSize)
	if err != nil || end+typeClass > len(b) {
		return 0, errForm
	}
	for off := headerSize; b[off] != 0; off += 1 + int(b[off]) {
		if b[off] > maxLabel { // a pointer
			return 0, errForm
		}
	}
	q.question = dns.Question{Name: name, Qtype: binary.BigEndian.Uint16(b[end:]), Qclass: binary.BigEndian.Uint16(b[end+2:])}
	return end + typeClass, nil
}

// readOPT reads the record of EDNS, whose owner is the root (RFC 6891 section 6.1.2). Of no other type the data is
// read.
func (q *query) readOPT(b []byte, off int) (end int, err error) {
	if off+3 > len(b) || b[off] != 0 || binary.BigEndian.Uint16(b[off+1:]) != dns.TypeOPT {
		return 0, errForm
	}
	rr, end, err := dns.UnpackRR(b, off)
	if err != nil {
		return 0, errForm
	}
	q.opt, _ = rr.(*dns.OPT)
	return end, nil
}
