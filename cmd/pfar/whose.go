package main

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units/control"
)

// machineDirs are those of the pfar that runs for the whole machine.
func machineDirs() control.Dirs {
	return control.DefaultDirs(func(string) string { return "" }, 0)
}

// machineTarget is there where pfar is installed for the whole machine.
const machineTarget = "/usr/lib/systemd/system/pfar.target"

// whose returns the directories of the pfar that every verb is about: the user's own if it runs or the environment
// names it, else the machine's if that runs, else the user's own.
func whose(own, machine control.Dirs, named bool, exists func(path string) bool) control.Dirs {
	if named || exists(own.Control()) || !exists(machine.Control()) {
		return own
	}
	return machine
}

// named reports whether the environment says where pfar is.
func (c *pfar) named() bool {
	return slices.ContainsFunc([]string{"PFAR_RUN_DIR", "PFAR_STATE_DIR", "PFAR_CONFIG_DIR"},
		func(variable string) bool { return c.getenv(variable) != "" })
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// ofMachine reports whether the verb is about the machine's pfar.
func (c *pfar) ofMachine() bool { return c.dirs.Run == c.machine.Run }

// guest reports whether it is, and the user is not root.
func (c *pfar) guest() bool { return c.uid != 0 && c.ofMachine() }

// control asks pfard. Who is not root may look at the machine's, as a member of the group pfar-admin.
func (c *pfar) control() control.Client {
	if c.guest() {
		return control.Client{Path: c.dirs.Look()}
	}
	return control.Client{Path: c.dirs.Control()}
}

// hintFor is the remedy of an error that stopped a verb, "" if none is known.
func (c *pfar) hintFor(err error, command string) string {
	_, hint := classify(err)
	var known *failure
	if errors.As(err, &known) && known.hint != "" {
		return hint
	}
	var path *fs.PathError
	denied := errors.Is(err, control.ErrDenied) || errors.As(err, &path) && errors.Is(err, fs.ErrPermission)
	switch {
	case denied && c.guest():
		return "this machine's pfar runs: sudo " + command + "; members of the group pfar-admin may look (status, top, " +
			"egress, vault list) and approve"
	case !errors.Is(err, control.ErrNotRunning) || c.named() || !c.exists(machineTarget):
		return hint
	case c.uid == 0:
		return `start it with "systemctl start pfar.target"`
	}
	return `start this machine's with "sudo systemctl start pfar.target", or one of your own with "pfar up"`
}

// commandOf is a command line without what follows the verb, which may be long, or a secret.
func commandOf(cmd *cobra.Command) string {
	words := cmd.CommandPath()
	if cmd.Flags().NArg()+cmd.Flags().NFlag() > 0 {
		words += " ..."
	}
	return words
}
