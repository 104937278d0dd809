package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/control"
)

func serversSocket(d control.Dirs) string { return filepath.Join(d.Run, "servers.sock") }

// options are what the command line says.
type options struct {
	local        bool
	declarations string
	servers      string
	listen       string
	metrics      string // "": no metrics
	page         uint16 // port of one-time pages; 0: each on one that is free
	console      remoteConsole
	dirs         control.Dirs
}

// remoteConsole is where a local pfard's remote console listens, with the files of its certificate and key.
// The zero value is none.
type remoteConsole struct{ address, certificate, key string }

// check returns why there cannot be such a console.
func (c remoteConsole) check(local bool, uid int) error {
	if c == (remoteConsole{}) {
		return nil
	}
	address, err := netip.ParseAddrPort(c.address)
	switch {
	case !local:
		return errors.New("--console goes with --local; with systemd, run systemctl enable --now pfar-console.socket")
	case c.address == "" || c.certificate == "" || c.key == "":
		return errors.New("--console, --console-cert and --console-key go together: give all three")
	case uid == 0:
		return errors.New("root's pfard serves no remote console, since its process would be root's: " +
			"run pfar up as another user, or install pfar")
	case err != nil:
		return fmt.Errorf("reading --console %q: want an address and a port, such as 0.0.0.0:7443: %w", c.address, err)
	case address.Port() == 0:
		return fmt.Errorf("reading --console %q: browsers have to know the port; write one such as 7443", c.address)
	}
	if _, err := tls.LoadX509KeyPair(c.certificate, c.key); err != nil {
		return fmt.Errorf("reading the files of --console-cert and --console-key: %w", err)
	}
	return nil
}

// arguments are those of the process.
func (c remoteConsole) arguments() []string {
	return []string{"--listen", c.address, "--certificate", c.certificate, "--key", c.key}
}

// folders are those of the declarations, the first of which comes before all others.
func (o options) folders() []string { return o.dirs.Folders(o.declarations) }

// placeholders is where those of brokered secrets are kept for the next pfard; "": nothing of this one's outlives it.
func (o options) placeholders() string {
	if o.local || o.dirs.Run == "" {
		return ""
	}
	return filepath.Join(o.dirs.Run, "placeholders.json")
}

func (o *options) pagePort(text string) error {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port != 0 && !egress.IsPagePort(uint16(port)) {
		return fmt.Errorf("use %d to %d, or 0 for one of them that is free", egress.FirstPagePort, egress.LastPagePort)
	}
	o.page = uint16(port)
	return nil
}

func (o *options) absolute() (err error) {
	if o.dirs, err = o.dirs.Absolute(); err != nil {
		return err
	}
	if o.declarations, err = filepath.Abs(o.declarations); err != nil {
		return err
	}
	if o.servers, err = filepath.Abs(o.servers); err != nil {
		return err
	}
	for _, path := range []*string{&o.console.certificate, &o.console.key} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	return nil
}

// adapter is the program that lies beside pfard; "" without one.
func adapter() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(self), "pfar-adapter")
}

// watched are the folders that pfard reads anew when something in them changes.
func (o options) watched() []string {
	return append(o.folders(), o.dirs.Policies(), o.dirs.Models(), control.ChatFiles(o.dirs),
		o.dirs.Clients(), o.dirs.OAuth(), o.dirs.Services())
}
