package main

import (
	"io"
	"time"

	"github.com/pfar/pfar/units/control"
)

// pfar is the pfar that verbs are about, and how they reach it.
type pfar struct {
	*streams
	uid     int
	now     func() time.Time
	dirs    control.Dirs // see whose
	own     control.Dirs // of the user's own pfar, which may not run
	machine control.Dirs
	exists  func(path string) bool // in the file system
	persona persona
}

func newPfar(stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string, uid int) *pfar {
	dirs := control.DefaultDirs(getenv, uid)
	if absolute, err := dirs.Absolute(); err == nil { // without a working directory only absolute ones are of use
		dirs = absolute
	}
	c := &pfar{
		streams: &streams{stdin: stdin, stdout: stdout, stderr: stderr, getenv: getenv, output: "text"},
		uid:     uid, now: time.Now, own: dirs, machine: machineDirs(), exists: exists,
	}
	c.dirs = whose(c.own, c.machine, c.named(), c.exists)
	return c
}

// persona is in whose name pfar speaks to the gateway; the zero value is whoever runs it: the operator, who says so, or
// the declared client that this user is.
type persona struct{ client, session string }
