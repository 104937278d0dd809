package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// viewTime is how long pfard may take to make what a console shows. A console waits a little longer.
const viewTime = 6 * time.Second

// view opens what a console is to show a person.
func (s shown) view(_ context.Context, p control.Peer, v attach.View) (file *os.File, more bool, err error) {
	switch v.What {
	case attach.ViewLog:
		file, err = s.logOf(p, v.Subject)
	case attach.ViewExplain:
		file, err = viewed(s.explain(v.Subject))
	default:
		err = fmt.Errorf("%w: pfard has no view %q", control.ErrInvalid, v.What)
	}
	return file, false, err
}

// viewed is the file of a text that pfard has made.
func viewed(text string, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	return units.Sealed("view", []byte(text))
}

// explain says in words what a server can see and reach, as pfar explain does.
func (s shown) explain(server string) (text string, err error) {
	err = s.do(func() error {
		one := s.fleet.servers[server]
		switch {
		case one == nil || one.want == nil:
			return fmt.Errorf("%w: %q", control.ErrNoServer, server)
		case one.want.Fault != "":
			return fmt.Errorf("%w: %s", control.ErrInvalid, one.want.Fault)
		}
		text = generator.Explain(*one.want, s.policy.inForce())
		if d, ok := declaration.Find(s.reader.declared, server); ok {
			text += d.ExplainOrigins(s.reader.hidden)
		}
		return nil
	})
	return text, err
}

// logOf opens the log of a server for the user who runs pfard; nil: the server has logged nothing.
func (s shown) logOf(p control.Peer, server string) (*os.File, error) {
	if p.UID != os.Getuid() {
		return nil, fmt.Errorf("%w: only the user who runs pfard may read it", control.ErrDenied)
	}
	path, err := s.logPath(server)
	if err != nil {
		return nil, err
	}
	return openLog(path)
}

// openLog opens the log at a path, which must be a regular file; nil: there is none.
func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return f, nil
}
