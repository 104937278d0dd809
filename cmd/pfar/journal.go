package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/journal/entries"
)

// inJournal reports whether a log is in the journal. If pfard does not say, it is where systemd runs pfar: the
// directories are the units' (of a user, beside that user's systemd), no file is there, and the machine was booted with
// systemd (sd_booted(3)).
func (c *pfar) inJournal(report control.Report, err error, path string) bool {
	if err == nil {
		return report.Journal
	}
	_, file := os.Stat(path)
	_, booted := os.Stat("/run/systemd/system")
	ours := c.ofMachine()
	if c.uid != 0 && !ours {
		_, user := os.Stat(filepath.Join(filepath.Dir(c.dirs.Run), "systemd/private"))
		ours = user == nil
	}
	return ours && errors.Is(file, fs.ErrNotExist) && booted == nil
}

// printJournal prints what the journal has of units as printLog does with a file. of names them. It leaves out entries
// of other servers.
func (c *pfar) printJournal(ctx context.Context, of string, q entries.Query) error {
	hint := "the journal is for root and the group systemd-journal: journalctl -u "
	switch {
	case c.uid != 0 && c.ofMachine():
		hint = "the journal is for root and the group systemd-journal: sudo journalctl -u "
	case c.uid != 0:
		hint = "a journal that is not kept on disk is for root and the group systemd-journal: journalctl --user-unit "
		q.User = c.uid
	}
	w, printed := c.logWriter(), 0
	named := q.Server == "" && len(q.Units) > 0 && q.Units[0] != units.GatewayLog
	err := entries.Read(ctx, c.stderr, q.Arguments(), func(decoder *json.Decoder) error {
		var e entries.Entry
		if err := decoder.Decode(&e); err != nil {
			return err
		}
		if !q.Wants(e) {
			return nil
		}
		printed++
		if named {
			return c.printNamed(e)
		}
		return e.Write(w)
	})
	switch {
	case q.Follow && ctx.Err() != nil: // Ctrl-C is how it ends
	case err != nil && len(q.Units) > 0:
		return fail(exitFailed, "%w", err).withHint("%s", hint+q.Units[0])
	case err != nil:
		return err
	case printed == 0 && q.Lines != 0:
		return fail(exitNoSuch, "no log of %s yet", of).withHint("%s", hint+q.Units[0])
	}
	return w.Close()
}

// printNamed prints an entry behind the name of its server.
func (c *pfar) printNamed(e entries.Entry) error {
	var b strings.Builder
	_ = e.Write(&b)
	for line := range strings.Lines(b.String()) {
		if err := c.printLogLine(escape(e.Whose(), oneLine), strings.TrimSuffix(line, "\n")); err != nil {
			return err
		}
	}
	return nil
}
