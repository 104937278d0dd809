package clienthello

const (
	headerSize   = 5
	maxPlaintext = 1 << 14 // bytes of a record that is not encrypted, RFC 8446 5.1

	// maxRecords lets through a hello that was cut into records of one byte to get past a filter, and bounds what the
	// headers cost.
	maxRecords = 1024

	typeHandshake = 22
)

var (
	errNotTLS        = &Error{NotTLS, "The connection does not begin with a TLS handshake record."}
	errNotVersion3   = &Error{NotTLS, "The first record is of no TLS version."} // DTLS, for one
	errInterleaved   = &Error{Malformed, "A record of another type or version stands within the ClientHello."}
	errEmptyRecord   = &Error{Malformed, "A record is empty."}
	errLongRecord    = &Error{Malformed, "A record is longer than TLS allows."}
	errManyRecords   = &Error{TooLarge, "The ClientHello is spread over too many records."}
	errBeyondMessage = &Error{Malformed, "A record holds more than the ClientHello."}
)

// records joins what the records hold into one handshake message. It is given all that was read, again and again, and
// goes on where it stopped.
type records struct {
	limit  int
	count  int
	at     int    // of the bytes read, that were looked at
	left   int    // bytes of the record that have not been
	joined []byte // the message so far, from the second record on

	message message
}

// scan looks at what is new in raw and reports whether the message is complete.
func (s *records) scan(raw []byte) (done bool, err error) {
	for {
		if s.left == 0 {
			if begun, err := s.header(raw); err != nil || !begun {
				return false, err
			}
		}
		n := min(s.left, len(raw)-s.at)
		if n == 0 {
			return false, nil
		}
		held := raw[headerSize : s.at+n] // of the usual single record, nothing is copied
		if s.count > 1 {
			s.joined = append(s.joined, raw[s.at:s.at+n]...)
			held = s.joined
		}
		s.at += n
		s.left -= n
		if err := s.message.parse(held); err != nil || s.message.step == complete {
			return err == nil, err
		}
	}
}

// header reads a record's header, as soon as it is there. What is there of it is checked before the rest has come.
func (s *records) header(raw []byte) (begun bool, err error) {
	h := raw[s.at:min(len(raw), s.at+headerSize)]
	if err := checkHeader(h, s.count == 0); err != nil || len(h) < headerSize {
		return false, err
	}
	if s.count++; s.count > maxRecords {
		return false, errManyRecords
	}
	if s.count == 2 {
		s.joined = append(s.joined, raw[headerSize:s.at]...)
	}
	s.at += headerSize
	s.left = int(h[3])<<8 | int(h[4])
	s.message.record(s.at, s.left, s.limit)
	return true, s.message.bounds()
}

func checkHeader(h []byte, first bool) error {
	if len(h) >= 1 && h[0] != typeHandshake {
		if first {
			return errNotTLS // SSLv2 too, whose first byte has the highest bit set
		}
		return errInterleaved
	}
	if len(h) >= 2 && h[1] != 3 { // the second octet has to be let through, whatever it is: RFC 5246 E.1
		if first {
			return errNotVersion3
		}
		return errInterleaved
	}
	if len(h) >= 4 && int(h[3])<<8 > maxPlaintext {
		return errLongRecord
	}
	if len(h) < headerSize {
		return nil
	}
	switch n := int(h[3])<<8 | int(h[4]); {
	case n == 0: // RFC 8446 5.1 forbids it, and it would be a record for nothing
		return errEmptyRecord
	case n > maxPlaintext:
		return errLongRecord
	}
	return nil
}
