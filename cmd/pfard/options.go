package main

import (
	"fmt"
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
	dirs         control.Dirs
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
	o.servers, err = filepath.Abs(o.servers)
	return err
}

// adapter is the program that lies beside pfard; "" without one.
func adapter() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(self), "pfar-adapter")
}
