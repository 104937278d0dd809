package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// maxWaiting bounds how many names of what is held a row of the table has.
const maxWaiting = 3

func (c *cli) printPins(list []pinsOf) {
	if len(list) == 0 {
		fmt.Fprintln(c.stderr, "nothing has been accepted or held: no server has been up yet")
		return
	}
	rows := [][]cell{heading("SERVER", "ACCEPTED", "HELD", "WHAT IS HELD", "DRIFT")}
	var notes []string
	held := ""
	for _, p := range list {
		row := []cell{{p.Server, ""}, {fmt.Sprint(p.Accepted), ""}, {fmt.Sprint(p.waiting()), ""}, {p.what(), ""}, {p.drift(), ""}}
		if p.waiting() > 0 {
			row[2].colour, held = yellow, p.Server
		}
		if p.Error != "" {
			notes = append(notes, p.Server+": "+p.Error)
			if p.Accepted+p.waiting() == 0 {
				row[1], row[2], row[3] = cell{}, cell{"all", red}, cell{"its pins cannot be used", ""}
			}
		}
		rows = append(rows, row)
	}
	c.table(c.stdout, rows)
	for _, n := range notes {
		fmt.Fprintf(c.stdout, "%s %s\n", c.paint(c.stdout, red, "error:"), escape(n, oneLine))
	}
	if held != "" {
		fmt.Fprintf(c.stderr, "%s pfar pins show %s\n", c.paint(c.stderr, cyan, "hint:"), escape(held, oneLine))
	}
}

// what names some of what is held, the changed ones first: those have been of use already.
func (p pinsOf) what() string {
	list := slices.Clone(p.Held)
	slices.SortStableFunc(list, func(a, b heldPin) int { return strings.Compare(a.State, b.State) }) // "changed" before "new"
	var words []string
	for _, h := range list[:min(len(list), maxWaiting)] {
		words = append(words, h.State+" "+summary(h.Title, 40))
	}
	if more := p.waiting() - len(words); more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return strings.Join(words, ", ")
}

func (p pinsOf) drift() string {
	words := slices.Clone(p.Drift)
	if p.Gone > 0 {
		words = append(words, fmt.Sprintf("%d accepted not offered", p.Gone))
	}
	return strings.Join(words, ", ")
}

// printPin prints what is held of a server, and what is accepted if that is asked for by name or if nothing is held.
func (c *cli) printPin(p pinsOf, named bool) {
	if p.Error != "" {
		fmt.Fprintf(c.stdout, "%s %s\n", c.paint(c.stdout, red, "error:"), escape(p.Error, oneLine))
	}
	c.printHeld(c.stdout, p.Held)
	if !named {
		c.printRest(p)
	}
	held := map[string]bool{}
	for _, h := range p.Held {
		held[h.Title] = true
	}
	switch {
	case named:
		for _, d := range p.Descriptors {
			if !held[d.Title] { // of the others the difference says it
				fmt.Fprintln(c.stdout, c.paint(c.stdout, bold, escape(d.line(), oneLine)))
				fmt.Fprint(c.stdout, escape(d.Text, keepLines))
			}
		}
	case len(p.Held) == 0 && len(p.Descriptors) > 0:
		c.printAccepted(p.Descriptors)
	}
	if slices.ContainsFunc(p.Held, func(h heldPin) bool { return h.Digest != "" }) {
		fmt.Fprintf(c.stderr, "%s pfar pins accept %s\n", c.paint(c.stderr, cyan, "hint:"), escape(p.Server, oneLine))
	}
}

// printRest says what there is beside definitions that can be shown.
func (c *cli) printRest(p pinsOf) {
	if p.Left > 0 {
		fmt.Fprintf(c.stdout, "%d more are held, for which there is no room\n", p.Left)
	}
	if len(p.Drift) > 0 {
		fmt.Fprintf(c.stdout, "drift: %s\n", escape(strings.Join(p.Drift, ", "), oneLine))
	}
	if p.Error == "" && p.waiting()+len(p.Descriptors) == 0 {
		fmt.Fprintf(c.stdout, "%s offers nothing that could be accepted\n", escape(p.Server, oneLine))
	}
}

// printHeld prints each definition as the difference to what was accepted.
func (c *cli) printHeld(w io.Writer, list []heldPin) {
	for _, h := range list {
		line := ""
		switch {
		case h.Digest == "":
			line = fmt.Sprintf("%s is held and cannot be accepted: %s", h.Title, h.Problem)
		case h.State == "changed":
			line = h.exact() + " has changed"
		default:
			line = h.exact() + " is new"
		}
		fmt.Fprintln(w, c.paint(w, bold, escape(line, oneLine)))
		if h.unseen() {
			fmt.Fprintln(w, "(there is no room here for what it says: name it to see it)")
		}
		for text := range strings.Lines(h.Diff) {
			text = strings.TrimSuffix(text, "\n")
			fmt.Fprintln(w, c.paint(w, colourOf(text), escape(text, oneLine)))
		}
		if h.Digest != "" {
			fmt.Fprintln(w)
		}
	}
}

// unseen reports whether the difference was left out, because there were too many in one answer.
func (h heldPin) unseen() bool { return h.Digest != "" && h.Diff == "" }

// colourOf is the colour of a line of a unified difference.
func colourOf(line string) string {
	switch {
	case strings.HasPrefix(line, "--- "), strings.HasPrefix(line, "+++ "):
		return bold
	case strings.HasPrefix(line, "@@"):
		return cyan
	case strings.HasPrefix(line, "+"):
		return green
	case strings.HasPrefix(line, "-"):
		return red
	}
	return ""
}

// printAccepted prints descriptors in short.
func (c *cli) printAccepted(list []acceptedAs) {
	rows := [][]cell{heading("NAME", "ACCEPTED", "BY", "VERSION", "DIGEST", "DESCRIPTION")}
	for _, d := range list {
		title := d.Title
		if d.Gone {
			title += " (not offered)"
		}
		rows = append(rows, []cell{
			{title, ""}, {age(c.now().Sub(d.At)), ""}, {d.By, ""}, {summary(d.Version, 24), ""},
			{d.Digest[:min(len(d.Digest), shownDigits)], ""}, {summary(d.description(), 60), ""},
		})
	}
	c.table(c.stdout, rows)
}

// description is what a definition says of itself; of instructions, all that they are.
func (d acceptedAs) description() string {
	var object struct {
		Description string `json:"description"`
	}
	var text string
	_ = json.Unmarshal(d.Raw, &text)
	_ = json.Unmarshal(d.Raw, &object)
	return text + object.Description
}

func (d acceptedAs) line() string {
	line := fmt.Sprintf("%s is accepted (%s, %s", d.Title, d.By, d.At.Format(time.DateTime))
	if d.Version != "" {
		line += ", version " + d.Version
	}
	if line += ")"; d.Gone {
		line += " and not offered now"
	}
	return line
}
