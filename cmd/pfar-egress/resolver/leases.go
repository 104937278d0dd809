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
	maxLine = len("198.19.16.0 ") + 253 + len("\n")
	maxFile = int64(maxLeases * maxLine) // octets that are read
)

// openLeases reads the file of leases, which need not exist, and leaves in it what is a lease now. Of a line that was
// torn, no address was given to anyone, and what is left of its name may be another name.
func (a *Addresses) openLeases(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("opening the leases: %w", err)
	}
	a.file = f
	if err := a.load(); err != nil {
		f.Close()
		return err
	}
	return nil
}

func (a *Addresses) load() error {
	b, err := io.ReadAll(io.LimitReader(a.file, maxFile))
	if err != nil {
		return fmt.Errorf("reading the leases: %w", err)
	}
	kept := a.readLeases(b)
	if bytes.HasPrefix(b, kept) {
		a.size = int64(len(kept))
		return a.truncate()
	}
	if err := a.truncate(); err != nil {
		return err
	}
	return a.write(kept)
}

// readLeases takes the lines that are leases now, and returns them. The first one of an address or of a name counts.
func (a *Addresses) readLeases(b []byte) (kept []byte) {
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
		kept = append(kept, line...)
	}
	return kept
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

// record appends a lease to the file. What a write that failed has left is cut off before, so that no line is joined to it.
func (a *Addresses) record(n uint32, name string) error {
	if a.file == nil {
		return nil
	}
	if err := a.truncate(); err != nil {
		return err
	}
	addr, _ := synthetic(n)
	return a.write([]byte(addr.String() + " " + name + "\n"))
}

// write appends whole lines.
func (a *Addresses) write(lines []byte) error {
	if _, err := a.file.Write(lines); err != nil {
		return fmt.Errorf("writing leases: %w", err)
	}
	a.size += int64(len(lines))
	return nil
}

// truncate cuts off what is behind the last whole line that was written or read.
func (a *Addresses) truncate() error {
	if err := a.file.Truncate(a.size); err != nil {
		return fmt.Errorf("cutting torn leases off: %w", err)
	}
	return nil
}
