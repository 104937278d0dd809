package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
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

// journalOf lists the units whose entries are a server's log, those for one session each included.
func journalOf(server string) []string {
	sessions := units.Instance(server, "*")
	return []string{
		"pfar-mcp@" + server + ".service", "pfar-egress@" + server + ".service",
		"pfar-mcp@" + sessions + ".service", "pfar-egress@" + sessions + ".service",
	}
}

// printJournal prints what the journal has of units as printLog does with a file. Entries that are another server's are
// left out: sessions of two servers whose names begin alike have units that do. server may be "".
func (c *pfar) printJournal(ctx context.Context, of, server string, names []string, count int, follow bool) error {
	lines := strconv.Itoa(count)
	if count < 0 {
		lines = "all"
	}
	args := []string{"--output=json", "--output-fields=MESSAGE,PFAR_SERVER,SYSLOG_IDENTIFIER", "--all", "--no-pager", "--lines=" + lines}
	if follow {
		args = append(args, "--follow")
	}
	hint := "the journal is for root and the group systemd-journal: journalctl -u "
	switch {
	case c.uid != 0 && c.ofMachine():
		hint = "the journal is for root and the group systemd-journal: sudo journalctl -u "
	case c.uid != 0:
		hint = "a journal that is not kept on disk is for root and the group systemd-journal: journalctl --user-unit "
	}
	w, printed := c.logWriter(), 0
	named := server == "" && len(names) > 0 && names[0] != units.GatewayLog
	err := c.readJournal(ctx, append(args, c.entriesOf(server, names)...), func(decoder *json.Decoder) error {
		var e journalEntry
		if err := decoder.Decode(&e); err != nil {
			return err
		}
		if s := text(e.Server); server != "" && s != "" && s != server {
			return nil
		}
		printed++
		if named {
			return e.writeNamed(c)
		}
		return e.write(w)
	})
	switch {
	case follow && ctx.Err() != nil: // Ctrl-C is how it ends
	case err != nil && len(names) > 0:
		return fail(exitFailed, "%w", err).withHint("%s", hint+names[0])
	case err != nil:
		return err
	case printed == 0 && count != 0:
		return fail(exitNoSuch, "no log of %s yet", of).withHint("%s", hint+names[0])
	}
	return w.Close()
}

// readJournal calls next, which decodes one entry, for each that journalctl writes as JSON, until it returns an error:
// io.EOF is the end.
func (c *pfar) readJournal(ctx context.Context, args []string, next func(*json.Decoder) error) error {
	cmd := exec.CommandContext(ctx, "journalctl", args...)
	cmd.Stderr = c.stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("reading the journal: %w", err)
	}
	for decoder := json.NewDecoder(out); err == nil; {
		err = next(decoder)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	} else {
		_ = cmd.Process.Kill() // it may have more to say, and so may what it has started
		_ = out.Close()
	}
	ended := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("reading the journal: %w", err)
	case ended != nil:
		return fmt.Errorf("reading the journal: journalctl: %w", ended)
	}
	return nil
}

// entriesOf are the arguments by which journalctl finds what the units of a server wrote, and systemd wrote of them.
// For an ordinary user the journal takes no process's word for its unit, and does not find it out of one that has
// ended: there it is the name that each entry of ours has.
func (c *pfar) entriesOf(server string, names []string) (args []string) {
	if c.uid == 0 || c.ofMachine() {
		for _, u := range names {
			args = append(args, "--unit="+u)
		}
		return args
	}
	match := func(field, value string) {
		if len(args) > 0 {
			args = append(args, "+")
		}
		args = append(args, field+"="+value, "_UID="+strconv.Itoa(c.uid))
	}
	if server != "" {
		match("PFAR_SERVER", server)
	}
	for _, u := range names {
		if !strings.Contains(u, "*") {
			match("_SYSTEMD_USER_UNIT", u)
			match("USER_UNIT", u)
		}
	}
	return args
}

// journalEntry is one of journalctl's, whose fields are strings or, where they are not UTF-8, numbers of bytes.
type journalEntry struct {
	Time    string `json:"__REALTIME_TIMESTAMP"` // microseconds since 1970
	Message any    `json:"MESSAGE"`
	Server  any    `json:"PFAR_SERVER"`
	By      any    `json:"SYSLOG_IDENTIFIER"`
}

// writeNamed prints the entry behind the name of its server. Entries without one are of systemd.
func (e journalEntry) writeNamed(c *pfar) error {
	name := cmp.Or(text(e.Server), "systemd")
	var b strings.Builder
	_ = e.write(&b)
	for line := range strings.Lines(b.String()) {
		if err := c.printLogLine(escape(name, oneLine), strings.TrimSuffix(line, "\n")); err != nil {
			return err
		}
	}
	return nil
}

func (e journalEntry) write(w io.Writer) error {
	stamp := ""
	if us, err := strconv.ParseInt(e.Time, 10, 64); err == nil {
		stamp = time.UnixMicro(us).UTC().Format(units.LogTime)
	}
	if strings.HasPrefix(text(e.By), "pfar-mcp@") { // what pfar-sandbox says of a server has its own name
		stamp += units.ServerMark
	}
	for line := range strings.SplitSeq(text(e.Message), "\n") {
		if _, err := io.WriteString(w, stamp+line+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// text is the value of a field.
func text(field any) string {
	switch v := field.(type) {
	case string:
		return v
	case []any:
		var b []byte
		for _, n := range v {
			f, ok := n.(float64)
			if !ok || f < 0 || f > 255 {
				return ""
			}
			b = append(b, byte(f))
		}
		return string(b)
	}
	return ""
}
