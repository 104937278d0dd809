package firewall

import (
	"encoding/binary"
	"errors"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
)

// answer is what a kernel says to one message of an exchange.
type answer struct {
	sequence uint32
	errno    syscall.Errno
	why      string
}

func (a answer) bytes() []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(-int32(a.errno)))
	b = append(b, make([]byte, unix.NLMSG_HDRLEN)...) // of the message that it is to
	flags := uint16(unix.NLM_F_CAPPED)
	if a.why != "" {
		flags |= unix.NLM_F_ACK_TLVS
		b = appendAttribute(b, unix.NLMSGERR_ATTR_MSG, cstring(a.why))
	}
	h := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(b)))
	h = binary.NativeEndian.AppendUint16(h, unix.NLMSG_ERROR)
	h = binary.NativeEndian.AppendUint16(h, flags)
	h = binary.NativeEndian.AppendUint32(h, a.sequence)
	h = binary.NativeEndian.AppendUint32(h, 0)
	return append(h, b...)
}

// kernel is a socket with a kernel's answers in it already, as they are once send(2) has returned; what is sent goes to
// the other end.
func kernel(t *testing.T, answers ...[]byte) (s socket, other int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(pair[0]); _ = unix.Close(pair[1]) })
	for _, b := range answers {
		if _, err := unix.Write(pair[1], b); err != nil {
			t.Fatal(err)
		}
	}
	return socket{pair[0]}, pair[1]
}

func TestExchangeNamesWhatWasRefused(t *testing.T) {
	rules := egress.Policy{}.Ruleset()
	begin, rest, err := batch(rules)
	if err != nil {
		t.Fatal(err)
	}
	last := uint32(len(begin) + 1 + len(rest) - 1) // of one table
	fine := answer{sequence: last}
	for name, c := range map[string]struct {
		answers [][]byte
		says    []string // "" if it is done
		is      error
	}{
		"done":           {[][]byte{fine.bytes()}, nil, nil},
		"no answer":      {nil, []string{`loading table "pfar": adding rule "reject with icmpx admin-prohibited comment`, "no answer"}, nil},
		"other answer":   {[][]byte{append([]byte{4}, make([]byte, 31)...)}, []string{"reading the kernel's answer"}, nil},
		"no nf_tables":   {[][]byte{answer{1, unix.EOPNOTSUPP, ""}.bytes()}, []string{"modprobe", "nft_redir", "committing the transaction: operation not supported"}, unix.EOPNOTSUPP},
		"no permission":  {[][]byte{answer{1, unix.EPERM, ""}.bytes()}, []string{`loading table "pfar": committing the transaction: operation not permitted`}, unix.EPERM},
		"no memory":      {[][]byte{answer{1, unix.ENOMEM, ""}.bytes(), fine.bytes()}, []string{"committing the transaction: cannot allocate memory"}, unix.ENOMEM},
		"table":          {[][]byte{answer{2, unix.EINVAL, ""}.bytes()}, []string{"adding the table: invalid argument"}, unix.EINVAL},
		"no nat":         {[][]byte{answer{3, unix.ENOENT, ""}.bytes(), fine.bytes()}, []string{"modprobe", `adding chain "divert": no such file`}, unix.ENOENT},
		"rule":           {[][]byte{fine.bytes(), answer{last, unix.EINVAL, "because"}.bytes()}, []string{`adding rule "reject with icmpx`, `: invalid argument (because)`}, unix.EINVAL},
		"first of many":  {[][]byte{answer{4, unix.EINVAL, ""}.bytes(), answer{5, unix.ENOMEM, ""}.bytes(), fine.bytes()}, []string{`adding chain "out": invalid argument`}, unix.EINVAL},
		"in one":         {[][]byte{append(answer{4, unix.EINVAL, ""}.bytes(), fine.bytes()...)}, []string{`adding chain "out": invalid argument`}, unix.EINVAL},
		"empty":          {[][]byte{{}}, []string{"it is empty"}, nil},
		"to no message":  {[][]byte{answer{9999, unix.EINVAL, ""}.bytes()}, []string{"message 9999 of"}, nil},
		"to message -1":  {[][]byte{answer{0, unix.EINVAL, ""}.bytes()}, []string{"message 0 of"}, nil},
		"early answer":   {[][]byte{answer{sequence: 2}.bytes()}, []string{"no answer"}, nil},
		"broken reasons": {[][]byte{broken(answer{2, unix.EINVAL, "xxxx"})}, []string{"adding the table: invalid argument"}, unix.EINVAL},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := kernel(t, c.answers...)
			err := s.apply(rules)
			if c.says == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("%v, want %v", err, c.is)
			}
			for _, says := range c.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%v; want it to say %q", err, says)
				}
			}
		})
	}
}

// broken gives an answer's attribute a length beyond it.
func broken(a answer) []byte {
	b := a.bytes()
	binary.NativeEndian.PutUint16(b[unix.NLMSG_HDRLEN+4+unix.NLMSG_HDRLEN:], 0xffff)
	return b
}

func TestOpenLogNamesWhatWasRefused(t *testing.T) {
	for errno, says := range map[syscall.Errno]string{
		unix.EPERM:           "opening NFLOG group 7: binding: operation not permitted",
		unix.EINVAL:          "opening NFLOG group 7: the kernel has no nfnetlink_log (modprobe nfnetlink_log): binding: invalid argument",
		unix.EPROTONOSUPPORT: "opening NFLOG group 7: the kernel has no nfnetlink_log (modprobe nfnetlink_log): binding: protocol not supported",
	} {
		s, _ := kernel(t, answer{1, errno, ""}.bytes())
		if err := logging(7, s.bindLog(7)); err.Error() != says || !errors.Is(err, errno) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}

func TestNoIPv6(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{
		unix.EOPNOTSUPP: true, unix.EAFNOSUPPORT: true, unix.EACCES: true,
		unix.EPERM: false, unix.ENOMEM: false, unix.EINVAL: false, unix.ENETDOWN: false,
	} {
		if got := noIPv6(&refusal{message{doing: "adding an address"}, errno, ""}); got != want {
			t.Errorf("%v means no IPv6: %v", errno, got)
		}
	}
	if noIPv6(nil) {
		t.Error("success means no IPv6")
	}
}

func TestWhatNoRulesetHoldsIsRefused(t *testing.T) {
	chain := func(c egress.Chain) egress.Ruleset {
		return egress.Ruleset{Family: "inet", Table: "x", Chains: []egress.Chain{c}}
	}
	rule := func(r egress.Rule) egress.Ruleset {
		return chain(egress.Chain{Name: "c", Type: "filter", Hook: "output", Rules: []egress.Rule{r}})
	}
	for says, r := range map[string]egress.Ruleset{
		`family "" is not inet`:          {},
		"wants a name":                   {Family: "inet"},
		"and a chain":                    {Family: "inet", Table: "x"},
		`hook "" is not output`:          chain(egress.Chain{Name: "c", Type: "nat"}),
		`type "route" is neither`:        chain(egress.Chain{Name: "c", Type: "route", Hook: "output"}),
		`state "invalid" is unknown`:     rule(egress.Rule{States: []string{"invalid"}}),
		`protocol "sctp" is neither`:     rule(egress.Rule{Protocol: "sctp"}),
		"port 5 is of no protocol":       rule(egress.Rule{Port: 5}),
		"a redirect wants a port":        rule(egress.Rule{Action: egress.Redirect}),
		"action 99 is unknown":           rule(egress.Rule{Action: 99}),
		"the comment is longer than 127": rule(egress.Rule{Comment: strings.Repeat("x", 128)}),
	} {
		s, _ := kernel(t)
		if err := s.apply(r); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want it to say %q", err, says)
		}
	}
}

func TestTheLongestRulesetFits(t *testing.T) {
	// What the kernel lets anybody have of a send buffer, unless it was told otherwise (net.core.wmem_default and
	// wmem_max), which it doubles.
	const most = 2 * 212992
	begin, rest, err := batch(many().Ruleset())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range append(begin, rest...) {
		n += unix.NLMSG_HDRLEN + len(m.body) + 3
	}
	if n > most-4096 {
		t.Errorf("%d octets, of %d at most", n, most)
	}
}
