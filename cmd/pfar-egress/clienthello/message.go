package clienthello

import (
	"net/netip"
	"slices"
	"strings"
)

const (
	typeClientHello = 1
	messageHeader   = 4
	randomSize      = 32
	maxSessionID    = 32

	// maxExtensions bounds the search for one that is there twice. IANA has registered some sixty; GREASE (RFC 8701)
	// adds a few.
	maxExtensions = 128

	// maxName is RFC 1035's 255 octets of a name, in text and without the root's dot.
	maxName = 253
	// nameOverhead is what stands before the name in the extension: the list's length, a type, the name's length.
	nameOverhead = 5
)

// Extensions, by their numbers in IANA's registry or in a draft.
const (
	extServerName = 0
	extECHOuter   = 0xfd00 // ech_outer_extensions, of an inner hello alone
	extECHFirst   = 0xfe08 // draft-ietf-tls-esni-08, and so on until
	extECHLast    = 0xfe0d // draft-ietf-tls-esni-13 to RFC 9849
	extECHDraft7  = 0xff02 // draft-ietf-tls-esni-07
	extECHDraft7b = 0xff03 // its outer nonce
	extESNI       = 0xffce // draft-ietf-tls-esni-00 to 06
)

var (
	errNotHello       = &Error{Malformed, "The first handshake message is not a ClientHello."}
	errLength         = &Error{Malformed, "A length in the ClientHello does not fit what it stands for."}
	errHelloVersion   = &Error{Malformed, "The ClientHello is of no TLS version."}
	errDuplicate      = &Error{Malformed, "An extension of the ClientHello is there twice."}
	errManyExtensions = &Error{TooLarge, "The ClientHello has too many extensions."}

	errNameLength  = &Error{ServerName, "A length in the server_name extension does not fit what it stands for."}
	errNameType    = &Error{ServerName, "The server_name extension holds something else than a host name."}
	errNameNotOne  = &Error{ServerName, "The server_name extension does not hold exactly one name."}
	errNameEmpty   = &Error{ServerName, "The server name is empty."}
	errNameLong    = &Error{ServerName, "The server name is longer than a host name can be."}
	errNameLetters = &Error{ServerName, "The server name holds a byte that is not printable ASCII."}
	errNameDot     = &Error{ServerName, "The server name ends in a dot."}
	errNameAddress = &Error{ServerName, "The server name is an address."}
)

// step is the part of the message that is awaited.
type step uint8

const (
	messageType step = iota
	messageLength
	version
	random
	sessionIDLength
	sessionID
	suitesLength
	suites
	compressionLength
	compression
	extensionsLength
	extensionHeader
	extensionBody
	complete
)

// message parses a ClientHello (RFC 8446 4.1.2, RFC 5246 7.4.1.2) part by part, each as soon as all of it is there.
// Lengths are judged before what they announce has come.
type message struct {
	step step
	at   int // bytes parsed
	need int // bytes of the awaited part
	size int // of the message with its header; 0 until known

	// Of the record that is being read: where it ends in the message, and among all bytes.
	end, rawEnd, limit int

	extension  uint16
	seen       [maxExtensions]uint16
	extensions int

	hello Hello
}

// parse goes on in held, which is the message from its beginning to where it has come.
func (m *message) parse(held []byte) error {
	for m.step != complete {
		if m.at+m.need > len(held) {
			return nil
		}
		part := held[m.at : m.at+m.need]
		m.at += m.need
		if err := m.take(part); err != nil {
			return err
		}
		if m.size > 0 && m.at+m.need > m.size {
			return errLength
		}
	}
	return nil
}

// take looks at the awaited part and says what comes next.
func (m *message) take(part []byte) error {
	switch m.step {
	case messageType:
		if part[0] != typeClientHello {
			return errNotHello
		}
		m.await(messageLength, 3)
	case messageLength:
		m.size = messageHeader + int(part[0])<<16 + number(part[1:])
		if err := m.bounds(); err != nil {
			return err
		}
		m.await(version, 2)
	case version:
		if part[0] != 3 {
			return errHelloVersion
		}
		m.await(random, randomSize)
	case random:
		m.await(sessionIDLength, 1)
	case sessionIDLength:
		if part[0] > maxSessionID {
			return errLength
		}
		m.await(sessionID, int(part[0]))
	case sessionID:
		m.await(suitesLength, 2)
	case suitesLength:
		if n := number(part); n < 2 || n%2 != 0 {
			return errLength
		}
		m.await(suites, number(part))
	case suites:
		m.await(compressionLength, 1)
	case compressionLength:
		if part[0] == 0 {
			return errLength
		}
		m.await(compression, int(part[0]))
	case compression:
		m.awaitUnlessEnd(extensionsLength, 2)
	case extensionsLength:
		if number(part) != m.size-m.at {
			return errLength
		}
		m.awaitUnlessEnd(extensionHeader, 4)
	case extensionHeader:
		return m.takeExtensionHeader(number(part[:2]), number(part[2:]))
	case extensionBody:
		if m.extension == extServerName {
			if err := m.takeServerName(part); err != nil {
				return err
			}
		}
		m.awaitUnlessEnd(extensionHeader, 4)
	}
	return nil
}

func (m *message) await(s step, need int) { m.step, m.need = s, need }

func (m *message) awaitUnlessEnd(s step, need int) {
	if m.at == m.size {
		s, need = complete, 0
	}
	m.await(s, need)
}

// record says that the next record's payload of n bytes begins at a place among all bytes.
func (m *message) record(at, n, limit int) {
	m.end += n
	m.rawEnd = at + n
	m.limit = limit
}

// bounds judges the message's length, if it is known, against the limit and against the record that is being read.
// Nothing may follow the hello in its record: in TLS 1.3 it has to end with it, since keys may change after it (RFC
// 8446 5.1), and in earlier versions there is nothing that a client could say before the server has answered.
func (m *message) bounds() error {
	if m.size == 0 {
		return nil
	}
	rest := m.size - m.end
	if rest < 0 {
		return errBeyondMessage
	}
	headers := (rest + maxPlaintext - 1) / maxPlaintext * headerSize
	if m.rawEnd+rest+headers > m.limit {
		return errTooLarge
	}
	return nil
}

func (m *message) takeExtensionHeader(kind, length int) error {
	m.extension = uint16(kind)
	if slices.Contains(m.seen[:m.extensions], m.extension) { // RFC 8446 4.2; of two names, each program takes its own
		return errDuplicate
	}
	if m.extensions == maxExtensions {
		return errManyExtensions
	}
	m.seen[m.extensions] = m.extension
	m.extensions++
	switch e := m.extension; {
	case e == extServerName && length > nameOverhead+maxName:
		return errNameLong
	case e >= extECHFirst && e <= extECHLast, e == extECHOuter, e == extECHDraft7, e == extECHDraft7b, e == extESNI:
		m.hello.ECH = true
	}
	m.await(extensionBody, length)
	return nil
}

// takeServerName reads the extension (RFC 6066 section 3). A list is allowed there, and nobody sends one: programs
// differ in which entry they take.
func (m *message) takeServerName(b []byte) error {
	if len(b) < 2 || number(b) != len(b)-2 {
		return errNameLength
	}
	list := b[2:]
	switch {
	case len(list) == 0:
		return errNameNotOne
	case list[0] != 0:
		return errNameType
	case len(list) < 3 || number(list[1:]) > len(list)-3:
		return errNameLength
	case number(list[1:]) < len(list)-3:
		return errNameNotOne
	}
	name := list[3:]
	if err := checkName(name); err != nil {
		return err
	}
	m.hello.ServerName, m.hello.HasServerName = string(name), true
	if isAddress(m.hello.ServerName) {
		return errNameAddress
	}
	return nil
}

// isAddress spares the usual name netip's error, which is an allocation. No host name holds a colon.
func isAddress(name string) bool {
	if strings.ContainsAny(name, ":[]") {
		return true
	}
	if last := name[len(name)-1]; last < '0' || last > '9' {
		return false
	}
	_, err := netip.ParseAddr(name)
	return err == nil
}

// checkName refuses what RFC 6066 section 3 does, and what a program might cut or print in its own way. Whether it is
// the name that is wanted, and a name at all, is the caller's to compare.
func checkName(name []byte) error {
	if len(name) == 0 {
		return errNameEmpty
	}
	for _, c := range name {
		if c <= ' ' || c >= 0x7f {
			return errNameLetters
		}
	}
	if name[len(name)-1] == '.' {
		return errNameDot
	}
	return nil
}

func number(b []byte) int { return int(b[0])<<8 | int(b[1]) }
