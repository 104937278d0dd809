package bubblewrap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/sandbox"
)

// descriptors are the files that bwrap gets by number: fdFirst, fdFirst+1, ...
type descriptors struct{ files []*os.File }

func (d *descriptors) add(f *os.File) int {
	d.files = append(d.files, f)
	return fdFirst + len(d.files) - 1
}

// openMounts opens what the mounts need: the source of each bind, and a memory file for each synthetic file.
func (d *descriptors) openMounts(mounts []sandbox.Mount, secrets units.Secrets, o *sandbox.Options) error {
	o.BindFD, o.DataFD = map[int]int{}, map[int]int{}
	for i, m := range mounts {
		if m.Scratch() {
			// A file, which bwrap can bind to no folder: without the tmpfs that Enter puts in its place nothing starts.
			f, err := units.Sealed(m.Dest, nil)
			if err != nil {
				return err
			}
			o.BindFD[i] = d.add(f)
			continue
		}
		switch m.Kind {
		case sandbox.ROBind, sandbox.ROOverlay, sandbox.Bind:
			f, err := openSource(m)
			if err != nil {
				return err
			}
			o.BindFD[i] = d.add(f)
		case sandbox.Data:
			if m.Blank() {
				continue
			}
			b, err := contents(m, secrets)
			if err != nil {
				return err
			}
			f, err := units.Sealed(m.Dest, b)
			if err != nil {
				return err
			}
			o.DataFD[i] = d.add(f)
		}
	}
	return nil
}

// contents is what a synthetic file has in it.
func contents(m sandbox.Mount, secrets units.Secrets) ([]byte, error) {
	switch {
	case m.Credential != "":
		if len(secrets.Values[m.Credential]) == 0 {
			return nil, fmt.Errorf("credential %q is missing", m.Credential)
		}
		return secrets.Values[m.Credential], nil
	case m.Authority && len(secrets.Authority) == 0:
		return nil, fmt.Errorf("making %q: the certificate of the bridge's authority is missing", m.Dest)
	case m.Authority && m.Source == "":
		return secrets.Authority, nil
	case m.Authority:
		b, err := readBundle(m.Source)
		return append(b, secrets.Authority...), err
	}
	return []byte(m.Text), nil
}

// maxBundle is forty times what distributions have.
const maxBundle = 8 << 20

// readBundle returns a file of certificates of the host, of whose path no part is a link, with an end of line at its
// end.
func readBundle(path string) ([]byte, error) {
	at, err := units.OpenNoLinks(path)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", at.Fd())) // O_PATH reads nothing
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", path, errors.Unwrap(err))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBundle+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %q: %w", path, errors.Unwrap(err))
	case len(b) > maxBundle:
		return nil, fmt.Errorf("reading %q: it has more than %d bytes", path, maxBundle)
	case !bytes.HasSuffix(b, []byte("\n")):
		b = append(b, '\n')
	}
	return b, nil
}
