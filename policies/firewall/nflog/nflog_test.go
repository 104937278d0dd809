package nflog

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// attribute and message are as the kernel makes them (nfulnl_log_packet of net/netfilter/nfnetlink_log.c).
func attribute(kind uint16, data ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(attrLen+len(data)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), data...)
	return append(b, make([]byte, -len(b)&3)...)
}

func message(kind uint16, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	b := binary.NativeEndian.AppendUint32(nil, uint32(headerLen+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, make([]byte, headerLen-len(b))...)
	b = append(b, body...)
	return append(b, make([]byte, -len(b)&3)...)
}

func logged(packet ...byte) []byte {
	return message(typePacket, []byte{2, 0, 0x26, 0x94}, attribute(1, 8, 0, 3, 0), attribute(10, 0), attribute(5, 0, 0, 0, 1), attribute(attrPayload, packet...))
}

func ipv4(protocol byte, to string, rest ...byte) []byte {
	b := make([]byte, 20)
	b[0], b[9] = 0x45, protocol
	a := netip.MustParseAddr(to).As4()
	copy(b[16:], a[:])
	return append(b, rest...)
}

func ipv6(next byte, to string, rest ...byte) []byte {
	b := make([]byte, 40)
	b[0], b[6] = 0x60, next
	a := netip.MustParseAddr(to).As16()
	copy(b[24:], a[:])
	return append(b, rest...)
}

// set changes octets of a copy.
func set(b []byte, at int, octets ...byte) []byte {
	b = slices.Clone(b)
	copy(b[at:], octets)
	return b
}

var (
	ports     = []byte{0xc0, 0x00, 0x01, 0xbb} // 49152 to 443
	extension = []byte{6, 0, 1, 4, 0, 0, 0, 0} // followed by TCP
)

func TestParsePacket(t *testing.T) {
	options := append(slices.Repeat([]byte{1}, 40), ports...)
	for name, c := range map[string]struct {
		packet   []byte
		protocol string
		to       string
	}{
		"tcp":                    {ipv4(6, "192.0.2.7", ports...), "tcp", "192.0.2.7:443"},
		"udp":                    {ipv4(17, "192.0.2.7", ports...), "udp", "192.0.2.7:443"},
		"icmp":                   {ipv4(1, "192.0.2.7", 8, 0, 0, 0), "icmp", "192.0.2.7:0"},
		"sctp":                   {ipv4(132, "192.0.2.7", ports...), "132", "192.0.2.7:0"},
		"options":                {set(ipv4(6, "192.0.2.7", options...), 0, 0x4f), "tcp", "192.0.2.7:443"},
		"options beyond the end": {set(ipv4(6, "192.0.2.7", ports...), 0, 0x4f), "tcp", "192.0.2.7:0"},
		"first fragment":         {set(ipv4(17, "192.0.2.7", ports...), 6, 0x20, 0), "udp", "192.0.2.7:443"},
		"later fragment":         {set(ipv4(17, "192.0.2.7", ports...), 6, 0, 1), "udp", "192.0.2.7:0"},
		"no ports copied":        {ipv4(6, "192.0.2.7"), "tcp", "192.0.2.7:0"},
		"half a port":            {ipv4(6, "192.0.2.7", ports[:3]...), "tcp", "192.0.2.7:0"},
		"tcp6":                   {ipv6(6, "2001:db8::1", ports...), "tcp", "[2001:db8::1]:443"},
		"udp6":                   {ipv6(17, "2001:db8::1", append(ports, 0, 0, 0, 0)...), "udp", "[2001:db8::1]:443"},
		"icmp6":                  {ipv6(58, "2001:db8::1", 128, 0, 0, 0, 0, 0, 0, 0), "icmp6", "[2001:db8::1]:0"},
		"esp6":                   {ipv6(50, "2001:db8::1", make([]byte, 16)...), "50", "[2001:db8::1]:0"},
		"no next header":         {ipv6(59, "2001:db8::1"), "59", "[2001:db8::1]:0"},
		"destination options":    {ipv6(60, "2001:db8::1", slices.Concat(extension, ports, make([]byte, 4))...), "tcp", "[2001:db8::1]:443"},
		"hop-by-hop, cut":        {ipv6(0, "2001:db8::1", slices.Concat(extension, ports)...), "tcp", "[2001:db8::1]:443"},
		"extension beyond":       {ipv6(0, "2001:db8::1", set(extension, 1, 255)...), "tcp", "[2001:db8::1]:0"},
		"authentication":         {ipv6(51, "2001:db8::1", slices.Concat(set(extension, 1, 1), make([]byte, 4), ports)...), "tcp", "[2001:db8::1]:443"},
		"first fragment6":        {ipv6(44, "2001:db8::1", slices.Concat([]byte{17, 0, 0, 1, 0, 0, 0, 9}, ports)...), "udp", "[2001:db8::1]:443"},
		"later fragment6":        {ipv6(44, "2001:db8::1", slices.Concat([]byte{17, 0, 0, 9, 0, 0, 0, 9}, ports)...), "udp", "[2001:db8::1]:0"},
		"extensions without end": {ipv6(0, "2001:db8::1", slices.Repeat([]byte{0, 0, 1, 4, 0, 0, 0, 0}, 100)...), "0", "[2001:db8::1]:0"},
		"mapped":                 {ipv6(6, "::ffff:192.0.2.7", ports...), "tcp", "[::ffff:192.0.2.7]:443"},
	} {
		want := Packet{Protocol: c.protocol, Destination: netip.MustParseAddrPort(c.to)}
		if got, err := Parse(logged(c.packet...)); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestParseSeveral(t *testing.T) {
	first, second := logged(ipv4(6, "192.0.2.7", ports...)...), logged(ipv6(17, "2001:db8::1", ports...)...)
	done, noop := message(3, []byte{0, 0, 0, 0}), message(1)
	want := []Packet{{"tcp", netip.MustParseAddrPort("192.0.2.7:443")}, {"udp", netip.MustParseAddrPort("[2001:db8::1]:443")}}
	got, err := Parse(slices.Concat(noop, first, message(1<<8, []byte{1}), second, done))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, none := range [][]byte{nil, done, noop} {
		if got, err := Parse(none); err != nil || got != nil {
			t.Errorf("%x: %+v, %v", none, got, err)
		}
	}
	// What is before a broken message counts.
	got, err = Parse(slices.Concat(first, second[:len(second)-4]))
	if err == nil || !slices.Equal(got, want[:1]) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	good := logged(ipv4(6, "192.0.2.7", ports...)...)
	length := func(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
	short := func(n uint16) []byte { return binary.NativeEndian.AppendUint16(nil, n) }
	const firstAttribute = headerLen + nfgenLen
	for name, c := range map[string]struct {
		datagram []byte
		want     error
	}{
		"an octet":                {[]byte{1}, errMessage},
		"half a header":           {good[:headerLen-1], errMessage},
		"length 0":                {set(good, 0, length(0)...), errMessage},
		"length of half a header": {set(good, 0, length(15)...), errMessage},
		"length beyond":           {set(good, 0, length(uint32(len(good)+1))...), errMessage},
		"longest length":          {set(good, 0, length(1<<32-1)...), errMessage},
		"negative length":         {set(good, 0, length(1<<31)...), errMessage},
		"no family":               {message(typePacket, []byte{2, 0, 0}), errMessage},
		"no attributes":           {message(typePacket, []byte{2, 0, 0, 0}), errPayload},
		"no payload":              {message(typePacket, []byte{2, 0, 0, 0}, attribute(1, 8, 0, 3, 0)), errPayload},
		"half an attribute":       {set(message(typePacket, []byte{2, 0, 0, 0, 4}), 0, length(headerLen+6)...), errAttribute},
		"attribute of 0":          {set(good, firstAttribute, short(0)...), errAttribute},
		"attribute of 3":          {set(good, firstAttribute, short(3)...), errAttribute},
		"attribute beyond":        {set(good, firstAttribute, short(0xffff)...), errAttribute},
		"empty packet":            {logged(), errHeader},
		"half an IPv4 header":     {logged(ipv4(6, "192.0.2.7")[:19]...), errHeader},
		"IPv4 header of 16":       {logged(set(ipv4(6, "192.0.2.7"), 0, 0x44)...), errHeader},
		"IPv4 header of 0":        {logged(set(ipv4(6, "192.0.2.7"), 0, 0x40)...), errHeader},
		"half an IPv6 header":     {logged(ipv6(6, "::1")[:39]...), errHeader},
	} {
		if got, err := Parse(c.datagram); err != c.want || len(got) != 0 {
			t.Errorf("%s: %+v, %v; want %v", name, got, err, c.want)
		}
	}
	if _, err := Parse(logged(0x50, 0, 0, 0)); err == nil || !strings.Contains(err.Error(), "version 5") {
		t.Errorf("version 5: %v", err)
	}
}

// Every octet in turn takes every value, and every length is cut off: nothing may panic or go on forever.
func TestParseSurvives(t *testing.T) {
	good := append(logged(ipv6(60, "2001:db8::1", slices.Concat(extension, ports, make([]byte, 4))...)...), logged(ipv4(6, "192.0.2.7", ports...)...)...)
	for i := range good {
		_, _ = Parse(good[:i])
		for v := range 256 {
			_, _ = Parse(set(good, i, byte(v)))
		}
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		b := slices.Clone(good)
		for range 1 + r.IntN(8) {
			b[r.IntN(len(b))] = byte(r.IntN(256))
		}
		_, _ = Parse(b[:r.IntN(len(b)+1)])
	}
}

func FuzzParse(f *testing.F) {
	f.Add(logged(ipv4(6, "192.0.2.7", ports...)...))
	f.Add(slices.Concat(logged(ipv6(60, "2001:db8::1", slices.Concat(extension, ports)...)...), message(3, []byte{0, 0, 0, 0})))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := Parse(b)
		if len(list) > len(b)/(headerLen+nfgenLen+attrLen) {
			t.Fatalf("%d packets out of %d octets", len(list), len(b))
		}
		if err == nil && len(list) == 0 && len(b) >= headerLen && binary.NativeEndian.Uint16(b[4:]) == typePacket {
			t.Fatal("a message of a packet without a packet")
		}
		for _, p := range list {
			if p.Protocol == "" || !p.Destination.Addr().IsValid() || p.Destination.Port() != 0 && p.Protocol != "tcp" && p.Protocol != "udp" {
				t.Fatalf("%+v", p)
			}
		}
	})
}
