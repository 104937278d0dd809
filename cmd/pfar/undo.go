package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/handover"
)

const undoHelp = `List what has changed in the directories that a server writes to, and after which call. Before
each call that may write, pfar keeps what is there (undo in the declaration).

--since restores everything to what it was before a call (its ID) or before the first call since a
TIME. --path restores one file, or one directory with everything below it; without --since, to the
oldest version that is kept. The command shows what it would do and asks first. It keeps what it
overwrites, so that you can undo it with the ID of its own entry in the list. If a server has filled
the disk or the directory, there is no room to keep that: --discard restores without keeping it.

pfar-declaration(5), UNDO, says what cannot be restored.`

// undoVerb takes back what calls have written.
type undoVerb struct{ *pfar }

func (c undoVerb) undoCommand() *cobra.Command {
	var since, path string
	var yes, discard bool
	cmd := c.outputFlag(&cobra.Command{
		Use: "undo NAME", Short: "Show what a server has overwritten, and restore it", Long: undoHelp,
		Example:           example("pfar undo files", "pfar undo files --since 1h --path /srv/data/notes"),
		ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := c.asked(since, path)
			q.Discard = discard
			return c.undo(cmd.Context(), args[0], q, yes)
		},
	})
	cmd.Flags().StringVar(&since, "since", "", "restore what changed since the call with this ID, or since `TIME`")
	cmd.Flags().StringVar(&path, "path", "", "only this file or directory")
	cmd.Flags().BoolVar(&discard, "discard", false, "do not keep what is there now, if there is no room for it")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// undoQuestion is what the gateway is asked. A member that is not said is left out.
type undoQuestion struct {
	Since string    `json:"since,omitempty"`
	At    time.Time `json:"at,omitzero"`
	Path  string    `json:"path,omitempty"`

	Discard bool `json:"discard,omitempty"`
}

// asked takes since for a time if it is one, and else for the id of a call.
func (c undoVerb) asked(since, path string) undoQuestion {
	at := instant{now: c.now}
	if since != "" && at.Set(since) == nil {
		return undoQuestion{At: at.Time, Path: path}
	}
	return undoQuestion{Since: since, Path: path}
}

func (q undoQuestion) query() string {
	v := url.Values{}
	for name, value := range map[string]string{"since": q.Since, "path": q.Path} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Discard {
		v.Set("discard", "true")
	}
	if !q.At.IsZero() {
		v.Set("at", q.At.Format(time.RFC3339Nano))
	}
	return v.Encode()
}

func (c undoVerb) undo(ctx context.Context, name string, q undoQuestion, yes bool) error {
	at := "/undo/" + url.PathEscape(name)
	var h handover.History
	if err := c.askOperator(ctx, http.MethodGet, at+"?"+q.query(), nil, &h); err != nil {
		return err
	}
	if q.Since == "" && q.At.IsZero() && q.Path == "" {
		return c.showHistory(name, h)
	}
	if len(h.Restores) == 0 {
		if c.json() {
			return c.printJSON(h)
		}
		fmt.Fprintln(c.stderr, "nothing has changed since")
		return nil
	}
	if err := c.canAsk(yes, "pfar undo "+name); err != nil {
		return err
	}
	show := func(w io.Writer) {
		c.table(w, changeRows(h.Restores))
		if h.Stain != "" {
			fmt.Fprintf(w, "Sessions may have written this before their stain was cleared. It returns: %s\n", h.Stain)
		}
	}
	if err := c.ask(ctx, yes, "Make these changes?", show); err != nil {
		return err
	}
	if err := c.askOperator(ctx, http.MethodPost, at, q, &h); err != nil {
		return err
	}
	failed := slices.DeleteFunc(slices.Clone(h.Restores), func(r handover.Change) bool { return r.Error == "" })
	if c.json() {
		if err := c.printJSON(h); err != nil {
			return err
		}
	} else {
		c.table(c.stdout, changeRows(failed))
	}
	if h.Stain != "" && yes {
		fmt.Fprintf(c.stderr, "the stain of %s has returned: %s\n", name, h.Stain)
	}
	if len(failed) > 0 {
		return fail(exitFailed, "%s of %d could not be restored", plural.Count(len(failed), "file"), len(h.Restores))
	}
	return nil
}

// showHistory prints what has changed after which call, the latest last.
func (c undoVerb) showHistory(name string, h handover.History) error {
	if c.json() {
		return c.printJSON(h)
	}
	if len(h.Steps) == 0 {
		fmt.Fprintln(c.stderr, "nothing has changed that pfar knows of")
		return nil
	}
	for _, s := range h.Steps {
		title := stamp(s.At)
		for _, call := range s.Calls {
			title += "  " + call.ID + "  " + call.Tool + " (" + call.Client + ")"
		}
		c.table(c.stdout, [][]cell{{{title, bold}}})
		c.table(c.stdout, changeRows(s.Changes))
	}
	fmt.Fprintf(c.stderr, "%s are kept; restore with pfar undo %s --since ID\n", visible.Size(h.Bytes), name)
	return nil
}

// changeRows say what was done to files, or is to be.
func changeRows(changes []handover.Change) (rows [][]cell) {
	for _, ch := range changes {
		sizes := ""
		if ch.Kind == "file" {
			switch ch.What {
			case "created":
				sizes = visible.Size(ch.Now)
			case "deleted":
				sizes = visible.Size(ch.Was)
			default:
				sizes = visible.Size(ch.Was) + " -> " + visible.Size(ch.Now)
			}
		}
		rows = append(rows, []cell{{"  " + ch.What, ""}, {ch.Path, ""}, {sizes, ""}, {ch.Error, ""}})
	}
	return rows
}
