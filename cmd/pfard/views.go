package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/journal/entries"
)

// What a console gets of a log in the journal: so many entries at most, of the last bytes.
const (
	maxLogEntries = 400
	maxLogBytes   = 240 << 10
)

// view opens what a console is to show a person.
func (s shown) view(ctx context.Context, p control.Peer, v attach.View) (file *os.File, more bool, err error) {
	switch v.What {
	case attach.ViewLog:
		file, more, err = s.logOf(ctx, p, v.Subject)
	case attach.ViewExplain:
		file, err = viewed(s.explain(v.Subject))
	case attach.ViewChecks:
		file, err = viewed(inJSON(s.orders.checkup.now(ctx)))
	case attach.ViewVerify:
		file, err = viewed(s.orders.verification.run(ctx, p.UID))
	case attach.ViewUsage:
		file, err = viewed(s.usage(v.Subject))
	case attach.ViewBridge:
		file, err = s.bridge(ctx, v.Subject)
	case attach.ViewLesson:
		file, err = viewed(s.lesson(p, v.Subject))
	case attach.ViewImport:
		file, err = viewed(s.imported(ctx, p, v.Subject))
	default:
		err = fmt.Errorf("%w: pfard has no view %q", control.ErrInvalid, v.What)
	}
	return file, more, err
}

// viewed is the file of a text that pfard has made.
func viewed(text string, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	return units.Sealed("view", []byte(text))
}

// inJSON is the text of a view whose page decodes it.
func inJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// serverNamed returns a server that is declared. It is called in the loop.
func (s shown) serverNamed(name string) (*server, error) {
	one := s.fleet.servers[name]
	if one == nil || one.want == nil {
		return nil, fmt.Errorf("%w: %q", control.ErrNoServer, name)
	}
	return one, nil
}

// explain says in words what a server can see and reach, as pfar explain does.
func (s shown) explain(server string) (text string, err error) {
	err = s.do(func() error {
		one, err := s.serverNamed(server)
		if err != nil {
			return err
		}
		if one.want.Fault != "" {
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

// lesson is the newest lesson of a server, for the user who runs pfard.
func (s shown) lesson(p control.Peer, server string) (string, error) {
	if err := ours(p); err != nil {
		return "", err
	}
	if err := s.do(func() error { _, err := s.serverNamed(server); return err }); err != nil {
		return "", err
	}
	return inJSON(s.orders.commands.lessonOf(server))
}

// imported is the preview of an import for the user who runs pfard or, without a program, the newest import.
func (s shown) imported(ctx context.Context, p control.Peer, program string) (string, error) {
	if err := ours(p); err != nil {
		return "", err
	}
	if program == "" {
		return inJSON(s.orders.commands.newest())
	}
	now, err := s.orders.commands.preview(ctx, program)
	if err != nil {
		return "", err
	}
	return inJSON(now)
}

// ours refuses everybody but the user who runs pfard. Nobody at another machine is that user.
func ours(p control.Peer) error {
	if p.UID != os.Getuid() {
		return fmt.Errorf("%w: only the user who runs pfard may see it", control.ErrDenied)
	}
	return nil
}

// logOf opens the log of a server; nil: the server has logged nothing. A log that is a file is for the user who runs
// pfard. The machine's journal is also for those who have a console of the system's pfard: they read the audit as well.
func (s shown) logOf(ctx context.Context, p control.Peer, server string) (file *os.File, more bool, err error) {
	inJournal := !s.options.local
	if err := ours(p); err != nil && (rootless() || !inJournal || p.UID == nobody) {
		return nil, false, err
	}
	path, err := s.logPath(server)
	if err != nil {
		return nil, false, err
	}
	if !inJournal {
		file, err = openLog(path)
		return file, false, err
	}
	text, more, err := entries.Tail(ctx, entries.Query{
		Units: entries.Of(server), Server: server, User: os.Getuid(), Lines: maxLogEntries,
	}, maxLogBytes)
	file, err = viewed(text, err)
	return file, more, err
}

// logPath is the path of the log of a declared server, if it is a file.
func (s shown) logPath(server string) (path string, err error) {
	err = s.do(func() error {
		if _, err := s.serverNamed(server); err != nil {
			return err
		}
		path = s.fleet.runner.Log(server)
		return nil
	})
	return path, err
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
