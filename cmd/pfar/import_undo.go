package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/units/control"
)

// takenBack is the result for one server of an import.
type takenBack struct {
	Server  string   `json:"server"`
	Result  string   `json:"result"`
	Secrets []string `json:"kept_secrets,omitempty"` // that the import stored, and that stay
}

// takeBack undoes the last import.
func (v importVerb) takeBack(ctx context.Context, w importWish) error {
	book, err := v.lastBook()
	if err != nil {
		return err
	}
	if !w.dryRun {
		if err := v.canAsk(w.yes, "pfar import --undo --dry-run"); err != nil {
			return err
		}
	}
	show := func(to io.Writer) { v.showUndo(to, book) }
	if w.dryRun {
		if v.json() {
			return v.printJSON(book)
		}
		show(v.stdout)
		return nil
	}
	question := fmt.Sprintf("Undo the import of %s?", plural.Count(len(book.open()), "server"))
	if err := v.ask(ctx, w.yes, question, show); err != nil {
		return err
	}
	defer book.close()
	report, err := v.report(ctx)
	if err != nil {
		return unchanged(err)
	}
	book.dir = report.Directory
	all := []takenBack{}
	var failed error
	for _, one := range slices.Backward(book.open()) {
		var t takenBack
		if t, failed = v.undoOne(ctx, book, one); failed != nil {
			failed = fmt.Errorf("undoing %q: %w; %s", one.Server, failed, book.rewrite(one, true).outcome())
			break
		}
		all = append(all, t)
	}
	if v.json() {
		err = v.printJSON(all)
	} else {
		v.printUndone(all)
	}
	if failed != nil {
		err = fail(exitFailed, "%w", failed).withHint("pfar import --undo goes on where it ended")
	}
	return err
}

const (
	undoneGone = "removed"
	undoneKept = "stays: its declaration has changed"
	undoneNone = "was not declared"
)

// undoOne removes a declaration that is as it was written, and then its secrets.
func (v importVerb) undoOne(ctx context.Context, book *book, one *entry) (takenBack, error) {
	t := takenBack{Server: one.Server, Result: undoneGone}
	_, err := v.control().Undeclare(ctx, one.Server, control.Text{Old: one.Digest})
	switch {
	case errors.Is(err, control.ErrNoServer):
		t.Result = undoneNone
	case errors.Is(err, control.ErrChanged):
		t.Result = undoneKept
	case err != nil:
		return t, err
	}
	if t.Result == undoneKept {
		for _, s := range one.Secrets {
			t.Secrets = append(t.Secrets, s.Key)
		}
	} else if t.Secrets, err = v.removeSecrets(ctx, one); err != nil {
		return t, err
	}
	one.State = undone
	return t, book.write()
}

// showUndo says what is about to go.
func (v importVerb) showUndo(w io.Writer, b *book) {
	fmt.Fprintf(w, "the import of %s from %s\n", b.Time.Local().Format("2006-01-02 15:04"),
		escape(strings.Join(b.Files, ", "), oneLine))
	rows := [][]cell{}
	for _, e := range b.open() {
		var keys []string
		for _, s := range e.Secrets {
			keys = append(keys, s.Key)
		}
		file := e.File
		if file == "" {
			file = "begun, and not finished"
		}
		rows = append(rows, []cell{{e.Server, bold}, {file, ""}, {strings.Join(keys, ", "), ""}})
	}
	v.table(w, rows)
}

func (v importVerb) printUndone(all []takenBack) {
	rows := [][]cell{}
	for _, t := range all {
		kept := ""
		if len(t.Secrets) > 0 {
			kept = "the vault keeps " + strings.Join(t.Secrets, ", ")
		}
		rows = append(rows, []cell{{t.Server, bold}, {t.Result, ""}, {kept, ""}})
	}
	v.table(v.stdout, rows)
	if slices.ContainsFunc(all, func(t takenBack) bool { return t.Result == undoneGone }) {
		v.hintAt("pfar clean deletes what the servers left, such as logs")
	}
}
