package resolver

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// A line of the file of leases is "198.19.0.7 foo.example.com".
const (
	maxLine   = len("198.19.16.0 ") + 253 + len("\n")
	maxLeased = maxLeases * maxLine // octets of the file that are read
)

// openLeases reads the file of leases, which need not exist, and cuts off what is no whole line: of a line that was
// torn, no address was given to anyone, and what is left of its name may be another name.
func (a *Addresses) openLeases(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("opening the leases: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(maxLeased)))
	if err != nil {
		f.Close()
		return fmt.Errorf("reading the leases: %w", err)
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	a.readLeases(b)
	a.file, a.size = f, int64(len(b))
	if err := a.truncate(); err != nil {
		f.Close()
		return err
	}
	return nil
}

// readLeases takes from whole lines what is a lease now. The first lease of an address or a name counts.
func (a *Addresses) readLeases(b []byte) {
	for line := range bytes.Lines(b) {
		n, name, ok := parseLease(string(line))
		if !ok || !a.leasable(name) {
			continue
		}
		i := int(n - firstLease)
		if _, twice := a.leased[name]; twice || i < len(a.names) && a.names[i] != "" {
			continue
		}
		for len(a.names) <= i {
			a.names = append(a.names, "")
		}
		a.names[i], a.leased[name] = name, n
	}
}

func parseLease(line string) (n uint32, name string, ok bool) {
	line, whole := strings.CutSuffix(line, "\n")
	text, name, found := strings.Cut(line, " ")
	addr, err := netip.ParseAddr(text)
	if !whole || !found || err != nil || !addr.Is4() {
		return 0, "", false
	}
	n, ok = number(addr)
	return n, name, ok && n >= firstLease && n-firstLease < maxLeases
}

// record appends a lease to the file. What a write that fails has left is cut off, so that the next line is not joined
// to it.
func (a *Addresses) record(n uint32, name string) error {
	if a.file == nil {
		return nil
	}
	if err := a.truncate(); err != nil {
		return err
	}
	addr, _ := synthetic(n)
	line := addr.String() + " " + name + "\n"
	if _, err := a.file.WriteString(line); err != nil {
		return fmt.Errorf("writing a lease: %w", err)
	}
	a.size += int64(len(line))
	return nil
}

// truncate cuts off what is behind the last whole line.
func (a *Addresses) truncate() error {
	if err := a.file.Truncate(a.size); err != nil {
		return fmt.Errorf("cutting a torn lease off: %w", err)
	}
	return nil
}
