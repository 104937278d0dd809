package resolver

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
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
	a.file, a.path = f, path
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
		a.keep(n, name)
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

// record appends a lease to the file. What a write that failed has left is cut off before, so that no line is joined to
// it.
func (a *Addresses) record(n uint32, name string) error {
	if a.file == nil {
		return nil
	}
	if err := a.truncate(); err != nil {
		return err
	}
	return a.write(leaseLine(n, name))
}

func leaseLine(n uint32, name string) []byte {
	addr, _ := synthetic(n)
	return []byte(addr.String() + " " + name + "\n")
}

// rewrite has these names be the file, those that were used last at its end, or leaves it as it was.
func (a *Addresses) rewrite(names []string) error {
	if a.file == nil {
		return nil
	}
	var order []int
	for i, name := range names {
		if name != "" {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(a.uses[i].last, a.uses[j].last) })
	var lines []byte
	for _, i := range order {
		lines = append(lines, leaseLine(firstLease+uint32(i), names[i])...)
	}
	next := a.path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing leases: %w", err)
	}
	f, err := os.OpenFile(next, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("writing leases: %w", err)
	}
	if _, err = f.Write(lines); err == nil {
		err = os.Rename(next, a.path)
	}
	if err != nil {
		f.Close()
		_ = os.Remove(next)
		return fmt.Errorf("writing leases: %w", err)
	}
	a.file.Close()
	a.file, a.size = f, int64(len(lines))
	return nil
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
