package generator

import (
	"io/fs"
	"path"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/hostfs"
	"github.com/pfar/pfar/units/sandbox"
)

// Host is what the compiler may know of the machine. It only looks.
type Host struct {
	FS       fs.ReadLinkFS                    // rooted at "/", as os.DirFS("/") is
	Ours     fs.FS                            // likewise, but for what others may change (control.OurFiles); nil: nothing
	Path     []string                         // directories in which a bare command is looked up
	Home     string                           // the operator's; "": none to protect
	StateDir string                           // a server's private home is StateDir/NAME
	Packages string                           // installed packages are Packages/REGISTRY/NAME/VERSION; "": there are none
	Services func() catalog.Set               // what is known of services, read when it is needed; nil: nothing
	SignIn   func(key string) handover.Remedy // what obtains a key's token, zero for none; nil: there is none
	Adapter  string                           // the program pfar-adapter; "": there is none
	UID      int                              // pfar's own user
	Private  []string                         // never shown to a server: pfar's run, state, vault and configuration
}

// resolve follows an absolute path as the kernel does.
func (h Host) resolve(written string) (hostfs.File, error) { return hostfs.Resolve(h.FS, written) }

// read returns a small file.
func (h Host) read(real string) ([]byte, bool) { return hostfs.Read(h.FS, real) }

// real is a path as far as it can be resolved.
func (h Host) real(p string) string {
	f, _ := h.resolve(p)
	return f.Real
}

func (h Host) exists(p string) bool {
	_, err := h.resolve(p)
	return err == nil
}

// head returns the first bytes of a file, or nothing.
func (h Host) head(real string) string {
	f, err := h.FS.Open(hostfs.In(real))
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 256) // the kernel reads as much (BINPRM_BUF_SIZE)
	n, _ := f.Read(b)
	return string(b[:n])
}

// lookup finds a bare command as a shell does.
func (h Host) lookup(name string) (hostfs.File, bool) {
	for _, p := range h.candidates(name) {
		if f, err := h.resolve(p); err == nil && f.Executable() {
			return f, true
		}
	}
	return hostfs.File{}, false
}

// candidates are where a bare command may be.
func (h Host) candidates(name string) (all []string) {
	for _, dir := range h.Path {
		if path.IsAbs(dir) { // the working directory of pfar is nobody's choice
			all = append(all, path.Join(dir, name))
		}
	}
	return all
}

// overlap reports whether one of two paths lies within the other.
func overlap(a, b string) bool { return sandbox.Below(a, b) || sandbox.Below(b, a) }

// list returns the names in a directory, or none.
func (h Host) list(dir string) []string {
	f, err := h.resolve(dir)
	if err != nil || !f.Directory() {
		return nil
	}
	entries, err := fs.ReadDir(h.FS, hostfs.In(f.Real))
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}
